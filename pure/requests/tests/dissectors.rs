//! Recordings of real peers, of 256 bytes a packet: nfs-ganesha 4.3 with clients of NFSv3 and v4.1, and
//! with `cli/tests/common/nfs4.py` for v4.0 and v4.2, Samba 4.17 with
//! smbclient, tgt 1.0.85 with libiscsi 1.19.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use linerate_requests::RequestObserver;
use model::request::{Cause, Requests};

fn requests(file: &[u8]) -> Requests {
    let mut observer = RequestObserver::default();
    capture::read_with_payload(file, |packet, payload| observer.push(packet, payload)).unwrap();
    let found = observer.finish();
    for call in &found.calls {
        assert_eq!(call.parts.total(), call.causes.total(), "{call:#?}");
        let last = call.steps.last().unwrap();
        assert!(last.at + last.took <= call.parts.total(), "{call:#?}");
        let bytes: u64 = call.steps.iter().map(|step| step.bytes.0).sum();
        assert_eq!(bytes, (call.call_bytes + call.reply_bytes).0);
    }
    found
}

/// The calls, one a line: operation, detail, sizes.
fn calls(found: &Requests) -> String {
    let line = |call: &model::request::Call| {
        let (sent, came) = (call.call_bytes.0, call.reply_bytes.0);
        format!("{} [{}] {sent} -> {came}\n", call.operation, call.detail)
    };
    found.calls.iter().map(line).collect()
}

const NFS3: &[u8] = include_bytes!("captures/nfs3.pcap");

#[test]
fn nfs_version_3() {
    let found = requests(NFS3);
    insta::assert_snapshot!(calls(&found));
    assert_eq!((found.answered, found.unanswered), (17, 0));
    // The time before the last byte of the call counts: it had to wait for the window.
    let write = found
        .operations
        .iter()
        .find(|o| o.operation == "NFSv3 WRITE");
    let longest = &write.unwrap().worst[0];
    assert_eq!(longest.call_bytes.0, 1_048_732);
    assert!(longest.parts.call_send.0 > 800_000);
    assert!(longest.causes.of(Cause::ReceiveWindow).0 > 500_000);
}

#[test]
fn nfs_version_4_1() {
    insta::assert_snapshot!(calls(&requests(include_bytes!("captures/nfs41.pcap"))));
}

#[test]
fn nfs_version_4_0_and_4_2() {
    insta::assert_snapshot!(calls(&requests(include_bytes!("captures/nfs40.pcap"))));
    insta::assert_snapshot!(calls(&requests(include_bytes!("captures/nfs42.pcap"))));
}

#[test]
fn smb() {
    insta::assert_snapshot!(calls(&requests(include_bytes!("captures/smb.pcap"))));
}

#[test]
fn iscsi() {
    let found = requests(include_bytes!("captures/iscsi.pcap"));
    let names: Vec<_> = found
        .operations
        .iter()
        .map(|o| (&o.operation[..], o.count))
        .collect();
    insta::assert_debug_snapshot!(names);
    // The beginning of ALL.Write10.Simple of iscsi-test-cu: the data come with the command, or on request (R2T).
    insta::assert_snapshot!(calls(&self::requests(include_bytes!(
        "captures/iscsi-write.pcap"
    ))));
}

#[test]
fn a_capture_that_begins_anywhere_and_is_cut_names_what_it_can() {
    let frames = 24;
    let mut file = NFS3[..frames].to_vec();
    let mut rest = &NFS3[frames..];
    let mut packets = Vec::new();
    while let Some(head) = rest.first_chunk::<16>() {
        let length = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let (packet, behind) = rest.split_at(16 + length);
        packets.push(packet);
        rest = behind;
    }
    // Without the handshakes, and with every seventh packet missing from the capture.
    for (n, packet) in packets.iter().enumerate().skip(6) {
        if n % 7 != 0 {
            file.extend(*packet);
        }
    }
    let found = requests(&file);
    assert!((6..17).contains(&found.answered), "{}", calls(&found));
    let known = calls(&whole());
    for line in calls(&found).lines() {
        let name = line.split(" [").next().unwrap();
        assert!(known.contains(name), "{line}");
    }
}

fn whole() -> Requests {
    requests(NFS3)
}
