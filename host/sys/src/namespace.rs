//! Namespaces: making them, entering them, and starting a program inside (namespaces(7)).

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives the calling thread a network namespace of its own. Needs CAP_SYS_ADMIN.
pub fn unshare_net() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Gives the calling process, which must have a single thread, a user namespace in which it is root,
/// and a network namespace that belongs to it. Needs no privilege where the host allows it.
pub fn unshare_user_and_net() -> io::Result<()> {
    let uid = crate::process::effective_user();
    let gid = crate::process::effective_group();
    unshare(UnshareFlags::NEWUSER)?;
    // A process may map its own group only after giving up setgroups(2) (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    unshare(UnshareFlags::NEWNET)
}

/// A new network namespace, which lives as long as the descriptor, or as long as anything is in it.
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
pub fn current_net() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Moves the calling thread into a network namespace. Needs CAP_SYS_ADMIN over it.
pub fn enter_net(net: BorrowedFd<'_>) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(net, kind)?)
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
                let kind = Some(LinkNameSpaceType::User);
                move_into_link_name_space(user.as_fd(), kind)?;
            }
            enter_net(inside.net.as_fd())?;
            unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUTS)?;
            rustix::system::sethostname(inside.host_name.as_bytes())?;
            // Nothing mounted here may spread to the outside.
            let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
            mount_change(c"/", private)?;
            // Two conveniences, which a sandbox may forbid: the network is the same without them.
            let _ = mount(c"sysfs", c"/sys", c"sysfs", MountFlags::empty(), None);
            let _ = mount_bind(inside.hosts.as_c_str(), c"/etc/hosts");
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
        command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
    }
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: no flag is UnshareFlags::FILES, the only one that threads can observe in memory.
    Ok(unsafe { unshare_unsafe(flags) }?)
}
