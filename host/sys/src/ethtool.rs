//! What a network device's driver reports through `SIOCETHTOOL` (`include/uapi/linux/ethtool.h`). All
//! requests but those that begin with `set` only read, and need no privilege.

use crate::socket::check;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Asks the driver of one device.
#[derive(Debug)]
pub struct Ethtool {
    /// Any socket will do: the ioctl is answered by the device, not by the protocol.
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

/// `ETHTOOL_GDRVINFO`. Empty where the driver leaves it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// Name of the driver.
    pub driver: String,
    /// Version of the firmware.
    pub firmware: String,
    /// Address on its bus.
    pub bus: String,
}

/// Descriptors in a ring now, and the most that the driver allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// Now.
    pub current: u32,
    /// At most.
    pub maximum: u32,
}

/// `struct ethtool_coalesce`: how long the device waits for more packets before it interrupts. Whole, so that the rest
/// is handed back unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing(pub [u32; 22]);

/// Of packets that arrive and of those that have left: where the microseconds are, and whether the driver adapts them.
const DELAYS: [(usize, usize); 2] = [(0, 9), (4, 10)];

impl Coalescing {
    /// Microseconds for packets that arrive, and for those that have left; `None` while the driver adapts them to the load.
    pub fn delays_us(&self) -> [Option<u32>; 2] {
        DELAYS.map(|(delay, adaptive)| (self.0[adaptive] == 0).then_some(self.0[delay]))
    }

    /// The same with these microseconds for one of both, which the driver does not adapt.
    #[must_use]
    pub fn with_delay_us(mut self, which: usize, delay_us: u32) -> Coalescing {
        let (delay, adaptive) = DELAYS[which];
        (self.0[delay], self.0[adaptive]) = (delay_us, 0);
        self
    }
}

/// `ETHTOOL_GFEATURES`: one bit an offload, in the kernel's own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// May be switched.
    pub changeable: Vec<u32>,
    /// Was asked for.
    pub wanted: Vec<u32>,
    /// Is on.
    pub active: Vec<u32>,
}

/// An offload, by ethtool(8)'s short names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// `tso`, `gro`, ...
    pub name: &'static str,
    command: u32,
    bit: u32,
}

const fn offload(name: &'static str, command: u32, bit: u32) -> Offload {
    Offload { name, command, bit }
}

/// The offloads that bear on a TCP transfer. Several are one bit of `ETHTOOL_GFLAGS`; the others have a
/// request of their own whose answer is 0 or not.
pub const OFFLOADS: [Offload; 11] = [
    offload("rx", 0x14, u32::MAX),
    offload("tx", 0x16, u32::MAX),
    offload("sg", 0x18, u32::MAX),
    offload("tso", 0x1e, u32::MAX),
    offload("gso", 0x23, u32::MAX),
    offload("gro", 0x2b, u32::MAX),
    offload("lro", GFLAGS, 1 << 15),
    offload("rxvlan", GFLAGS, 1 << 8),
    offload("txvlan", GFLAGS, 1 << 7),
    offload("ntuple", GFLAGS, 1 << 27),
    offload("rxhash", GFLAGS, 1 << 28),
];

const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const SCOALESCE: u32 = 0x0f;
const GRINGPARAM: u32 = 0x10;
const SRINGPARAM: u32 = 0x11;
const GFLAGS: u32 = 0x25;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GCHANNELS: u32 = 0x3c;
const GLINKSETTINGS: u32 = 0x4c;

/// Words of features that are asked for; Linux 6.18 has three.
const FEATURE_WORDS: u32 = 8;

/// Words of the largest structure that is exchanged: `struct ethtool_link_settings`, 12 words and behind
/// them three masks of up to 127 words.
const ROOM: usize = 12 + 3 * 127;

impl Ethtool {
    /// Prepares to ask about one device of the calling thread's network namespace. The device need
    /// not be there yet: each request looks it up by name.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no device can have; what socket(2) says.
    pub fn open(device: &str) -> io::Result<Ethtool> {
        let mut name = [0; libc::IFNAMSIZ];
        let bytes = device.as_bytes();
        // The last byte stays NUL.
        if bytes.is_empty() || bytes.len() >= name.len() || bytes.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{device}' cannot be the name of a network device"),
            ));
        }
        for (to, from) in name.iter_mut().zip(bytes) {
            *to = from.cast_signed();
        }
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        Ok(Ethtool { socket, name })
    }

    /// Driver, firmware and bus address.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the driver does not report them, `ENODEV` without such a device.
    pub fn driver(&self) -> io::Result<DriverInfo> {
        let answer = self.ioctl(&[GDRVINFO])?;
        // Texts of 32 bytes: driver, its version, firmware, bus.
        let text = |n: usize| {
            let bytes = answer[1 + 8 * n..][..8]
                .iter()
                .flat_map(|w| w.to_ne_bytes());
            let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&text).into_owned()
        };
        Ok(DriverInfo {
            driver: text(0),
            firmware: text(2),
            bus: text(3),
        })
    }

    /// Speed of the link in Mbit/s, and whether it is full duplex; `None` if unknown, as without a carrier.
    pub fn link(&self) -> io::Result<(Option<u32>, Option<bool>)> {
        // The first answer has, negated, how many words each of the kernel's three masks has.
        let [.., words] = self.ioctl(&[GLINKSETTINGS])?[3].to_ne_bytes();
        let masks = u32::from_ne_bytes([0, 0, 0, words.wrapping_neg()]);
        let answer = self.ioctl(&[GLINKSETTINGS, 0, 0, masks])?;
        let full_duplex = match answer[2].to_ne_bytes()[0] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let speed = Some(answer[1]).filter(|speed| !matches!(*speed, 0 | u32::MAX));
        Ok((speed, full_duplex))
    }

    /// Whether an offload is on.
    pub fn offload(&self, offload: &Offload) -> io::Result<bool> {
        Ok(self.ioctl(&[offload.command])?[1] & offload.bit != 0)
    }

    /// Switches an offload on or off; the driver may switch others that depend on it. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// `EOPNOTSUPP` or `EINVAL` where the driver cannot; `EPERM` without the right.
    pub fn set_offload(&self, offload: &Offload, on: bool) -> io::Result<()> {
        let value = match offload.command {
            GFLAGS => match (self.ioctl(&[GFLAGS])?[1], on) {
                (flags, true) => flags | offload.bit,
                (flags, false) => flags & !offload.bit,
            },
            _ => on.into(),
        };
        // Each setter's number follows its getter's.
        self.ioctl(&[offload.command + 1, value]).map(drop)
    }

    /// All offloads of the device at once.
    pub fn features(&self) -> io::Result<Features> {
        let answer = self.ioctl(&[GFEATURES, FEATURE_WORDS])?;
        // Each word has four: changeable, wanted, active, fixed for ever.
        let words = answer[1].min(FEATURE_WORDS) as usize;
        let words = answer[2..].chunks(4).take(words);
        let column = |at: usize| words.clone().map(|word| word[at]).collect();
        Ok(Features {
            changeable: column(0),
            wanted: column(1),
            active: column(2),
        })
    }

    /// Wants exactly these of the changeable offloads. Needs CAP_NET_ADMIN.
    pub fn set_features(&self, features: &Features) -> io::Result<()> {
        // Each word has two: which are meant, and what they are to be.
        let both = features.changeable.iter().zip(&features.wanted);
        let words = both.flat_map(|(changeable, wanted)| [*changeable, changeable & wanted]);
        let size = features.changeable.len() as u32;
        let request: Vec<u32> = [SFEATURES, size].into_iter().chain(words).collect();
        self.ioctl(&request).map(drop)
    }

    /// Sizes of the receive and the transmit ring.
    pub fn rings(&self) -> io::Result<[Bounded; 2]> {
        // Receive maximum, mini, jumbo, transmit maximum; then the current values of the same four.
        let answer = self.ioctl(&[GRINGPARAM])?;
        Ok([1, 4].map(|at| Bounded {
            current: answer[at + 4],
            maximum: answer[at],
        }))
    }

    /// Sets the sizes of the rings; other rings keep theirs. Needs CAP_NET_ADMIN.
    pub fn set_rings(&self, rx: u32, tx: u32) -> io::Result<()> {
        let mut rings = self.ioctl(&[GRINGPARAM])?;
        (rings[0], rings[5], rings[8]) = (SRINGPARAM, rx, tx);
        self.ioctl(&rings[..9]).map(drop)
    }

    /// How long it waits before it interrupts.
    pub fn coalescing(&self) -> io::Result<Coalescing> {
        let answer = self.ioctl(&[GCOALESCE])?;
        Ok(Coalescing(std::array::from_fn(|at| answer[at + 1])))
    }

    /// Sets how long it waits before it interrupts. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// `EINVAL` for what the driver does not take, `EOPNOTSUPP` where it has none of it, `EPERM` without the right.
    pub fn set_coalescing(&self, coalescing: &Coalescing) -> io::Result<()> {
        let mut request = [SCOALESCE; 23];
        request[1..].copy_from_slice(&coalescing.0);
        self.ioctl(&request).map(drop)
    }

    /// Queues in use that receive and that transmit; a combined channel does both.
    pub fn channels(&self) -> io::Result<[u32; 2]> {
        // Maxima of rx, tx, other, combined; then the current values of the same four.
        let answer = self.ioctl(&[GCHANNELS])?;
        Ok([answer[5], answer[6]].map(|queues| queues.saturating_add(answer[8])))
    }

    /// A request in words of 32 bits, the command first; returns the structure as the kernel left it.
    fn ioctl(&self, request: &[u32]) -> io::Result<[u32; ROOM]> {
        let mut words = [0; ROOM];
        let begin = words.get_mut(..request.len());
        begin
            .ok_or(io::ErrorKind::InvalidInput)?
            .copy_from_slice(request);
        // SAFETY: all zeroes are a valid ifreq.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        ifreq.ifr_name = self.name;
        ifreq.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        let fd = self.socket.as_raw_fd();
        // SAFETY: the name ends with NUL; the words are exclusively borrowed, and have room for the
        // structures of all commands above: link settings as ROOM has them, of features as many as the
        // request names, and less than 50 words of all others.
        check(unsafe { libc::ioctl(fd, libc::SIOCETHTOOL as _, &raw mut ifreq) })?;
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_offloads_and_no_rings() {
        let lo = Ethtool::open("lo").unwrap();
        for offload in &OFFLOADS {
            lo.offload(offload)
                .unwrap_or_else(|e| panic!("{}: {e}", offload.name));
        }
        assert!(lo.rings().is_err());
    }

    #[test]
    fn no_device_and_no_name() {
        let error = Ethtool::open("none-such0").unwrap().driver().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        for bad in ["", "a-name-of-16-byte", "0123456789abcdef", "a\0b"] {
            assert!(Ethtool::open(bad).is_err(), "{bad:?}");
        }
    }
}
