//! What a load reads from or writes to at one end: memory or files.

mod blocks;
mod copy;
mod files;

pub use blocks::{Store, open as open_store};
pub use copy::{CopySink, CopySource, sink, source};
pub use files::Reach;

use crate::prelude::*;
use model::Workload;

/// Opens the storage of the leg's sender or receiver, before any connection is made for it; `None`: it has none.
///
/// # Errors
/// A file that is missing, taken, too small or out of reach.
pub fn open(workload: &Workload, sender: bool, reach: &Reach) -> Result<Option<Storage>, Error> {
    Ok(match (workload, sender) {
        (Workload::Copy(order), true) => Some(Storage::Source(source(order, reach)?.into())),
        (Workload::Copy(order), false) => Some(Storage::Sink(sink(order, reach)?.into())),
        (Workload::Blocks(order), false) => Some(Storage::Store(open_store(order, reach)?.into())),
        _ => None,
    })
}

/// What is read or written at this end of a load.
#[derive(Clone)]
pub enum Storage {
    /// A copy comes from here.
    Source(Arc<dyn CopySource>),
    /// A copy goes here.
    Sink(Arc<dyn CopySink>),
    /// The blocks that the peer requests.
    Store(Arc<dyn Store>),
}
