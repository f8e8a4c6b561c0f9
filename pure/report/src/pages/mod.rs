//! What the pages say, one kind a file.

mod run;

pub use run::run;
