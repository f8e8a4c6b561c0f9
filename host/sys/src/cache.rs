//! The processor's caches.

/// Bytes of a line, on processors of today.
const LINE: usize = 64;

/// Lets memory be fetched into the caches, without waiting for it: for what is read a little later. Where the processor
/// cannot be asked, nothing happens.
#[inline]
pub fn fetch<T>(memory: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of_val(memory)).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = memory.as_ptr().cast::<i8>().wrapping_add(at);
        // SAFETY: a hint, for which any address will do.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, LINE);
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_fetched_stays_as_it_is() {
        let memory = [7u64; 100];
        super::fetch(&memory);
        super::fetch(&memory[..0]);
        assert_eq!(memory, [7; 100]);
    }
}
