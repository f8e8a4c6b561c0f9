//! What the kernel remembers of earlier connections to a host (tcp_metrics(8)): it would let one run of an
//! experiment help or spoil the next.

use crate::kernel::{NetlinkRefusal, attribute, octets, push, u16_at};
use crate::knobs::NO_RIGHT;
use crate::prelude::*;
use sys::netlink::Protocol;

/// Lets the kernel forget what it learned from earlier connections to this host.
///
/// # Errors
/// [`Error::Failed`]: without root, or on a kernel without this command.
pub fn flush_metrics(peer: IpAddr) -> Result<(), Error> {
    forget(peer).map_err(|refusal| {
        let why = match refusal.errno {
            libc::EPERM => NO_RIGHT.to_owned(),
            _ => refusal.to_string(),
        };
        let what = "flush what the kernel remembers of earlier connections to";
        Error::Failed(format!("cannot {what} {peer}: {why}"))
    })
}

fn forget(peer: IpAddr) -> Result<(), NetlinkRefusal> {
    // include/uapi/linux/genetlink.h, tcp_metrics.h
    const GENL_ID_CTRL: u16 = 16;
    const CTRL_CMD_GETFAMILY: u8 = 3;
    const CTRL_ATTR_FAMILY_ID: u16 = 1;
    const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    const TCP_METRICS_CMD_DEL: u8 = 2;
    const TCP_METRICS_ATTR_ADDR_IPV4: u16 = 1;
    const TCP_METRICS_ATTR_ADDR_IPV6: u16 = 2;

    let mut kernel = Kernel::open(Protocol::Generic)?;
    // struct genlmsghdr: command, version, reserved.
    let mut question = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    push(&mut question, CTRL_ATTR_FAMILY_NAME, b"tcp_metrics\0");
    let answer = kernel.get(GENL_ID_CTRL, &question)?;
    let body = answer.body.get(4..).unwrap_or_default();
    let family = attribute(body, CTRL_ATTR_FAMILY_ID).and_then(|value| u16_at(value, 0));
    let unnamed = || std::io::Error::other("the kernel does not name its tcp_metrics");
    let family = family.ok_or_else(unnamed)?;

    let (_, octets) = octets(peer);
    let kind = match octets.len() {
        4 => TCP_METRICS_ATTR_ADDR_IPV4,
        _ => TCP_METRICS_ATTR_ADDR_IPV6,
    };
    let mut order = vec![TCP_METRICS_CMD_DEL, 1, 0, 0];
    push(&mut order, kind, &octets);
    match kernel.order(family, 0, &order) {
        // There is nothing to forget.
        Err(refusal) if refusal.errno == libc::ESRCH => Ok(()),
        other => other,
    }
}
