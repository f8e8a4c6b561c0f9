//! What an eBPF loader leaves to its user: a map shared with the kernel's programs, the root of the control
//! groups, and the clock that programs read.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The memory of an array map made with `BPF_F_MMAPABLE`, as numbers: the kernel's programs change them as well.
#[derive(Debug)]
pub struct SharedNumbers {
    at: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the memory stays mapped for the life of the value, and is only used by atomic operations.
unsafe impl Send for SharedNumbers {}

impl SharedNumbers {
    /// Maps the first `count` numbers of 64 bits of an array map.
    ///
    /// # Errors
    /// What mmap(2) says: `EINVAL` if the map is smaller or was not made for that.
    pub fn map(map: BorrowedFd<'_>, count: usize) -> io::Result<SharedNumbers> {
        // SAFETY: a new mapping at an address that the kernel chooses; the descriptor is open.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * size_of::<AtomicU64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(SharedNumbers { at, count })
    }

    /// All of them.
    pub fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: the mapping, aligned as mmap aligns; shared memory is used by atomic operations alone.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl Drop for SharedNumbers {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing can use it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.count * size_of::<AtomicU64>()) };
    }
}

/// Time since boot without sleep (`CLOCK_MONOTONIC`): the clock of `bpf_ktime_get_ns()`.
pub fn monotonic() -> Duration {
    read_clock(libc::clock_gettime, libc::CLOCK_MONOTONIC)
}

/// Length of the kernel's tick (a jiffy): the resolution of its coarse clock.
pub fn tick() -> Duration {
    read_clock(libc::clock_getres, libc::CLOCK_MONOTONIC_COARSE)
}

fn read_clock(
    call: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int,
    clock: libc::clockid_t,
) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write one timespec; both clocks exist on every Linux, so neither can fail.
    unsafe { call(clock, &raw mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The root of the second version of control groups (cgroups(7)), as far as this process can see up.
///
/// Taken from where it is mounted; where it is not, or hidden by another mount, from a mount of its own
/// that nobody else sees and that ends with the descriptor, which needs CAP_SYS_ADMIN.
///
/// # Errors
/// What fsopen(2), fsconfig(2), fsmount(2) and openat(2) say.
pub fn cgroup_root() -> io::Result<OwnedFd> {
    const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (_, Some(place), Some("cgroup2")) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(place);
        let Ok(directory) = opened else { continue };
        // SAFETY: all zeroes are a valid statfs, which fstatfs then fills.
        let mut what: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and the pointer valid for the call.
        let status = unsafe { libc::fstatfs(directory.as_raw_fd(), &raw mut what) };
        // Another mount can lie over it.
        if status == 0 && what.f_type as u64 == CGROUP2_SUPER_MAGIC {
            return Ok(directory.into());
        }
    }
    const CLOEXEC: libc::c_uint = 1; // FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC alike
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    // SAFETY: the name ends with NUL and outlives the call.
    let context = own(unsafe { libc::syscall(libc::SYS_fsopen, c"cgroup2".as_ptr(), CLOEXEC) })?;
    // SAFETY: this command takes neither key nor value.
    let status = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<u8>(),
            std::ptr::null::<u8>(),
            0,
        )
    };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain numbers.
    let mount = own(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) })?;
    open_in(mount.as_fd(), c".")
}

fn open_in(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the name ends with NUL and outlives the call; the descriptor is open.
    let fd = unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags) };
    own(fd.into())
}

fn own(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = libc::c_int::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned it as new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_that_of_the_kernel_and_ticks_as_it_can() {
        let (first, second) = (monotonic(), monotonic());
        assert!(first <= second && !first.is_zero());
        // CONFIG_HZ is one of 100, 250, 300 and 1000.
        let hz = 1_000_000_000 / tick().as_nanos();
        assert!((90..=1100).contains(&hz), "{hz}");
    }

    #[test]
    fn the_root_of_the_groups_is_a_directory_of_groups() {
        let Ok(root) = cgroup_root() else {
            return; // no second version on this host and no right to mount it
        };
        assert!(open_in(root.as_fd(), c".").is_ok());
    }
}
