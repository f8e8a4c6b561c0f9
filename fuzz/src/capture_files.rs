//! Captures from strangers.

/// Any bytes are a capture or not; what was a packet is followed, explained and printed.
pub fn capture(bytes: &[u8]) {
    let mut observer = explain::Observer::new();
    let mut packets = 0;
    let account = capture::read(bytes, &mut |packet| {
        packets += 1;
        observer.see(packet);
    });
    if let Ok(account) = account {
        assert_eq!(account.packets, packets);
        let skipped: u64 = account.skipped.values().sum();
        assert_eq!(account.packets + skipped, account.frames);
    }
    let told = observer.explain(usize::MAX).explanations;
    let text = report::explain::text(&told, None, report::Style::PLAIN);
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "a terminal would obey it"
    );
}
