//! Namespaces: making them, entering them, and starting a program inside (namespaces(7)).

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// Gives the calling thread a network namespace of its own. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// What unshare(2) says: `EPERM` without the right, `ENOSPC` above the limit of namespaces.
pub fn unshare_net() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET)
}

/// Gives the calling process, which must have a single thread, a user namespace in which it is root,
/// and a network namespace that belongs to it. Needs no privilege where the host allows it.
///
/// # Errors
/// What unshare(2) says (`EPERM` or `ENOSPC` where user namespaces are forbidden, `EINVAL` with more
/// threads), and what writing the maps of users and groups says.
pub fn unshare_user_and_net() -> io::Result<()> {
    // SAFETY: both calls only return numbers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    unshare(libc::CLONE_NEWUSER)?;
    // A process may map its own group only after giving up setgroups(2) (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    unshare(libc::CLONE_NEWNET)
}

/// A new network namespace, which lives as long as the descriptor, or as long as anything is in it.
///
/// # Errors
/// As [`unshare_net`].
pub fn new_net() -> io::Result<OwnedFd> {
    // A thread of its own, because unshare moves the caller, and there is no call that only makes one.
    std::thread::spawn(|| {
        unshare_net()?;
        current_net()
    })
    .join()
    .unwrap_or_else(|_| Err(io::Error::other("the thread that makes a namespace ended")))
}

/// The network namespace of the calling thread.
///
/// # Errors
/// What open(2) says, as without /proc.
pub fn current_net() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Moves the calling thread into a network namespace. Needs CAP_SYS_ADMIN over it.
///
/// # Errors
/// What setns(2) says.
pub fn enter_net(net: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes plain numbers; the descriptor is open for the length of the borrow.
    check(unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Where a program is to be started.
#[derive(Debug)]
pub struct Inside {
    /// User namespace to enter first, for whoever is not root outside.
    pub user: Option<OwnedFd>,
    /// Network namespace.
    pub net: OwnedFd,
    /// Name of the host that the program sees.
    pub host_name: String,
    /// File that the program sees as `/etc/hosts`.
    pub hosts: CString,
}

/// Lets `command` start inside: in the namespaces, with a name of its own, and with mounts of its own in
/// which `/sys` shows the devices of the network namespace and `/etc/hosts` names its neighbours.
pub fn start_inside(command: &mut Command, inside: Inside) {
    // SAFETY: between fork and exec only system calls are made, on memory that was prepared before.
    unsafe {
        command.pre_exec(move || {
            if let Some(user) = &inside.user {
                check(libc::setns(user.as_raw_fd(), libc::CLONE_NEWUSER))?;
            }
            enter_net(inside.net.as_fd())?;
            check(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUTS))?;
            check(libc::sethostname(
                inside.host_name.as_ptr().cast(),
                inside.host_name.len(),
            ))?;
            // Nothing mounted here may spread to the outside.
            mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
            // Two conveniences, which a sandbox may forbid: the network is the same without them.
            let _ = mount(c"sysfs", c"/sys", Some(c"sysfs"), 0);
            let _ = mount(&inside.hosts, c"/etc/hosts", None, libc::MS_BIND);
            Ok(())
        });
    }
}

/// Lets `command` start in a network namespace, and else where the caller is.
pub fn start_in_net(command: &mut Command, net: OwnedFd) {
    // SAFETY: between fork and exec only setns(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || enter_net(net.as_fd()));
    }
}

/// Lets `command` start as the leader of a session of its own, so that neither Ctrl-C nor the end of the
/// terminal reaches it.
pub fn detach(command: &mut Command) {
    // SAFETY: between fork and exec only setsid(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| check(libc::setsid()));
    }
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare takes a plain number and touches no memory of ours.
    check(unsafe { libc::unshare(flags) })
}

fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    // SAFETY: the strings end with NUL and outlive the call; no data is given.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.map_or(ptr::null(), CStr::as_ptr),
            flags,
            ptr::null(),
        )
    })
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
