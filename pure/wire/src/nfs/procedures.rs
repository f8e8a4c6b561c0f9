//! The procedures that the client needs: of the port mapper (RFC 1833), of MOUNT and of NFS (RFC 1813).

use super::programs::{MOUNT, NFS, PORTMAP};
use super::rpc::RpcCall;
use super::xdr::{Xdr, XdrWriter};
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

/// What stands behind the status of a procedure that was done; else the status, behind which nothing of interest is.
fn done<T>(
    from: &mut Xdr<'_>,
    read: impl FnOnce(&mut Xdr<'_>) -> Option<T>,
) -> Option<Result<T, u32>> {
    match from.u32()? {
        0 => read(from).map(Ok),
        status => Some(Err(status)),
    }
}

/// Which TCP port has MOUNT, version 3? 0: none.
pub fn mount_port() -> RpcCall<u16> {
    port(MOUNT)
}

/// Which TCP port has NFS, version 3? 0: none.
pub fn nfs_port() -> RpcCall<u16> {
    port(NFS)
}

fn port(program: u32) -> RpcCall<u16> {
    const TCP: u32 = 6;
    let read = |from: &mut Xdr<'_>| u16::try_from(from.u32()?).ok().map(Ok);
    RpcCall::new([PORTMAP, 2, 3], read, |to| to.u32s(&[program, 3, TCP, 0]))
}

/// The handle of an exported folder.
pub fn mount(export: &str) -> RpcCall<Handle> {
    let read = |from: &mut Xdr<'_>| done(from, Handle::read);
    RpcCall::new([MOUNT, 3, 1], read, |to| to.opaque(export.as_bytes()))
}

/// The folder is not used any more.
pub fn unmount(export: &str) -> RpcCall<()> {
    let read = |_: &mut Xdr<'_>| Some(Ok(()));
    RpcCall::new([MOUNT, 3, 3], read, |to| to.opaque(export.as_bytes()))
}

/// Which folders are exported?
pub fn exports() -> RpcCall<Vec<String>> {
    let read = |from: &mut Xdr<'_>| {
        let mut all = Vec::new();
        while from.bool()? {
            all.push(String::from_utf8_lossy(from.opaque(PATH)?).into_owned());
            // Who may mount it.
            while from.bool()? {
                from.opaque(PATH)?;
            }
        }
        Some(Ok(all))
    };
    RpcCall::new([MOUNT, 3, 5], read, |_| {})
}

/// The largest read and write that a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSizes {
    /// Of a READ.
    pub read: Bytes,
    /// Of a WRITE.
    pub write: Bytes,
}

/// What does the server take?
pub fn fs_info(folder: &Handle) -> RpcCall<TransferSizes> {
    fn sizes(from: &mut Xdr<'_>) -> Option<TransferSizes> {
        from.skip_optional(ATTRIBUTES)?;
        let mut size = || from.u32().map(|most| Bytes(most.into()));
        let read = size()?;
        // The one preferred, and of what it is best a multiple.
        let (_, _) = (size()?, size()?);
        let write = size()?;
        Some(TransferSizes { read, write })
    }
    let read = |from: &mut Xdr<'_>| done(from, sizes);
    RpcCall::new([NFS, 3, 19], read, |to| to.opaque(&folder.0))
}

/// Creates a file that must not exist yet, for its owner alone; `None`: created, but its handle is not in the reply.
pub fn create(folder: &Handle, name: &str) -> RpcCall<Option<Handle>> {
    let read = |from: &mut Xdr<'_>| {
        done(from, |from| match from.bool()? {
            true => Handle::read(from).map(Some),
            false => Some(None),
        })
    };
    RpcCall::new([NFS, 3, 8], read, |to| {
        const GUARDED: u32 = 1;
        to.opaque(&folder.0);
        to.opaque(name.as_bytes());
        // The mode is set; owner, group, size and both times are left to the server.
        to.u32s(&[GUARDED, 1, 0o600, 0, 0, 0, 0, 0]);
    })
}

/// The handle behind a name.
pub fn lookup(folder: &Handle, name: &str) -> RpcCall<Handle> {
    let read = |from: &mut Xdr<'_>| done(from, Handle::read);
    RpcCall::new([NFS, 3, 3], read, |to| named(to, folder, name))
}

/// Removes a file.
pub fn remove(folder: &Handle, name: &str) -> RpcCall<()> {
    let read = |from: &mut Xdr<'_>| done(from, |_| Some(()));
    RpcCall::new([NFS, 3, 12], read, |to| named(to, folder, name))
}

fn named(to: &mut XdrWriter<'_>, folder: &Handle, name: &str) {
    to.opaque(&folder.0);
    to.opaque(name.as_bytes());
}

/// Writes; the server may keep it in memory. How much of it was written comes back.
pub fn write(file: &Handle, offset: u64, data: &[u8]) -> RpcCall<Bytes> {
    let read = |from: &mut Xdr<'_>| {
        done(from, |from| {
            skip_change(from)?;
            from.u32().map(|count| Bytes(count.into()))
        })
    };
    let size = u32::try_from(data.len()).expect("a block is below 4 GiB");
    RpcCall::new([NFS, 3, 7], read, |to| {
        to.opaque(&file.0);
        to.u64(offset);
        to.u32s(&[size, 0]);
        to.opaque(data);
    })
}

/// Has everything written put on stable storage.
pub fn commit(file: &Handle) -> RpcCall<()> {
    let read = |from: &mut Xdr<'_>| done(from, |_| Some(()));
    RpcCall::new([NFS, 3, 21], read, |to| {
        to.opaque(&file.0);
        to.u32s(&[0, 0, 0]);
    })
}
