//! What the tests of several files share.

pub(crate) mod testing;
