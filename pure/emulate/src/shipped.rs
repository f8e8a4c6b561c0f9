//! The scenarios in the box.

pub(crate) const ALL: &[(&str, &str)] = &[];
