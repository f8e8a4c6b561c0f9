//! Captures of untrusted origin, from the file to the words of the explanation.

use model::Nanos;
use model::finding::{Explanation, Level};
use model::packet::Packet;
use model::request::{Links, Requests};

/// Any bytes are a capture or not; what was a packet is followed, explained and printed.
pub fn capture(bytes: &[u8]) {
    let mut observer = explain::CaptureObserver::default();
    let mut packets = 0;
    let account = capture::read(bytes, |packet| {
        packets += 1;
        observer.push(packet);
    });
    if let Ok(account) = account {
        assert_eq!(account.packets, packets);
        let skipped: u64 = account.skipped.values().sum();
        assert_eq!(account.packets + skipped, account.frames);
        check_text(&account.left_out().join("\n"));
    }
    let account = observer.explain();
    for one in &account.streams {
        assert!(one.retransmissions + one.reordered <= one.segments);
        assert!(one.needless_retransmissions <= one.retransmissions);
    }
    check(&account.explanations);
    check_text(&account.doubts.join("\n"));
}

/// Any bytes are a capture or not; the requests in it are named, divided and printed.
pub fn requests(bytes: &[u8]) {
    let mut observer = ::requests::RequestObserver::default();
    let see = |packet: &Packet, payload: &[u8]| {
        assert!(payload.len() <= packet.payload as usize);
        observer.push(packet, payload);
    };
    // As far as it goes.
    let _ = capture::read_with_payload(bytes, see);
    check_requests(&observer.finish());
}

/// Any text is a listing or not; its lines are put in order, explained, and their requests paired.
pub fn listing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let listing = explain::read_listing(&text);
    assert!(listing.rows.is_sorted_by_key(|row| row.packet.at));
    check(&[explain::explain_listing("listing", &listing)]);
    check_requests(&::requests::listed(&text, Links::default()));
}

fn check_requests(requests: &Requests) {
    for call in &requests.calls {
        assert_eq!(call.parts.total(), call.causes.total());
    }
    let counted: u64 = requests.operations.iter().map(|o| o.count).sum();
    assert_eq!(counted, requests.answered);
    check_text(&report::requests::text(requests, report::Style::PLAIN));
    serde_json::from_str::<serde_json::Value>(&report::json::pretty(requests))
        .expect("what is written is JSON");
}

/// The first two bytes choose the link type, the rest is a frame.
pub fn frame(bytes: &[u8]) {
    let [high, low, frame @ ..] = bytes else {
        return;
    };
    let link = i32::from(u16::from_be_bytes([*high, *low]));
    let whole = capture::packet(link, frame, Nanos(1));
    // What the capture cut off may hide something, and never changes what is there.
    for end in [frame.len() / 2, frame.len().saturating_sub(1)] {
        if let (Ok(part), Ok(whole)) = (capture::packet(link, &frame[..end], Nanos(1)), &whole)
            && part.payload == whole.payload
            && part.from == whole.from
        {
            let known = Packet {
                wscale: whole.wscale,
                mss: whole.mss,
                sack: whole.sack,
                stamps: whole.stamps,
                options_cut: whole.options_cut,
                ..part
            };
            assert_eq!(known, *whole);
        }
    }
}

/// Any bytes are a trace in one of its forms, or not.
pub fn trace(bytes: &[u8]) {
    let known = observe::trace::is_trace(bytes);
    if let Ok(records) = observe::trace::open(bytes) {
        let mut watcher = explain::TraceWatcher::default();
        let mut read = 0;
        for record in records.map_while(Result::ok) {
            read += 1;
            watcher.push(record);
        }
        assert!(known || read == 0 || bytes.starts_with(b"{"));
        check(&watcher.explain());
    }
}

/// The blocks of a trace as the probes write them, behind the head of this version.
pub fn trace_blocks(bytes: &[u8]) {
    trace(&[&observe::trace::any_head(), bytes].concat());
}

fn check(explanations: &[Explanation]) {
    for one in explanations {
        let first = one.findings.iter().filter(|f| f.level == Level::First);
        let shares: f64 = first.map(|f| f.share.time_share).sum();
        assert!(shares <= 1.001, "{shares} of the time of {}", one.name);
        assert!(one.phases.is_sorted_by_key(|phase| phase.from));
    }
    check_text(&report::explain::text(
        explanations,
        None,
        report::Style::PLAIN,
    ));
    serde_json::from_str::<serde_json::Value>(&report::explain::json(explanations, None))
        .expect("what is written is JSON");
}

fn check_text(text: &str) {
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "a terminal would obey it"
    );
}
