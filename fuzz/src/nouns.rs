//! What people write, and what files hold.

use model::{BitRate, Bytes, Nanos, Run};

pub fn units(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(amount) = text.parse::<Bytes>() {
        assert_eq!(amount.0.to_string().parse(), Ok(amount));
        let _ = amount.to_string();
    }
    if let Ok(rate) = text.parse::<BitRate>() {
        assert_eq!(rate.0.to_string().parse(), Ok(rate));
        let _ = rate.to_string();
    }
    if let Ok(span) = text.parse::<Nanos>() {
        assert_eq!(format!("{}ns", span.0).parse(), Ok(span));
        let _ = span.to_string();
    }
}

/// A run from a file: sums up, is explained, prints, and is written in the form that was read.
pub fn run(bytes: &[u8]) {
    let Ok(run) = serde_json::from_slice::<Run>(bytes) else {
        return;
    };
    let summary = model::summarise(&run);
    let why = explain::explain(&run);
    let text = report::summary(&run, &summary, &why, report::Style::PLAIN)
        + &report::explain::text(&why, Some(&run.host), report::Style::PLAIN);
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "a terminal would obey it"
    );
    let written = serde_json::to_vec(&run).expect("a run is always written");
    let again: Run = serde_json::from_slice(&written).expect("what was written is read");
    assert_eq!(again, run);
}
