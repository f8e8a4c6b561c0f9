//! The connection is being opened: SYN sent or received.

use crate::moment::{Moment, Stage};

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.stage == Stage::Opening
}
