//! Reads and writes of blocks with several calls outstanding, each timed by the times that its caller passes.

use super::procedures::{ATTRIBUTES, Handle, skip_change};
use super::programs::NFS;
use super::rpc::{self, LAST, RpcCredentials, RpcFailure};
use super::xdr::{Xdr, XdrWriter};
use model::{
    BlockClient, BlockOperation, BlockOrder, BlockReply, Blocks, Bytes, Nanos, Outstanding,
};

/// Of a reply so many bytes are looked at: more than stands in front of the data of a READ.
const KEPT: usize = 768;
/// A longer reply is none: READs are far below.
const LONGEST: u64 = 1 << 30;

/// A client on one connection, with a file of its own.
pub struct NfsBlockClient {
    order: Blocks,
    file: Handle,
    who: RpcCredentials,
    /// What WRITE writes.
    block: Vec<u8>,
    places: BlockOrder,
    outstanding: Outstanding,
    reply: IncomingReply,
}

/// The reply that is coming in.
#[derive(Default)]
struct IncomingReply {
    /// Of the mark, what is there.
    mark: Vec<u8>,
    /// Bytes of this fragment that are still to come.
    left: u64,
    last: bool,
    begun: Option<Nanos>,
    kept: Vec<u8>,
    length: u64,
}

impl NfsBlockClient {
    /// For a file that has all the blocks of `places` if they are to be read. What is written is `block`.
    pub fn new(
        order: Blocks,
        file: Handle,
        who: RpcCredentials,
        places: BlockOrder,
        block: Vec<u8>,
    ) -> NfsBlockClient {
        NfsBlockClient {
            block,
            order,
            file,
            who,
            places,
            outstanding: Outstanding::default(),
            reply: IncomingReply::default(),
        }
    }

    fn answer(&mut self, now: Nanos, reply: &IncomingReply) -> Result<BlockReply, RpcFailure> {
        let mut from = Xdr(&reply.kept);
        let call = from.u32().and_then(|n| self.outstanding.take(n));
        let call = call.ok_or(RpcFailure::Malformed("a call"))?;
        let name = call.operation.name();
        rpc::accepted(&mut from, name)?;
        let moved = moved(call.operation, &mut from).ok_or(RpcFailure::Malformed(name))?;
        let data = moved.map_err(|status| RpcFailure::Refused { call: name, status })?;
        let reads = call.operation == BlockOperation::Read;
        if data.0 > self.order.block.0 || (reads && reply.length < data.0) {
            return Err(RpcFailure::Malformed(name));
        }
        let begun = reply.begun.unwrap_or(now);
        Ok(call.answer(begun, now, data, None))
    }
}

impl BlockClient for NfsBlockClient {
    fn ask(&mut self, now: Nanos, out: &mut Vec<u8>) {
        let number = self.outstanding.next();
        let operation = self.order.mix[number as usize % self.order.mix.len()];
        let begin = out.len();
        rpc::begin(out, [NFS, 3, procedure(operation)], number, &self.who);
        let size = self.block.len() as u32;
        let offset = match operation {
            BlockOperation::Read | BlockOperation::Write | BlockOperation::WriteStable => {
                self.places.next_block() * self.order.block.0
            }
            BlockOperation::Getattr | BlockOperation::Commit => 0,
        };
        let mut to = XdrWriter(out);
        to.opaque(&self.file.0);
        match operation {
            BlockOperation::Getattr => {}
            BlockOperation::Read => {
                to.u64(offset);
                to.u32(size);
            }
            BlockOperation::Write | BlockOperation::WriteStable => {
                const FILE_SYNC: u32 = 2;
                let stable = match operation {
                    BlockOperation::WriteStable => FILE_SYNC,
                    _ => 0,
                };
                to.u64(offset);
                to.u32s(&[size, stable]);
                to.opaque(&self.block);
            }
            // All of the file.
            BlockOperation::Commit => {
                to.u32s(&[0, 0, 0]);
            }
        }
        rpc::end(out, begin);
        self.outstanding.ask(now, operation, out.len() - begin);
    }

    fn sent(&mut self, now: Nanos, bytes: usize) {
        self.outstanding.sent(now, bytes);
    }

    fn recv(
        &mut self,
        now: Nanos,
        mut bytes: &[u8],
        answered: &mut dyn FnMut(BlockReply),
    ) -> Result<(), String> {
        let said = |failure: RpcFailure| failure.to_string();
        while !bytes.is_empty() {
            let taken = self.reply.take(now, bytes).map_err(said)?;
            bytes = &bytes[taken..];
            if self.reply.is_whole() {
                let reply = std::mem::take(&mut self.reply);
                answered(self.answer(now, &reply).map_err(said)?);
            }
        }
        Ok(())
    }
}

impl IncomingReply {
    /// Takes some of the bytes; says how many.
    fn take(&mut self, now: Nanos, bytes: &[u8]) -> Result<usize, RpcFailure> {
        self.begun.get_or_insert(now);
        if self.left == 0 {
            let missing = (4 - self.mark.len()).min(bytes.len());
            self.mark.extend_from_slice(&bytes[..missing]);
            if let Ok(mark) = <[u8; 4]>::try_from(self.mark.as_slice()) {
                let mark = u32::from_be_bytes(mark);
                self.mark.clear();
                (self.left, self.last) = (u64::from(mark & !LAST), mark & LAST != 0);
                self.length += self.left;
                // An empty fragment that is not the last would be for ever.
                if self.left == 0 || self.length > LONGEST {
                    return Err(RpcFailure::Malformed("a call"));
                }
            }
            return Ok(missing);
        }
        let here = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let room = KEPT.saturating_sub(self.kept.len()).min(here);
        self.kept.extend_from_slice(&bytes[..room]);
        self.left -= here as u64;
        Ok(here)
    }

    fn is_whole(&self) -> bool {
        self.last && self.left == 0 && self.mark.is_empty()
    }
}

/// Its number in NFSv3.
fn procedure(operation: BlockOperation) -> u32 {
    match operation {
        BlockOperation::Getattr => 1,
        BlockOperation::Read => 6,
        BlockOperation::Write | BlockOperation::WriteStable => 7,
        BlockOperation::Commit => 21,
    }
}

/// How much a reply says that it moved, or its status; `None`: it is cut off.
fn moved(operation: BlockOperation, from: &mut Xdr<'_>) -> Option<Result<Bytes, u32>> {
    let status = from.u32()?;
    if status != 0 {
        return Some(Err(status));
    }
    let count = match operation {
        BlockOperation::Getattr => {
            from.skip(ATTRIBUTES)?;
            0
        }
        BlockOperation::Commit => {
            skip_change(from)?;
            0
        }
        BlockOperation::Read => {
            from.skip_optional(ATTRIBUTES)?;
            from.u32()?
        }
        BlockOperation::Write | BlockOperation::WriteStable => {
            skip_change(from)?;
            from.u32()?
        }
    };
    Some(Ok(Bytes(count.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{BlockServer, WaitMode};
    use proptest::prelude::*;

    fn client(mix: &[BlockOperation], random: bool) -> NfsBlockClient {
        let order = Blocks {
            server: BlockServer::Nfs {
                export: String::new(),
                file_size: Bytes(3 * 4096),
            },
            block: Bytes(4096),
            depth: 4,
            mix: mix.to_vec(),
            random,
            seed: 42,
            wait: WaitMode::Block,
        };
        let who = RpcCredentials {
            machine: "here".to_owned(),
            uid: 7,
            gid: 8,
        };
        let places = BlockOrder::new(&order, 3, 0, 1);
        NfsBlockClient::new(order, Handle(vec![1, 2, 3]), who, places, vec![7; 4096])
    }

    /// What a call asks: its number, procedure, and the words behind the handle.
    fn asked(call: &[u8]) -> (u32, u32, Vec<u32>) {
        let mut from = Xdr(call);
        assert_eq!(from.u32().unwrap() & !LAST, call.len() as u32 - 4);
        let number = from.u32().unwrap();
        let head: Vec<u32> = (0..4).map(|_| from.u32().unwrap()).collect();
        assert_eq!(head, [0, 2, NFS, 3]);
        let procedure = from.u32().unwrap();
        assert_eq!(from.u32(), Some(1), "AUTH_SYS");
        from.opaque(400).unwrap();
        assert_eq!((from.u32(), from.u32()), (Some(0), Some(0)));
        assert_eq!(from.opaque(64).unwrap(), [1, 2, 3]);
        let words = std::iter::from_fn(|| from.u32()).take(5).collect();
        (number, procedure, words)
    }

    /// A reply in fragments of at most `piece` bytes.
    fn reply(number: u32, results: &[u32], data: usize, piece: usize) -> Vec<u8> {
        let mut body = Vec::new();
        let mut to = XdrWriter(&mut body);
        for word in [number, 1, 0, 0, 0, 0] {
            to.u32(word);
        }
        results.iter().for_each(|word| to.u32(*word));
        body.resize(body.len() + data, 5);
        let mut bytes = Vec::new();
        let count = body.chunks(piece).count();
        for (n, fragment) in body.chunks(piece).enumerate() {
            let last = if n + 1 == count { LAST } else { 0 };
            XdrWriter(&mut bytes).u32(fragment.len() as u32 | last);
            bytes.extend_from_slice(fragment);
        }
        bytes
    }

    #[test]
    fn calls_are_asked_in_turn_and_their_parts_are_those_of_the_moments() {
        use BlockOperation::{Commit, Getattr, Read, WriteStable};
        let mut client = client(&[Read, WriteStable, Getattr, Commit], false);
        let mut calls = Vec::new();
        for at in 0..4 {
            let mut out = Vec::new();
            client.ask(Nanos(at), &mut out);
            calls.push(out);
        }
        let sent: Vec<_> = calls.iter().map(|call| asked(call)).collect();
        assert_eq!(sent[0], (0, 6, vec![0, 0, 4096]));
        assert_eq!(sent[1].1, 7);
        assert_eq!(
            sent[1].2,
            [0, 4096, 4096, 2, 4096],
            "the second block, stable"
        );
        assert_eq!((sent[2].1, sent[3].1), (1, 21));

        for piece in [1 << 20, 100] {
            let mut answers = Vec::new();
            let mut client = again(&calls);
            // Out of order, as a server may.
            let written = reply(1, &[0, 0, 0, 4096, 2, 0, 0], 0, piece);
            let read = reply(0, &[0, 0, 4096, 0, 4096], 4096, piece);
            client
                .recv(Nanos(30), &written, &mut |answer| answers.push(answer))
                .unwrap();
            let (first, rest) = read.split_at(2);
            client
                .recv(Nanos(40), first, &mut |answer| answers.push(answer))
                .unwrap();
            client
                .recv(Nanos(60), rest, &mut |answer| answers.push(answer))
                .unwrap();
            let answer = |operation, [call_send, waited, reply_send]: [u64; 3]| BlockReply {
                operation,
                data: Bytes(4096),
                call_send: Nanos(call_send),
                waited: Nanos(waited),
                reply_send: Nanos(reply_send),
                at_server: None,
            };
            assert_eq!(
                answers,
                [answer(WriteStable, [19, 10, 0]), answer(Read, [10, 30, 20])]
            );
            assert_eq!(answers[1].total(), Nanos(60));
        }
    }

    /// A client that has asked the same; the second call did not fit at once.
    fn again(calls: &[Vec<u8>]) -> NfsBlockClient {
        use BlockOperation::{Commit, Getattr, Read, WriteStable};
        let mut client = client(&[Read, WriteStable, Getattr, Commit], false);
        let mut out = Vec::new();
        (0..calls.len()).for_each(|at| client.ask(Nanos(at as u64), &mut out));
        client.sent(Nanos(10), calls[0].len() + 100);
        client.sent(Nanos(20), out.len() - calls[0].len() - 100);
        client
    }

    #[test]
    fn blocks_by_chance_are_whole_and_all_come() {
        let mut client = client(&[BlockOperation::Read], true);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let mut out = Vec::new();
            client.ask(Nanos(0), &mut out);
            seen.insert(asked(&out).2[1]);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 4096, 8192]);
    }

    #[test]
    fn a_refusal_has_its_words_and_nonsense_is_no_reply() {
        let receive = |bytes: &[u8]| {
            let mut client = client(&[BlockOperation::Write], false);
            client.ask(Nanos(0), &mut Vec::new());
            client.recv(Nanos(1), bytes, &mut |_| ())
        };
        assert_eq!(
            receive(&reply(0, &[28], 0, 100)).unwrap_err(),
            "the server answers WRITE with \"no space left\" (28)"
        );
        assert!(
            receive(&reply(9, &[0], 0, 100))
                .unwrap_err()
                .contains("no reply")
        );
        let too_much = reply(0, &[0, 0, 0, 9999], 0, 100);
        assert!(
            receive(&too_much)
                .unwrap_err()
                .contains("no reply to WRITE")
        );
        assert!(
            receive(b"HTTP/1.1 400 Bad Request\r\n")
                .unwrap_err()
                .contains("NFS server")
        );
        assert_eq!(receive(&[0x80, 0]), Ok(()), "more may come");
    }

    proptest! {
        #[test]
        fn whatever_a_server_sends_is_read_the_same_in_pieces(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0x80), any::<u8>()], 0..300),
        ) {
            let receive = |piece: usize| {
                let mut client = client(&[BlockOperation::Read], false);
                client.ask(Nanos(0), &mut Vec::new());
                let mut answers = 0;
                let result = bytes
                    .chunks(piece)
                    .try_for_each(|piece| client.recv(Nanos(1), piece, &mut |_| answers += 1));
                (answers, result)
            };
            prop_assert_eq!(receive(1), receive(1000));
        }
    }
}
