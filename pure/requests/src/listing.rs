//! Requests of a listing: there are sizes and directions alone, and the times of one end.

use crate::RequestObserver;
use crate::dissectors::CallContent;
use crate::pairing::SeenRequest;
use crate::socket::TracedSocket;
use model::request::{Links, Requests};
use tcp::listing::{ENDS, LineOrder, Listing};

/// Replies of NFSv3 by their size with that of the record mark, attributes included (RFC 1813): name, what for.
/// A WRITE or COMMIT has no attributes from before it, as Solaris and nfs-ganesha answer them.
const BY_REPLY: [(u64, &str, &str); 8] = [
    (28, "NULL", "asks whether the server is there"),
    (116, "GETATTR", "reads attributes"),
    (124, "ACCESS", "asks what is allowed"),
    (132, "COMMIT", "puts written data on stable storage"),
    (140, "WRITE", "writes data"),
    (148, "SETATTR", "sets attributes"),
    (168, "FSINFO", "reads the server's limits"),
    (244, "LOOKUP", "finds a name in a directory"),
];
/// What stands before the data in the reply to a READ.
const READ_HEAD: u64 = 132;
/// Data come in blocks of so many bytes.
const BLOCK: u64 = 512;

const SIZES: &str = "a listing has only sizes and directions: the RTT is the shortest time from a sent segment to a received one";
const NAMED: &str = "the calls are named by the sizes of their replies, which are those of NFSv3";
const DISORDER: &str = "the lines are of several processors and have no timestamps, so requests and replies cannot be paired; print them with timestamps";

/// The requests of a listing.
pub fn listed(text: &str, links: Links) -> Requests {
    requests(&tcp::listing::read(text), links)
}

fn requests(listing: &Listing, links: Links) -> Requests {
    let mut observer = RequestObserver::of_two().on(links);
    if listing.order == LineOrder::Unknown {
        let mut found = observer.finish();
        found.doubts.push(DISORDER.to_owned());
        return found;
    }
    let mut socket = TracedSocket::new(ENDS);
    for row in &listing.rows {
        observer.mark(&row.packet);
        socket.packet(&row.packet, None, None, &mut observer.out);
        observer.settle();
    }
    socket.close(&mut observer.out);
    observer.close();
    let mut seen: Vec<&mut SeenRequest> = observer
        .kept
        .iter_mut()
        .flat_map(|kept| &mut kept.seen)
        .collect();
    let names: Option<Vec<CallContent>> =
        seen.iter().map(|seen| by_size(seen.reply.bytes)).collect();
    let names = names.unwrap_or_default();
    let named = !names.is_empty();
    seen.iter_mut()
        .zip(names)
        .for_each(|(seen, what)| seen.what = what);
    let mut found = observer.finish();
    found.doubts.push(SIZES.to_owned());
    found.doubts.extend(named.then(|| NAMED.to_owned()));
    found
}

/// What a reply of this size is, if all are of NFSv3.
fn by_size(reply: u64) -> Option<CallContent> {
    let known = BY_REPLY.iter().find(|(size, ..)| *size == reply);
    let read = reply
        .checked_sub(READ_HEAD)
        .filter(|data| *data > 0 && data % BLOCK == 0);
    let (name, purpose, detail) = match (known, read) {
        (Some((_, name, purpose)), _) => (*name, *purpose, String::new()),
        (None, Some(data)) => ("READ", "reads data", format!("{data} bytes")),
        (None, None) => return None,
    };
    let mut what = CallContent::plain();
    what.operation = format!("NFSv3 {name}").into();
    (what.purpose, what.detail) = (purpose, detail.into());
    Some(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcp::listing::read;

    /// The read of 8 KiB that was printed: microseconds to the line before, and bytes, those received below zero.
    const READ: [(u64, i64); 21] = [
        (0, -132),
        (281, 124),
        (248, 0),
        (37, -140),
        (56, 244),
        (185, -140),
        (84, 244),
        (165, -132),
        (48, 124),
        (204, -140),
        (116, 132),
        (33, 1448),
        (21, 1448),
        (17, 1448),
        (17, 1448),
        (34, 1448),
        (19, 952),
        (100, 0),
        (13, 0),
        (119, 0),
        (39_933, 0),
    ];

    fn listing(order: LineOrder) -> Listing {
        let line = |(us, bytes): &(u64, i64)| match bytes {
            1.. => format!("{us} 3904 845 {bytes} -->\n"),
            _ => format!("{us} 3904 845 <-- {}\n", -bytes),
        };
        let lines: String = READ.iter().map(line).collect();
        Listing {
            order,
            ..read(&lines)
        }
    }

    #[test]
    fn each_call_of_a_read_is_named_and_timed_and_what_is_idle_is_in_none() {
        let found = requests(&listing(LineOrder::Printed), Links::default());
        let calls: Vec<_> = found
            .calls
            .iter()
            .map(|call| {
                (
                    &call.operation[..],
                    call.parts.think.0 / 1000,
                    call.parts.reply_send.0 / 1000,
                )
            })
            .collect();
        assert_eq!(
            calls,
            [
                ("NFSv3 ACCESS", 281, 0),
                ("NFSv3 LOOKUP", 56, 0),
                ("NFSv3 LOOKUP", 84, 0),
                ("NFSv3 ACCESS", 48, 0),
                ("NFSv3 READ", 116, 141),
            ]
        );
        assert_eq!(found.calls[4].detail, "8192 bytes");
    }

    #[test]
    fn no_ideal_is_above_what_was_measured() {
        // 8 KiB passed in 0.3 ms: the links are faster than their given rate.
        let rate = Some(model::BitRate(10_000_000));
        let found = requests(&listing(LineOrder::Printed), Links { rate, hops: 1 });
        for call in &found.calls {
            assert!(call.ideal <= call.parts.total(), "{call:?}");
        }
        for of in &found.operations {
            assert!(of.ideal <= of.parts.total(), "{of:?}");
        }
    }

    #[test]
    fn lines_in_no_order_have_no_requests() {
        let found = requests(&listing(LineOrder::Unknown), Links::default());
        assert_eq!(
            (found.answered, &found.doubts[..]),
            (0, &[DISORDER.to_owned()][..])
        );
    }
}
