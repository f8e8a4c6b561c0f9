//! What a person reads at the end of a run.

use crate::words::{self, Style, escape};
use model::{Run, Summary};

/// The summary of a run in words and a small table, at most `style.width` columns wide.
pub fn summary(run: &Run, summary: &Summary, style: Style) -> String {
    let host = escape(&run.host);
    summary
        .legs
        .iter()
        .map(|leg| {
            let line = format!("{:<5} {} ({host})", leg.direction, leg.goodput);
            words::wrap(&line, style.width, "", "      ")
        })
        .collect()
}
