//! What an eBPF loader leaves to its user: a map shared with the kernel's programs, the root of the control
//! groups, and the clock that programs read.

use crate::file::Mapping;
use rustix::fs::{Mode, OFlags, fstatfs, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::time::{ClockId, clock_getres, clock_gettime};
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The memory of an array map made with `BPF_F_MMAPABLE`, as numbers: the kernel's programs change them as well.
#[derive(Debug)]
pub struct SharedNumbers(Mapping, usize);

impl SharedNumbers {
    /// Maps the first `count` numbers of 64 bits of an array map.
    pub fn map(map: BorrowedFd<'_>, count: usize) -> io::Result<SharedNumbers> {
        let memory = Mapping::shared(map, count * size_of::<AtomicU64>())?;
        Ok(SharedNumbers(memory, count))
    }

    /// All of them.
    pub fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: the mapping, aligned as mmap aligns; shared memory is used by atomic operations alone.
        unsafe { std::slice::from_raw_parts(self.0.at.as_ptr().cast(), self.1) }
    }
}

/// Time since boot without sleep (`CLOCK_MONOTONIC`): the clock of `bpf_ktime_get_ns()`.
pub fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::try_from(time).unwrap_or_default()
}

/// Length of the kernel's tick (a jiffy): the resolution of its coarse clock.
pub fn tick() -> Duration {
    let resolution = clock_getres(ClockId::MonotonicCoarse);
    Duration::try_from(resolution).unwrap_or_default()
}

/// The root of the second version of control groups (cgroups(7)), as far as this process can see up.
///
/// Taken from where it is mounted; where it is not, or hidden by another mount, from a mount of its own
/// that nobody else sees and that ends with the descriptor, which needs CAP_SYS_ADMIN. Once it is found, it stays open: a
/// process may give that right away.
pub fn cgroup_root() -> io::Result<OwnedFd> {
    static ROOT: OnceLock<OwnedFd> = OnceLock::new();
    if ROOT.get().is_none() {
        let _ = ROOT.set(find_cgroup_root()?);
    }
    ROOT.get()
        .expect("it was set above, here or by another")
        .try_clone()
}

fn find_cgroup_root() -> io::Result<OwnedFd> {
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
        // Another mount can lie over it.
        if fstatfs(&directory).is_ok_and(|what| what.f_type as u64 == CGROUP2_SUPER_MAGIC) {
            return Ok(directory.into());
        }
    }
    let context = fsopen(c"cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let (cloexec, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    let mount = fsmount(&context, cloexec, attributes)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&mount, c".", flags, Mode::empty())?)
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        assert!(openat(&root, c".", flags, Mode::empty()).is_ok());
    }
}
