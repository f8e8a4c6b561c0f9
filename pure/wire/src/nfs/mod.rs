//! A client of NFSv3 (RFC 1813) as a machine without a socket: single calls to find a server's programs, mount a
//! folder and make a file, and [`Client`], which reads and writes blocks with several calls outstanding.

mod blocks;
mod procedures;
pub mod programs;
mod rpc;
pub mod xdr;

pub use blocks::NfsBlockClient;
pub use procedures::{
    Handle, TransferSizes, commit, create, exports, fs_info, lookup, mount, mount_port, nfs_port,
    remove, unmount, write,
};
pub use rpc::{RpcCall, RpcCalls, RpcCredentials, RpcFailure};

/// Port of the port mapper (RFC 1833), which knows the others.
pub const PORT_MAPPER: u16 = 111;
/// Port of NFS where no port mapper is asked.
pub const DEFAULT_PORT: u16 = 2049;
/// Port that servers without a port mapper give to MOUNT, as a rule.
pub const MOUNT_PORT: u16 = 20_048;
