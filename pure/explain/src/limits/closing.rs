//! The connection is being closed, and nothing is left to send.

use crate::moment::{Moment, Stage};

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.stage == Stage::Closing
}
