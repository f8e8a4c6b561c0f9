//! ONC RPC (RFC 5531): records of fragments, each call with a number that its reply repeats.

use super::nfs;
use super::nfs::step;
use super::{CallContent, MessagePart, MessageRole, RequestMessage};
use wire::nfs::xdr::Xdr;

/// Authentication that encrypts what follows: RPCSEC_GSS (RFC 2203).
const GSS: u32 = 6;

pub(super) fn piece(head: &[u8]) -> Option<MessagePart> {
    let mark = Xdr(head).u32()?;
    Some(MessagePart {
        head: 4,
        body: u64::from(mark & 0x7fff_ffff),
        last: mark >> 31 == 1,
    })
}

pub(super) fn begins(bytes: &[u8]) -> bool {
    // Some write the mark by itself.
    if let [0x80, 0, length @ ..] = bytes
        && length.len() == 2
    {
        return true;
    }
    let mut xdr = Xdr(bytes);
    let mut look = || {
        let length = xdr.u32()? & 0x7fff_ffff;
        let _number = xdr.u32()?;
        let kind = xdr.u32()?;
        let next = xdr.u32()?;
        Some(match kind {
            // Version 2, a program that can be one.
            0 => next == 2 && length >= 40 && xdr.u32()? < 0x8000_0000 && xdr.u32()? < 256,
            // Accepted or denied; then a verifier of at most 400 bytes.
            1 if next == 0 => length >= 24 && xdr.u32()? <= GSS && xdr.u32()? <= 400,
            1 => next == 1 && (12..=32).contains(&length),
            _ => false,
        })
    };
    look().unwrap_or(false)
}

pub(super) fn message(body: &[u8], from_client: bool) -> Option<RequestMessage> {
    let mut xdr = Xdr(body);
    let key = u64::from(xdr.u32()?);
    // Where the capture ends before the kind: what an end says as a rule.
    match xdr.u32().unwrap_or(u32::from(!from_client)) {
        0 => Some(RequestMessage {
            role: MessageRole::Call,
            key: Some(key),
            what: call(xdr).unwrap_or_else(|| CallContent {
                operation: "RPC, cut off".into(),
                ..CallContent::default()
            }),
        }),
        1 => Some(RequestMessage::of(MessageRole::Reply, key)),
        _ => None,
    }
}

fn call(mut xdr: Xdr<'_>) -> Option<CallContent> {
    let _version = xdr.u32()?;
    let [program, version, procedure] = [xdr.u32()?, xdr.u32()?, xdr.u32()?];
    let mut arguments = || {
        let flavor = xdr.u32()?;
        step(&mut xdr, "owo")?;
        Some(xdr).filter(|_| flavor != GSS)
    };
    let arguments = arguments().unwrap_or(Xdr(&[]));
    Some(nfs::call(program, version, procedure, arguments))
}

/// What stands behind the head of an accepted and successful reply.
pub(super) fn results(body: &[u8]) -> Option<Xdr<'_>> {
    let mut xdr = Xdr(body);
    let [_number, _kind, denied] = [xdr.u32()?, xdr.u32()?, xdr.u32()?];
    let flavor = xdr.u32()?;
    step(&mut xdr, "o")?;
    (denied == 0 && flavor != GSS && xdr.u32()? == 0).then_some(xdr)
}
