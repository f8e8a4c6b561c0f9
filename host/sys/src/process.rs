//! What the kernel says of this process and this host by call rather than by file.

use crate::socket::check;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Processor time that this process, all its threads together, has used so far: (user, kernel).
pub fn cpu_time() -> io::Result<(Duration, Duration)> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is to room for one rusage, which the kernel fills whole when it returns 0.
    let usage = unsafe {
        check(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()))?;
        usage.assume_init()
    };
    let time = |t: libc::timeval| {
        // A used time is not negative and its microseconds are below a million (getrusage(2)).
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    Ok((time(usage.ru_utime), time(usage.ru_stime)))
}

/// Lets this process have as many open files as its hard limit allows (`RLIMIT_NOFILE`), and returns how many that is.
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // Up to the hard limit everybody may; if not, the soft one stands.
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    now.unwrap_or(u64::MAX)
}

/// The user whose rights this process has.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group whose rights this process has.
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Clock ticks per second in `/proc` (`_SC_CLK_TCK`; 100 on every Linux that is known).
pub fn clock_ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// Names of this host and its kernel, as uname(2) has them: `Linux`, the host, the kernel's release, and the
/// architecture, like `x86_64`.
pub fn uname() -> [String; 4] {
    let names = rustix::system::uname();
    let all = [
        names.sysname(),
        names.nodename(),
        names.release(),
        names.machine(),
    ];
    all.map(|name| name.to_string_lossy().into_owned())
}

/// Random id of this start of the kernel (random(4)): the same in all its network namespaces and containers.
pub fn boot_id() -> io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// The signature that a hypervisor leaves for its guests (CPUID leaf 0x40000000), like `KVMKVMKVM`;
/// `None` on bare metal, and on architectures without such a register.
pub fn hypervisor_signature() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        // CPUID exists on every x86-64 processor and only fills the returned registers. It has become
        // a safe function in newer compilers.
        #[allow(unused_unsafe)]
        // SAFETY: as above.
        let (features, leaf) = unsafe { (__cpuid(1), __cpuid(0x4000_0000)) };
        // Bit 31 of ECX is never set by a processor, only by a hypervisor.
        if features.ecx & 1 << 31 == 0 {
            return None;
        }
        let signature: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .filter(|b| b.is_ascii_graphic() || *b == b' ')
            .collect();
        Some(String::from_utf8_lossy(&signature).trim().to_owned())
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_hypervisor_flag_agrees_with_the_kernels() {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flag = cpuinfo.split_whitespace().any(|word| word == "hypervisor");
        assert_eq!(hypervisor_signature().is_some(), flag);
    }

    #[test]
    fn the_process_uses_time_and_the_host_has_a_name() {
        let start = cpu_time().unwrap();
        // Work until the kernel has counted some of it: the count moves by its own tick.
        let mut x = 1u64;
        while cpu_time().unwrap() == start {
            for _ in 0..1_000_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        }
        let later = cpu_time().unwrap();
        assert!(later.0 + later.1 > start.0 + start.1);
        assert!(clock_ticks_per_second() > 0);

        let [system, _, kernel, _] = uname();
        assert_eq!(system, "Linux");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(kernel, release.trim());
    }
}
