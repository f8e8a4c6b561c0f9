//! SMB 2 and 3 over TCP ([MS-SMB2]; framing in [MS-SMB2] 2.1).

use super::{CallDetail, MessagePart, MessageRole, RequestMessage, range};

/// Commands by their number (2.2.1), with what they are for.
const COMMANDS: [(&str, &str); 19] = [
    ("NEGOTIATE", "which version is spoken?"),
    ("SESSION_SETUP", "the user logs in"),
    ("LOGOFF", "the user logs out"),
    ("TREE_CONNECT", "connects to a share"),
    ("TREE_DISCONNECT", "the share is not used any more"),
    ("CREATE", "opens or makes a file"),
    ("CLOSE", "the file is not open any more"),
    ("FLUSH", "puts written data on disk"),
    ("READ", "reads data"),
    ("WRITE", "writes data"),
    ("LOCK", "locks or releases a part of a file"),
    ("IOCTL", "something special of the file system"),
    ("CANCEL", "gives up a request"),
    ("ECHO", "is the server there?"),
    ("QUERY_DIRECTORY", "names in a folder"),
    ("CHANGE_NOTIFY", "waits until something in a folder changes"),
    ("QUERY_INFO", "attributes of a file"),
    ("SET_INFO", "changes attributes of a file"),
    ("OPLOCK_BREAK", "gives a right to cache back"),
];
const CANCEL: usize = 12;
const HEADER: usize = 64;
/// More commands than clients put in one message.
const MOST_COMMANDS: usize = 16;
/// STATUS_PENDING: the reply proper comes later.
const PENDING: u32 = 0x103;

pub(super) fn piece(head: &[u8]) -> Option<MessagePart> {
    let [_, a, b, c] = *head.first_chunk()?;
    Some(MessagePart {
        head: 4,
        body: u32::from_be_bytes([0, a, b, c]).into(),
        last: true,
    })
}

pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [0, _, _, _, 0xfc..=0xff, b'S', b'M', b'B', ..])
}

pub(super) fn message(body: &[u8], from_client: bool) -> Option<RequestMessage> {
    let by_order = |operation: &'static str, purpose| match from_client {
        true => RequestMessage::call(None, operation, purpose, CallDetail::default()),
        false => RequestMessage {
            role: MessageRole::Reply,
            ..RequestMessage::default()
        },
    };
    match body {
        [0xfe, b'S', b'M', b'B', ..] => commands(body),
        [0xfd, b'S', b'M', b'B', ..] => Some(by_order("SMB3 encrypted", "")),
        [0xfc, b'S', b'M', b'B', ..] => Some(by_order("SMB3 compressed", "")),
        [0xff, b'S', b'M', b'B', ..] => Some(by_order("SMB1", "which version is spoken?")),
        _ => None,
    }
}

fn commands(body: &[u8]) -> Option<RequestMessage> {
    let mut names = Vec::new();
    let mut purpose = "";
    let mut detail = CallDetail::default();
    let mut at = 0;
    let key = le64(body, 24)?;
    let response = le32(body, 16)? & 1 != 0;
    // What the server says unasked, as that an oplock is broken (3.3.4.6).
    if key == u64::MAX {
        return Some(RequestMessage::default());
    }
    if response {
        let role = match le32(body, 8)? {
            PENDING => MessageRole::Aside,
            _ => MessageRole::Reply,
        };
        return Some(RequestMessage::of(role, key));
    }
    for _ in 0..MOST_COMMANDS {
        let Some(one) = body.get(at..).filter(|one| one.len() >= HEADER) else {
            break;
        };
        let number = usize::from(u16::from_le_bytes([one[12], one[13]]));
        let (name, what) = COMMANDS.get(number).copied().unwrap_or(("unknown", ""));
        if number == CANCEL && names.is_empty() {
            return Some(RequestMessage::default());
        }
        if names.is_empty() {
            purpose = what;
        }
        names.push(name);
        let asked = match name {
            "READ" | "WRITE" => le32(one, HEADER + 4)
                .zip(le64(one, HEADER + 8))
                .map(|(bytes, offset)| range(offset, bytes)),
            "CREATE" => text(one, HEADER + 44).map(CallDetail::Text),
            "TREE_CONNECT" => text(one, HEADER + 4).map(CallDetail::Text),
            _ => None,
        };
        detail = asked.unwrap_or(detail);
        match le32(one, 20)? as usize {
            0 => break,
            next => at += next,
        }
    }
    let operation = format!("SMB2 {}", names.join("+"));
    Some(RequestMessage::call(Some(key), operation, purpose, detail))
}

/// The text of which the place and the length stand here.
fn text(one: &[u8], at: usize) -> Option<String> {
    let [a, b, c, d] = *one.get(at..)?.first_chunk()?;
    let (place, length) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    let bytes = one.get(usize::from(place)..)?.get(..usize::from(length))?;
    let pairs = bytes.as_chunks().0.iter();
    let units: Vec<u16> = pairs.map(|pair| u16::from_le_bytes(*pair)).collect();
    Some(String::from_utf16_lossy(&units))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
