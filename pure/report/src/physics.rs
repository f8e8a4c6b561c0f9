//! What a path needs at the very least for a block, in words: one column for each size of packet.

use crate::prelude::*;
use crate::words::table;
use model::physics::Ideal;

/// The document; `docs/json.md` has its keys.
pub fn json(ideals: &[Ideal]) -> String {
    pretty(&document!(ideals))
}

/// For people; of one block over paths that differ in their MTU.
pub fn text(ideals: &[Ideal], style: Style) -> String {
    let Some(first) = ideals.first() else {
        return String::new();
    };
    let path = &first.path;
    let links = match path.hops {
        1 => "a link".to_owned(),
        hops => format!("{hops} links that store and forward,"),
    };
    let head = format!(
        "{} over {links} of {}, round trip {}: at best {} with packets of {} bytes.",
        first.bytes, path.rate, path.rtt, first.time, path.mtu
    );
    let rows = ROWS.iter().map(|(name, cell)| {
        let cells = ideals.iter().map(cell);
        [(*name).to_owned()].into_iter().chain(cells).collect()
    });
    let compared = compared(ideals).map(|text| format!("\n{}", style.prose(&text)));
    format!("{}\n{}", style.bold(&head), table(&[], rows)) + &compared.unwrap_or_default()
}

type Row = (&'static str, fn(&Ideal) -> String);

const ROWS: [Row; 16] = [
    ("MTU", |i| i.path.mtu.to_string()),
    ("frames", |i| {
        format!("{} of up to {} bytes", i.frames, i.mss)
    }),
    ("bytes on each link", |i| i.wire_bytes.0.to_string()),
    ("put on the first link", |i| i.serialisation.to_string()),
    ("stored before the others", |i| passes(i.store_and_forward)),
    ("propagation", |i| passes(i.propagation)),
    ("waiting for the window", |i| passes(i.window_wait)),
    ("has arrived after", |i| i.time.to_string()),
    ("acknowledged after", |i| i.acknowledged.to_string()),
    ("such blocks one by one", |i| i.alone.to_string()),
    ("an endless transfer", |i| i.bulk.to_string()),
    ("window that it needs", |i| i.needed_window.to_string()),
    ("new connection: handshake", |i| {
        passes(i.new_connection.handshake)
    }),
    ("  waiting in slow start", |i| {
        match i.new_connection.rounds.into() {
            0 => "-".to_owned(),
            n => format!("{} in {}", i.new_connection.slow_start, counted(n, "round")),
        }
    }),
    ("  has arrived after", |i| i.new_connection.time.to_string()),
    ("Nagle, rest written apart", |i| {
        or(i.nagle.map(|wait| format!("+ {wait}")), "-")
    }),
];

fn passes(time: Nanos) -> String {
    match time.0 {
        0 => "-".to_owned(),
        _ => time.to_string(),
    }
}

/// Which size is better, for one block and for many.
fn compared(ideals: &[Ideal]) -> Option<String> {
    let quick = ideals.iter().min_by_key(|ideal| ideal.time)?;
    let slow = ideals.iter().max_by_key(|ideal| ideal.time)?;
    let dense = ideals.iter().max_by_key(|ideal| ideal.bulk)?;
    let thin = ideals.iter().min_by_key(|ideal| ideal.bulk)?;
    if slow.time == quick.time || dense.bulk == thin.bulk {
        return None;
    }
    let more = |a: f64, b: f64| format!("{:.1} %", 100.0 * (a / b - 1.0));
    let alone = format!(
        "A block alone arrives {} earlier with packets of {} bytes than of {}",
        Nanos(slow.time.0 - quick.time.0),
        quick.path.mtu,
        slow.path.mtu
    );
    let bulk = more(dense.bulk.0 as f64, thin.bulk.0 as f64);
    Some(match quick.path.mtu == dense.path.mtu {
        true => format!("{alone}, and many have {bulk} more of the rate."),
        false => format!(
            "{alone}: larger frames are stored longer on their way. Many have {bulk} more of the rate with {}.",
            dense.path.mtu
        ),
    })
}

#[cfg(test)]
pub(crate) mod tests;
