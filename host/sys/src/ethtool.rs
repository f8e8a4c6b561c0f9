//! What a network device's driver tells through `SIOCETHTOOL` (`include/uapi/linux/ethtool.h`). All
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
    /// Version of the driver: that of the kernel for most drivers in its tree.
    pub version: String,
    /// Version of the firmware.
    pub firmware: String,
    /// Address on its bus.
    pub bus: String,
}

/// `ETHTOOL_GLINKSETTINGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// Speed in Mbit/s; `None` if unknown, as without a carrier.
    pub speed_mbit_s: Option<u32>,
    /// Full duplex; `None` if unknown.
    pub full_duplex: Option<bool>,
}

/// A number that the driver has now, and the greatest that it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// Now.
    pub current: u32,
    /// At most.
    pub maximum: u32,
}

/// `ETHTOOL_GRINGPARAM`: descriptors in the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Receive ring.
    pub rx: Bounded,
    /// Transmit ring.
    pub tx: Bounded,
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

/// `ETHTOOL_GCHANNELS`: queues in use. A combined channel receives and transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Queues that receive.
    pub rx: u32,
    /// Queues that transmit.
    pub tx: u32,
}

/// An offload, by ethtool(8)'s short names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// `tso`, `gro`, ...
    pub name: &'static str,
    command: u32,
    bit: u32,
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
    /// `EOPNOTSUPP` if the driver does not tell, `ENODEV` without such a device.
    pub fn driver(&self) -> io::Result<DriverInfo> {
        // SAFETY: plain numbers, for which all zeroes are valid.
        let mut info: RawDriverInfo = unsafe { std::mem::zeroed() };
        info.command = GDRVINFO;
        self.ask(&mut info)?;
        let text = |field: &[u8]| {
            let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).into_owned()
        };
        Ok(DriverInfo {
            driver: text(&info.driver),
            version: text(&info.version),
            firmware: text(&info.firmware),
            bus: text(&info.bus),
        })
    }

    /// Speed and duplex of the link.
    pub fn link(&self) -> io::Result<LinkSettings> {
        // SAFETY: plain numbers, for which all zeroes are valid.
        let mut settings: RawLinkSettings = unsafe { std::mem::zeroed() };
        settings.command = GLINKSETTINGS;
        // The first answer says, negated, how many words each of the kernel's three masks has.
        self.ask(&mut settings)?;
        settings.command = GLINKSETTINGS;
        settings.mask_words = settings.mask_words.checked_neg().unwrap_or(0);
        self.ask(&mut settings)?;
        Ok(LinkSettings {
            speed_mbit_s: Some(settings.speed).filter(|s| *s != 0 && *s != u32::MAX),
            full_duplex: match settings.duplex {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
        })
    }

    /// Whether an offload is on.
    pub fn offload(&self, offload: &Offload) -> io::Result<bool> {
        let mut value = RawValue {
            command: offload.command,
            data: 0,
        };
        self.ask(&mut value)?;
        Ok(value.data & offload.bit != 0)
    }

    /// Switches an offload on or off; the driver may switch others that depend on it. Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// `EOPNOTSUPP` or `EINVAL` where the driver cannot; `EPERM` without the right.
    pub fn set_offload(&self, offload: &Offload, on: bool) -> io::Result<()> {
        let mut value = RawValue {
            command: offload.command,
            data: 0,
        };
        if offload.command == GFLAGS {
            self.ask(&mut value)?;
        }
        value.data &= !offload.bit;
        if on {
            // All bits of the answer to a request of its own mean the same, so one of them will do.
            value.data |= match offload.bit {
                u32::MAX => 1,
                bit => bit,
            };
        }
        // Each setter's number follows its getter's.
        value.command = offload.command + 1;
        self.ask(&mut value)
    }

    /// All offloads of the device at once.
    pub fn features(&self) -> io::Result<Features> {
        let mut raw = RawFeatures {
            command: GFEATURES,
            size: FEATURE_WORDS as u32,
            words: [0; FEATURE_WORDS * 4],
        };
        self.ask(&mut raw)?;
        // Each word has four: changeable, wanted, active, fixed for ever.
        let words = (raw.size as usize).min(FEATURE_WORDS);
        let column = |at| (0..words).map(|word| raw.words[4 * word + at]).collect();
        Ok(Features {
            changeable: column(0),
            wanted: column(1),
            active: column(2),
        })
    }

    /// Wants exactly these of the changeable offloads. Needs CAP_NET_ADMIN.
    pub fn set_features(&self, features: &Features) -> io::Result<()> {
        let mut raw = RawFeatures {
            command: SFEATURES,
            size: u32::try_from(features.changeable.len()).unwrap_or(u32::MAX),
            words: [0; FEATURE_WORDS * 4],
        };
        // Each word has two: which are meant, and what they are to be.
        let both = features.changeable.iter().zip(&features.wanted);
        for (to, (changeable, wanted)) in raw.words.chunks_exact_mut(2).zip(both) {
            to.copy_from_slice(&[*changeable, changeable & wanted]);
        }
        self.ask(&mut raw)
    }

    /// Sets the sizes of the rings; other rings keep theirs. Needs CAP_NET_ADMIN.
    pub fn set_rings(&self, rx: u32, tx: u32) -> io::Result<()> {
        let mut raw = self.nine(GRINGPARAM)?;
        raw.command = SRINGPARAM;
        raw.words[4] = rx;
        raw.words[7] = tx;
        self.ask(&mut raw)
    }

    /// Sizes of the rings.
    pub fn rings(&self) -> io::Result<Rings> {
        let raw = self.nine(GRINGPARAM)?;
        // Receive maximum, mini, jumbo, transmit maximum; then the same four as they are now.
        let [rx_max, _, _, tx_max, rx, _, _, tx] = raw.words;
        Ok(Rings {
            rx: Bounded {
                current: rx,
                maximum: rx_max,
            },
            tx: Bounded {
                current: tx,
                maximum: tx_max,
            },
        })
    }

    /// Queues in use.
    pub fn channels(&self) -> io::Result<Channels> {
        let raw = self.nine(GCHANNELS)?;
        // Maxima of rx, tx, other, combined; then the same four as they are now.
        let [_, _, _, _, rx, tx, _, combined] = raw.words;
        Ok(Channels {
            rx: rx.saturating_add(combined),
            tx: tx.saturating_add(combined),
        })
    }

    fn nine(&self, command: u32) -> io::Result<RawNine> {
        let words = [0; 8];
        let mut raw = RawNine { command, words };
        self.ask(&mut raw)?;
        Ok(raw)
    }

    fn ask<T: Request>(&self, request: &mut T) -> io::Result<()> {
        // SAFETY: all zeroes are a valid ifreq.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        ifreq.ifr_name = self.name;
        ifreq.ifr_ifru.ifru_data = std::ptr::from_mut(request).cast();
        let fd = self.socket.as_raw_fd();
        // SAFETY: the name ends with NUL, and the data is an exclusively borrowed structure of the
        // layout and size that the kernel reads and writes for its command (promised by `Request`).
        check(unsafe { libc::ioctl(fd, libc::SIOCETHTOOL as _, &raw mut ifreq) }).map(drop)
    }
}

const GDRVINFO: u32 = 0x03;
const GRINGPARAM: u32 = 0x10;
const SRINGPARAM: u32 = 0x11;
const GFLAGS: u32 = 0x25;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GCHANNELS: u32 = 0x3c;
const GLINKSETTINGS: u32 = 0x4c;

const fn offload(name: &'static str, command: u32, bit: u32) -> Offload {
    Offload { name, command, bit }
}

/// A structure of ethtool's ABI.
///
/// # Safety
/// `repr(C)` plain data without padding, beginning with the command; the structure has to be at least
/// as large as what the kernel writes for every command that this module puts into it.
unsafe trait Request {}

/// `struct ethtool_value`.
#[repr(C)]
struct RawValue {
    command: u32,
    data: u32,
}

// SAFETY: the getters of one value copy exactly these eight bytes.
unsafe impl Request for RawValue {}

/// `struct ethtool_drvinfo`, 196 bytes.
#[repr(C)]
struct RawDriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    /// `erom_version[32]`, `reserved2[12]` and five counts.
    rest: [u8; 64],
}

const _: () = assert!(size_of::<RawDriverInfo>() == 196);

// SAFETY: the kernel copies one ethtool_drvinfo, whose size is asserted above.
unsafe impl Request for RawDriverInfo {}

/// `struct ethtool_ringparam` and `struct ethtool_channels`: the command and eight numbers each.
#[repr(C)]
struct RawNine {
    command: u32,
    words: [u32; 8],
}

// SAFETY: both structures are nine 32-bit words.
unsafe impl Request for RawNine {}

/// Words of features that there is room for; Linux 6.18 has three.
const FEATURE_WORDS: usize = 8;

/// `struct ethtool_gfeatures` and `struct ethtool_sfeatures`: the number of words, and four or two
/// numbers a word.
#[repr(C)]
struct RawFeatures {
    command: u32,
    size: u32,
    words: [u32; FEATURE_WORDS * 4],
}

// SAFETY: the getter copies at most `size` words, for which there is room; the setter reads `size` words
// of half the width, and refuses any number but its own.
unsafe impl Request for RawFeatures {}

/// `struct ethtool_link_settings`, 48 bytes, and behind it three masks of up to 127 words.
#[repr(C)]
struct RawLinkSettings {
    command: u32,
    speed: u32,
    duplex: u8,
    skipped: [u8; 6],
    mask_words: i8,
    rest: [u8; 32],
    masks: [u32; 3 * 127],
}

const _: () = assert!(size_of::<RawLinkSettings>() == 48 + 3 * 127 * 4);

// SAFETY: the kernel copies the 48 bytes, and the masks only if `mask_words` is the number that it
// uses itself, which as an i8 is at most 127: there is room for three masks of that many.
unsafe impl Request for RawLinkSettings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_tells_its_offloads_and_no_rings() {
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
