//! The procedures that the client needs: of the port mapper (RFC 1833), of MOUNT and of NFS (RFC 1813).

use super::programs::{MOUNT, NFS, PORTMAP};
use super::rpc::Procedure;
use super::xdr::{Writer, Xdr};
use model::Bytes;

/// The longest handle, and path, that a server may send.
const HANDLE: usize = 64;
const PATH: usize = 1024;
/// Bytes of `fattr3` and `wcc_attr`.
pub(super) const ATTRIBUTES: usize = 84;
const BEFORE: usize = 24;

/// What a server calls a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle(pub(super) Vec<u8>);

impl Handle {
    fn read(from: &mut Xdr<'_>) -> Option<Handle> {
        from.opaque(HANDLE).map(|bytes| Handle(bytes.to_vec()))
    }
}

/// Attributes before and after a change (`wcc_data`).
pub(super) fn skip_change(from: &mut Xdr<'_>) -> Option<()> {
    from.skip_optional(BEFORE)?;
    from.skip_optional(ATTRIBUTES)
}

/// Whether it was done; else the status behind which nothing of interest stands.
fn done(from: &mut Xdr<'_>) -> Option<Result<(), u32>> {
    Some(match from.u32()? {
        0 => Ok(()),
        status => Err(status),
    })
}

/// Goes on with what stands behind a status of "done".
macro_rules! or_status {
    ($from:expr) => {
        match done($from)? {
            Ok(()) => {}
            Err(status) => return Some(Err(status)),
        }
    };
}

/// Which TCP port has a program? 0: none.
pub struct Port {
    program: u32,
}

impl Port {
    /// Of MOUNT, version 3.
    pub const MOUNT: Port = Port { program: MOUNT };
    /// Of NFS, version 3.
    pub const NFS: Port = Port { program: NFS };
}

impl Procedure for Port {
    type Answer = u16;
    const NUMBERS: [u32; 3] = [PORTMAP, 2, 3];

    fn arguments(&self, to: &mut Writer<'_>) {
        const TCP: u32 = 6;
        for word in [self.program, 3, TCP, 0] {
            to.u32(word);
        }
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<u16, u32>> {
        u16::try_from(from.u32()?).ok().map(Ok)
    }
}

/// The handle of an exported folder.
pub struct Mount<'a>(pub &'a str);

impl Procedure for Mount<'_> {
    type Answer = Handle;
    const NUMBERS: [u32; 3] = [MOUNT, 3, 1];

    fn arguments(&self, to: &mut Writer<'_>) {
        to.opaque(self.0.as_bytes());
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<Handle, u32>> {
        or_status!(from);
        Handle::read(from).map(Ok)
    }
}

/// The folder is not used any more.
pub struct Unmount<'a>(pub &'a str);

impl Procedure for Unmount<'_> {
    type Answer = ();
    const NUMBERS: [u32; 3] = [MOUNT, 3, 3];

    fn arguments(&self, to: &mut Writer<'_>) {
        to.opaque(self.0.as_bytes());
    }

    fn results(&self, _: &mut Xdr<'_>) -> Option<Result<(), u32>> {
        Some(Ok(()))
    }
}

/// Which folders are exported?
pub struct Exports;

impl Procedure for Exports {
    type Answer = Vec<String>;
    const NUMBERS: [u32; 3] = [MOUNT, 3, 5];

    fn arguments(&self, _: &mut Writer<'_>) {}

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<Vec<String>, u32>> {
        let mut all = Vec::new();
        while from.bool()? {
            all.push(String::from_utf8_lossy(from.opaque(PATH)?).into_owned());
            // Who may mount it.
            while from.bool()? {
                from.opaque(PATH)?;
            }
        }
        Some(Ok(all))
    }
}

/// The largest read and write that a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of a READ.
    pub read: Bytes,
    /// Of a WRITE.
    pub write: Bytes,
}

/// What does the server take?
pub struct FsInfo<'a>(pub &'a Handle);

impl Procedure for FsInfo<'_> {
    type Answer = Sizes;
    const NUMBERS: [u32; 3] = [NFS, 3, 19];

    fn arguments(&self, to: &mut Writer<'_>) {
        to.opaque(&self.0.0);
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<Sizes, u32>> {
        or_status!(from);
        from.skip_optional(ATTRIBUTES)?;
        let mut size = || from.u32().map(|most| Bytes(most.into()));
        let read = size()?;
        // The one preferred, and of what it is best a multiple.
        let (_, _) = (size()?, size()?);
        let write = size()?;
        Some(Ok(Sizes { read, write }))
    }
}

/// Makes a file that must not be there yet, for its owner alone; `None`: made, but its handle was not told.
pub struct Create<'a> {
    /// Where.
    pub folder: &'a Handle,
    /// Its name.
    pub name: &'a str,
}

impl Procedure for Create<'_> {
    type Answer = Option<Handle>;
    const NUMBERS: [u32; 3] = [NFS, 3, 8];

    fn arguments(&self, to: &mut Writer<'_>) {
        const GUARDED: u32 = 1;
        to.opaque(&self.folder.0);
        to.opaque(self.name.as_bytes());
        to.u32(GUARDED);
        // The mode is set; owner, group, size and both times are left to the server.
        to.u32(1);
        to.u32(0o600);
        for word in [0; 5] {
            to.u32(word);
        }
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<Option<Handle>, u32>> {
        or_status!(from);
        match from.bool()? {
            true => Handle::read(from).map(|handle| Ok(Some(handle))),
            false => Some(Ok(None)),
        }
    }
}

/// The handle behind a name.
pub struct Lookup<'a> {
    /// Where.
    pub folder: &'a Handle,
    /// Its name.
    pub name: &'a str,
}

impl Procedure for Lookup<'_> {
    type Answer = Handle;
    const NUMBERS: [u32; 3] = [NFS, 3, 3];

    fn arguments(&self, to: &mut Writer<'_>) {
        to.opaque(&self.folder.0);
        to.opaque(self.name.as_bytes());
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<Handle, u32>> {
        or_status!(from);
        Handle::read(from).map(Ok)
    }
}

/// Removes a file.
pub struct Remove<'a> {
    /// Where.
    pub folder: &'a Handle,
    /// Its name.
    pub name: &'a str,
}

impl Procedure for Remove<'_> {
    type Answer = ();
    const NUMBERS: [u32; 3] = [NFS, 3, 12];

    fn arguments(&self, to: &mut Writer<'_>) {
        to.opaque(&self.folder.0);
        to.opaque(self.name.as_bytes());
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<(), u32>> {
        done(from)
    }
}

/// Writes; the server may keep it in memory. How much of it was written comes back.
pub struct Write<'a> {
    /// The file.
    pub file: &'a Handle,
    /// Where in it.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
}

impl Procedure for Write<'_> {
    type Answer = Bytes;
    const NUMBERS: [u32; 3] = [NFS, 3, 7];

    fn arguments(&self, to: &mut Writer<'_>) {
        to.opaque(&self.file.0);
        to.u64(self.offset);
        to.u32(u32::try_from(self.data.len()).expect("a block is below 4 GiB"));
        to.u32(0);
        to.opaque(self.data);
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<Bytes, u32>> {
        or_status!(from);
        skip_change(from)?;
        from.u32().map(|count| Ok(Bytes(count.into())))
    }
}

/// Has everything written put on stable storage.
pub struct Commit<'a>(pub &'a Handle);

impl Procedure for Commit<'_> {
    type Answer = ();
    const NUMBERS: [u32; 3] = [NFS, 3, 21];

    fn arguments(&self, to: &mut Writer<'_>) {
        to.opaque(&self.0.0);
        to.u64(0);
        to.u32(0);
    }

    fn results(&self, from: &mut Xdr<'_>) -> Option<Result<(), u32>> {
        done(from)
    }
}
