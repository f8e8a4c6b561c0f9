//! The kernel's routing tables over netlink, in raw bytes: what is to be restored verbatim must not be taken apart
//! further than needed.

use crate::prelude::*;
use libc::RTA_OIF;
use sys::netlink::Protocol;

pub(crate) use sys::netlink::{
    CREATE, Conversation as Kernel, NetlinkMessage, NetlinkRefusal, REPLACE, attribute, attributes,
    ifinfomsg, nest, octets, push, text, u16_at, u32_at, u64_at,
};

/// Opened for settings.
pub(crate) fn kernel() -> Result<Kernel, Error> {
    Kernel::open(Protocol::Route).map_err(Error::kernel("its settings"))
}

/// Index of the device by which the kernel would reach the peer.
pub(crate) fn device_towards(kernel: &mut Kernel, peer: IpAddr) -> Result<u32, NetlinkRefusal> {
    let route = kernel.route_to(peer, 0)?;
    attribute(&route.body[12..], RTA_OIF)
        .and_then(|value| u32_at(value, 0))
        .ok_or_else(|| io::Error::other("the route names no device").into())
}

/// Name of the device by which the kernel would reach the peer.
pub fn interface_towards(peer: IpAddr) -> Result<String, Error> {
    let device = device_towards(&mut kernel()?, peer).map_err(Error::kernel("a route"))?;
    sys::packet::device_name(device).map_err(Error::kernel("the name of a device"))
}

/// Bytes in the form of the journal.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The inverse of [`to_hex`]; `None` if it is not hexadecimal.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.len()
        .is_multiple_of(2)
        .then(|| text.as_bytes().chunks(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_finds_its_own_loopback_and_refuses_in_words() {
        let mut kernel = Kernel::open(sys::netlink::Protocol::Route).unwrap();
        let lo = device_towards(&mut kernel, [127, 0, 0, 1].into()).unwrap();
        assert_eq!(lo, 1);
        assert_eq!(interface_towards([127, 0, 0, 1].into()).unwrap(), "lo");
        // RTM_GETROUTE with a strange family.
        let refusal = kernel.get(26, &[0xee; 12]).err().unwrap();
        assert_ne!(refusal.errno, 0);
        assert!(!refusal.to_string().is_empty());
    }

    #[test]
    fn hexadecimal_goes_there_and_back() {
        assert_eq!(to_hex(&[0, 255, 16]), "00ff10");
        assert_eq!(from_hex("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
