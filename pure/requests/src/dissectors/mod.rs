//! What is spoken on a connection: where messages begin and end, and what they are.

mod iscsi;
mod nfs;
mod rpc;
mod smb;

use std::borrow::Cow;
use std::fmt;

/// Bytes of a message that are kept to be decoded.
pub(crate) const KEPT: usize = 768;
/// A longer message is none (the largest READ of NFS and SMB is below).
const LONGEST: u64 = 1 << 26;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dissector {
    /// ONC RPC over TCP (RFC 5531).
    Rpc,
    /// SMB 2 and 3 ([MS-SMB2]).
    Smb,
    /// iSCSI (RFC 7143).
    Iscsi(iscsi::Digests),
    /// Anything else: a request is what the client sends until the server does.
    Plain,
}

/// A part of a message that says its own length.
pub(crate) struct MessagePart {
    /// Bytes in front of the body that are no part of it.
    pub head: usize,
    /// Bytes behind those.
    pub body: u64,
    /// The message ends with it.
    pub last: bool,
}

/// What a message is to the request that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MessageRole {
    Call,
    /// Further data of a call.
    MoreOfCall,
    /// Data of a reply that goes on.
    PartOfReply,
    Reply,
    /// The server requests the data of a call.
    Turn,
    /// No part of a request.
    #[default]
    Aside,
}

/// A message.
#[derive(Default)]
pub(crate) struct RequestMessage {
    pub role: MessageRole,
    /// Joins a reply to its call; `None` where only their order does.
    pub key: Option<u64>,
    /// What a call asks.
    pub what: CallContent,
}

impl RequestMessage {
    fn call(
        key: Option<u64>,
        operation: impl Into<Cow<'static, str>>,
        purpose: &'static str,
        detail: impl Into<CallDetail>,
    ) -> RequestMessage {
        let (operation, detail) = (operation.into(), detail.into());
        RequestMessage {
            role: MessageRole::Call,
            key,
            what: CallContent {
                operation,
                purpose,
                detail,
                compound: None,
            },
        }
    }

    fn of(role: MessageRole, key: u64) -> RequestMessage {
        RequestMessage {
            role,
            key: Some(key),
            ..RequestMessage::default()
        }
    }
}

/// Of what a call asks it; only of few calls it is ever put into words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallDetail {
    Text(String),
    Range {
        offset: u64,
        bytes: u32,
        how: &'static str,
    },
    /// All from here to the end.
    From(u64),
}

impl Default for CallDetail {
    fn default() -> CallDetail {
        CallDetail::Text(String::new())
    }
}

impl From<String> for CallDetail {
    fn from(text: String) -> CallDetail {
        CallDetail::Text(text)
    }
}

impl fmt::Display for CallDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallDetail::Text(text) => f.write_str(text),
            CallDetail::Range { offset, bytes, how } => write!(f, "{bytes} bytes at {offset}{how}"),
            CallDetail::From(0) => f.write_str("all of it"),
            CallDetail::From(offset) => write!(f, "all from {offset} on"),
        }
    }
}

/// What a call asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallContent {
    pub operation: Cow<'static, str>,
    pub purpose: &'static str,
    pub detail: CallDetail,
    /// Operations of NFSv4, of which the reply may show more than the call.
    compound: Option<Box<nfs::Compound>>,
}

impl CallContent {
    pub fn plain() -> CallContent {
        CallContent {
            operation: "request".into(),
            ..CallContent::default()
        }
    }

    /// Learns from the beginning of the reply.
    pub fn answered(&mut self, body: &[u8]) {
        if let Some(compound) = &mut self.compound
            && let Some(results) = rpc::results(body)
            && compound.answered(results)
        {
            let (operation, purpose) = compound.named();
            (self.operation, self.purpose) = (operation.into(), purpose);
        }
    }
}

impl Dissector {
    /// What a server is known for that has this port.
    pub fn by_port(port: u16) -> Option<Dissector> {
        Some(match port {
            111 | 2049 | 20048 => Dissector::Rpc,
            139 | 445 => Dissector::Smb,
            3260 => Dissector::Iscsi(iscsi::Digests::default()),
            _ => return None,
        })
    }

    /// What a stream of an unknown port may be, by its first bytes.
    pub fn guess(bytes: &[u8]) -> Dissector {
        let known = [Dissector::Rpc, Dissector::Smb].into_iter();
        let mut fits = known.filter(|dissector| dissector.begins(bytes));
        fits.next().unwrap_or(Dissector::Plain)
    }

    /// Whether a message seems to begin here.
    pub fn begins(self, bytes: &[u8]) -> bool {
        match self {
            Dissector::Rpc => rpc::begins(bytes),
            Dissector::Smb => smb::begins(bytes),
            Dissector::Iscsi(_) => iscsi::begins(bytes),
            Dissector::Plain => false,
        }
    }

    /// Bytes that say how long a piece is.
    pub fn head(self) -> usize {
        match self {
            Dissector::Rpc | Dissector::Smb => 4,
            Dissector::Iscsi(_) => iscsi::HEAD,
            Dissector::Plain => 0,
        }
    }

    /// The piece that begins with this head; `None`: it cannot be one.
    pub fn piece(self, head: &[u8]) -> Option<MessagePart> {
        let piece = match self {
            Dissector::Rpc => rpc::piece(head),
            Dissector::Smb => smb::piece(head),
            Dissector::Iscsi(digests) => iscsi::piece(head, digests),
            Dissector::Plain => None,
        };
        piece.filter(|piece| piece.body <= LONGEST)
    }

    /// The message with this body, or what is there of it; `None`: it is none of this protocol.
    pub fn message(&mut self, body: &[u8], from_client: bool) -> Option<RequestMessage> {
        // Empty, or cut before what names it.
        if body.len() < 4 {
            return Some(RequestMessage::default());
        }
        match self {
            Dissector::Rpc => rpc::message(body, from_client),
            Dissector::Smb => smb::message(body, from_client),
            Dissector::Iscsi(digests) => iscsi::message(body, digests),
            Dissector::Plain => None,
        }
    }
}

/// How much, of where: as the details of reads and writes say it.
fn range(offset: u64, bytes: u32) -> CallDetail {
    CallDetail::Range {
        offset,
        bytes,
        how: "",
    }
}
