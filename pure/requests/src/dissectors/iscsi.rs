//! iSCSI (RFC 7143): a header of 48 bytes, then data; a task tag joins all that belongs to one command.

use super::{CallDetail, MessagePart, MessageRole, RequestMessage};

pub(super) const HEAD: usize = 48;

/// Checksums behind headers and data, as the login agreed on them (RFC 7143, 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    header: bool,
    data: bool,
    /// What is agreed on holds from the end of the login on.
    agreed: (bool, bool),
}

/// SCSI commands by their operation code (https://www.t10.org/lists/op-num.htm), with what they are for.
const COMMANDS: [(u8, &str, &str); 33] = [
    (0x00, "TEST UNIT READY", "is the disk there?"),
    (0x03, "REQUEST SENSE", "what went wrong"),
    (0x08, "READ(6)", "reads blocks"),
    (0x0a, "WRITE(6)", "writes blocks"),
    (0x12, "INQUIRY", "what disk is it?"),
    (0x1a, "MODE SENSE(6)", "how the disk is set up"),
    (0x1b, "START STOP UNIT", "starts or stops the disk"),
    (0x25, "READ CAPACITY(10)", "how large is the disk?"),
    (0x28, "READ(10)", "reads blocks"),
    (0x2a, "WRITE(10)", "writes blocks"),
    (0x35, "SYNCHRONIZE CACHE(10)", "puts written data on disk"),
    (0x2e, "WRITE AND VERIFY(10)", "writes and verifies blocks"),
    (0x2f, "VERIFY(10)", "can these blocks be read?"),
    (0x41, "WRITE SAME(10)", "writes a pattern"),
    (0x42, "UNMAP", "these blocks are not needed"),
    (0x5a, "MODE SENSE(10)", "how the disk is set up"),
    (0x5e, "PERSISTENT RESERVE IN", "who reserved the disk?"),
    (0x5f, "PERSISTENT RESERVE OUT", "reserves the disk"),
    (0x88, "READ(16)", "reads blocks"),
    (0x89, "COMPARE AND WRITE", "writes a block if it compares"),
    (0x8a, "WRITE(16)", "writes blocks"),
    (0x8b, "ORWRITE(16)", "adds bits to blocks"),
    (0x8e, "WRITE AND VERIFY(16)", "writes and verifies blocks"),
    (0x8f, "VERIFY(16)", "can these blocks be read?"),
    (0x93, "WRITE SAME(16)", "writes a pattern"),
    (0x91, "SYNCHRONIZE CACHE(16)", "puts written data on disk"),
    (0x9e, "READ CAPACITY(16)", "how large is the disk?"),
    (0xa0, "REPORT LUNS", "which disks are there?"),
    (0xa8, "READ(12)", "reads blocks"),
    (0xaa, "WRITE(12)", "writes blocks"),
    (0xae, "WRITE AND VERIFY(12)", "writes and verifies blocks"),
    (0xaf, "VERIFY(12)", "can these blocks be read?"),
    (0xa3, "MAINTENANCE IN", "what the disk can do"),
];

fn opcode(first: u8) -> u8 {
    first & 0x3f
}

pub(super) fn begins(bytes: &[u8]) -> bool {
    // Reserved and vendor codes are not met; additional headers are rare and short.
    bytes.len() >= HEAD
        && matches!(opcode(bytes[0]), 0..=6 | 0x10 | 0x20..=0x26 | 0x31 | 0x32 | 0x3f)
        && bytes[0] & 0x80 == 0
        && bytes[4] <= 4
}

pub(super) fn piece(head: &[u8], digests: Digests) -> Option<MessagePart> {
    let head: &[u8; HEAD] = head.first_chunk()?;
    let data = u64::from(u32::from_be_bytes([0, head[5], head[6], head[7]]));
    let digest = |there: bool| if there { 4 } else { 0 };
    let size = HEAD as u64
        + u64::from(head[4]) * 4
        + digest(digests.header)
        + data.next_multiple_of(4)
        + digest(digests.data && data > 0);
    begins(head).then_some(MessagePart {
        head: 0,
        body: size,
        last: true,
    })
}

pub(super) fn message(body: &[u8], digests: &mut Digests) -> Option<RequestMessage> {
    let head: &[u8; HEAD] = body.first_chunk()?;
    let tag = u64::from(u32::from_be_bytes([head[16], head[17], head[18], head[19]]));
    // The tag that is none.
    if tag == 0xffff_ffff {
        return Some(RequestMessage::default());
    }
    let call = |operation: &str, purpose| {
        let operation = format!("iSCSI {operation}");
        Some(RequestMessage::call(
            Some(tag),
            operation,
            purpose,
            CallDetail::default(),
        ))
    };
    let role = match opcode(head[0]) {
        0x00 => return call("NOP", "is the target there?"),
        0x01 => return command(head, tag),
        0x02 => return call("task management", "gives up commands"),
        0x03 => return call("login", "the initiator logs in"),
        0x04 => return call("text", "which targets are there?"),
        0x06 => return call("logout", "the initiator logs out"),
        0x05 => MessageRole::MoreOfCall,
        // Data with the S bit carry the status too (11.7.3).
        0x25 if head[1] & 1 == 0 => MessageRole::PartOfReply,
        0x31 => MessageRole::Turn,
        0x23 => {
            login(head[1], &body[HEAD..], digests);
            MessageRole::Reply
        }
        0x20..=0x26 | 0x3f => MessageRole::Reply,
        _ => return Some(RequestMessage::default()),
    };
    Some(RequestMessage::of(role, tag))
}

/// What a login response agrees on, and whether it holds now (11.13.3: T and the next stage 3).
fn login(flags: u8, text: &[u8], digests: &mut Digests) {
    let has = |pair: &[u8]| text.windows(pair.len()).any(|part| part == pair);
    digests.agreed.0 |= has(b"HeaderDigest=CRC32C");
    digests.agreed.1 |= has(b"DataDigest=CRC32C");
    if flags & 0x83 == 0x83 {
        (digests.header, digests.data) = digests.agreed;
    }
}

fn command(head: &[u8; HEAD], tag: u64) -> Option<RequestMessage> {
    let block = &head[32..];
    let known = COMMANDS.iter().find(|(code, ..)| *code == block[0]);
    let (operation, purpose) = known.map_or_else(
        || (format!("iSCSI SCSI 0x{:02x}", block[0]), ""),
        |(_, name, purpose)| (format!("iSCSI {name}"), *purpose),
    );
    let number = |at: usize, bytes: usize| {
        let bytes = block[at..at + bytes].iter();
        bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let detail = match block[0] {
        // The group of the code says how long the block is (SPC-4, 4.2.5.1).
        0x28 | 0x2a | 0x2e | 0x2f | 0x35 | 0x41 => {
            format!("{} blocks at {}", number(7, 2), number(2, 4))
        }
        0xa8 | 0xaa | 0xae | 0xaf => format!("{} blocks at {}", number(6, 4), number(2, 4)),
        0x88 | 0x8a | 0x8b | 0x8e | 0x8f | 0x91 | 0x93 => {
            format!("{} blocks at {}", number(10, 4), number(2, 8))
        }
        _ => String::new(),
    };
    Some(RequestMessage::call(Some(tag), operation, purpose, detail))
}
