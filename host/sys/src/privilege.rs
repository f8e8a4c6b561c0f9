//! What each process of a server keeps of its rights.

use crate::confine::{close_others, fork};
use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
    path_beneath_rules,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};
use seccompiler::{SeccompAction, SeccompFilter, SeccompRule};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The newest restrictions of Landlock that are asked for; a kernel has those that it has.
const LANDLOCK: ABI = ABI::V6;

/// The process that talks to the network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// What it may read, and what is below.
    pub read: Vec<PathBuf>,
    /// What it may change as well, and what is below.
    pub write: Vec<PathBuf>,
    /// It opens ports below 1024.
    pub low_ports: bool,
    /// It connects to other hosts over TCP.
    pub connects: bool,
}

/// A process that does for it what takes a privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivilegedHelper {
    /// Changes settings.
    Tuner,
    /// Loads the probes of a trace.
    Tracer,
}

/// System calls that no part of a server needs, or one alone: other programs, other processes, the kernel itself, its name
/// spaces, mounts and clocks, and what has been a way into the kernel before.
const DENIED: [i64; 42] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_personality,
];

impl Network {
    /// Leaves this to the calling thread and to those that it starts from now on. A sentence if the kernel is too old to
    /// deny all else.
    pub fn confine(&self) -> io::Result<Option<String>> {
        limit_to(match self.low_ports {
            true => CapabilitySet::NET_BIND_SERVICE,
            false => CapabilitySet::empty(),
        })?;
        set_no_new_privs(true)?;
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = AccessFs::from_all(LANDLOCK) & !AccessFs::Execute;
        // What is not there is not allowed.
        let allowed = path_beneath_rules(&self.read, read);
        let allowed = allowed.chain(path_beneath_rules(&self.write, write));
        let confined = Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK))
            .and_then(|rules| match self.connects {
                true => Ok(rules),
                false => rules.handle_access(AccessNet::ConnectTcp),
            })
            .and_then(|rules| rules.scope(Scope::from_all(LANDLOCK)))
            .and_then(|rules| rules.create()?.add_rules(allowed)?.restrict_self());
        let landlock = confined.map_err(io::Error::other)?.landlock;
        deny(&[])?;
        Ok(not_denied(landlock.into()))
    }
}

/// What a kernel with this Landlock does not deny to [`Network`].
fn not_denied(landlock: ABI) -> Option<String> {
    let all = [
        (ABI::V1, "open the files of its user (5.13)"),
        (ABI::V3, "truncate files (6.2)"),
        (ABI::V4, "connect to others (6.7)"),
        (ABI::V6, "signal other processes of its user (6.12)"),
    ];
    let missing: Vec<&str> = all
        .iter()
        .filter(|(since, _)| landlock < *since)
        .map(|(_, what)| *what)
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the kernel's Landlock is missing, or older than Linux 6.12: a defect in what reads the network could still {}; a user of its own bounds that (the units have one)",
            missing.join(", ")
        )
    })
}

impl PrivilegedHelper {
    fn needs(self) -> CapabilitySet {
        match self {
            // The second for its guard, which is to be the last to go when memory runs out.
            PrivilegedHelper::Tuner => CapabilitySet::NET_ADMIN | CapabilitySet::SYS_RESOURCE,
            PrivilegedHelper::Tracer => {
                CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN
            }
        }
    }

    fn calls(self) -> &'static [i64] {
        match self {
            // Its guard is this program.
            PrivilegedHelper::Tuner => &[libc::SYS_execve],
            PrivilegedHelper::Tracer => &[libc::SYS_bpf],
        }
    }

    /// Whether this process has any right that it would keep.
    pub fn has_rights(self) -> io::Result<bool> {
        Ok(capabilities(None)?.permitted.intersects(self.needs()))
    }

    /// Starts it: a copy of this process, which must have one thread, with the rights that it needs of those that there
    /// are. Signals to end do not reach it: it ends when the socket has no peer any more.
    pub fn start(self, work: impl FnOnce(UnixStream)) -> io::Result<UnixStream> {
        if std::fs::read_dir("/proc/self/task")?.count() != 1 {
            return Err(io::Error::other("this process has several threads already"));
        }
        let (ours, theirs) = UnixStream::pair()?;
        fork(|| {
            // Above all the peer of this pair, and those of earlier helpers: their end is what is waited for.
            let closed = close_others(&[theirs.as_raw_fd()]);
            if self == PrivilegedHelper::Tracer {
                // Where there is none, it says so when it is to trace.
                let _ = crate::bpf::cgroup_root();
            }
            let confined = closed
                .and_then(|()| crate::signal::outlive_requests_to_end())
                .and_then(|()| limit_to(self.needs()))
                .and_then(|()| Ok(set_no_new_privs(true)?))
                .and_then(|()| deny(self.calls()));
            // Its end is seen by who asks.
            if confined.is_ok() {
                work(theirs);
            }
            confined.is_ok()
        })?;
        Ok(ours)
    }
}

/// Keeps these capabilities of this thread, as far as it has them, and gives the others away.
pub(crate) fn limit_to(these: CapabilitySet) -> io::Result<()> {
    let has = capabilities(None)?;
    if (has.permitted | has.inheritable)
        .difference(these)
        .is_empty()
    {
        // Where nothing is to be given away, the call may be denied.
        return Ok(());
    }
    let sets = CapabilitySets {
        effective: has.permitted & these,
        permitted: has.permitted & these,
        inheritable: has.inheritable & these,
    };
    Ok(set_capabilities(None, sets)?)
}

/// By Landlock, as far as the kernel has it.
pub(crate) fn deny_files_and_network() -> io::Result<()> {
    let denied = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(LANDLOCK)))
        .and_then(|rules| rules.scope(Scope::from_all(LANDLOCK)))
        .and_then(|rules| rules.create()?.restrict_self());
    denied.map(drop).map_err(io::Error::other)
}

/// Denies the system calls of [`DENIED`] but these.
fn deny(but: &[i64]) -> io::Result<()> {
    let denied = DENIED.into_iter().filter(|call| !but.contains(call));
    let rules = denied.map(|call| (call, Vec::new())).collect();
    let error = SeccompAction::Errno(libc::EPERM as u32);
    filter(rules, SeccompAction::Allow, error)
}

pub(crate) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Filters the system calls of this thread and of all that it starts.
pub(crate) fn filter(rules: Rules, others: SeccompAction, these: SeccompAction) -> io::Result<()> {
    let architecture = std::env::consts::ARCH.try_into();
    let architecture = architecture.map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, others, these, architecture);
    let program: Result<seccompiler::BpfProgram, _> = filter.and_then(TryInto::try_into);
    seccompiler::apply_filter(&program.map_err(io::Error::other)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_kernel_does_not_deny_is_named() {
        assert_eq!(not_denied(ABI::V6), None);
        let with = |landlock| not_denied(landlock).unwrap_or_default();
        assert!(
            with(ABI::V5).contains("could still signal"),
            "{}",
            with(ABI::V5)
        );
        assert!(
            with(ABI::V3).contains("could still connect"),
            "{}",
            with(ABI::V3)
        );
        assert!(
            with(ABI::V2).contains("could still truncate"),
            "{}",
            with(ABI::V2)
        );
        assert!(with(ABI::Unsupported).contains("could still open the files"));
    }
}
