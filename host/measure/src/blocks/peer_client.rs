//! The client of blocks that a peer has.

use super::frame::{REPLY, STRANGE, code};
use crate::noise::noise;
use model::{
    AtServer, BlockCall, BlockClient, BlockClients, BlockOperation, BlockOrder, BlockReply, Blocks,
    Bytes, Nanos, Outstanding,
};
use std::sync::Arc;

/// Clients of a peer that has this many blocks, one for each of the connections.
pub(super) fn clients(order: &Blocks, all: u64, streams: u64) -> Arc<BlockClients> {
    let order = order.clone();
    let data = noise(order.block.0 as usize);
    Arc::new(move |stream| {
        Box::new(PeerClient {
            places: BlockOrder::new(&order, all, stream as u64, streams),
            mix: order.mix.clone(),
            block: data.clone(),
            outstanding: Outstanding::default(),
            head: Vec::with_capacity(REPLY),
            reply: None,
        })
    })
}

struct PeerClient {
    places: BlockOrder,
    mix: Vec<BlockOperation>,
    /// What is written: nothing on the way or in the storage makes it smaller.
    block: Vec<u8>,
    outstanding: Outstanding,
    /// Of the head of the reply that is coming in, what is there.
    head: Vec<u8>,
    /// Its head is whole.
    reply: Option<Reply>,
}

struct Reply {
    begun: Nanos,
    call: BlockCall,
    at_server: AtServer,
    /// Bytes that are still to come.
    left: usize,
}

impl BlockClient for PeerClient {
    fn ask(&mut self, now: Nanos, out: &mut Vec<u8>) {
        let number = self.outstanding.next();
        let operation = self.mix[number as usize % self.mix.len()];
        let block = match operation {
            BlockOperation::Commit | BlockOperation::Getattr => 0,
            _ => self.places.next_block(),
        };
        let begin = out.len();
        out.extend_from_slice(&number.to_be_bytes());
        out.push(code(operation));
        out.extend_from_slice(&block.to_be_bytes());
        let [sent, _] = operation.carries(self.size());
        out.extend_from_slice(&self.block[..sent.0 as usize]);
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
        while !bytes.is_empty() {
            let reply = match &mut self.reply {
                Some(reply) => reply,
                None => {
                    let missing = (REPLY - self.head.len()).min(bytes.len());
                    self.head.extend_from_slice(&bytes[..missing]);
                    bytes = &bytes[missing..];
                    if self.head.len() < REPLY {
                        return Ok(());
                    }
                    let begun = self.begin(now)?;
                    self.reply.insert(begun)
                }
            };
            let here = reply.left.min(bytes.len());
            reply.left -= here;
            bytes = &bytes[here..];
            if reply.left == 0
                && let Some(reply) = self.reply.take()
            {
                answered(reply.answer(now, self.size()));
            }
        }
        Ok(())
    }
}

impl PeerClient {
    fn size(&self) -> Bytes {
        Bytes(self.block.len() as u64)
    }

    /// Reads the head of a reply, whose bytes come together as a rule.
    fn begin(&mut self, now: Nanos) -> Result<Reply, String> {
        let head: [u8; REPLY] = self.head.as_slice().try_into().expect("all of it is there");
        self.head.clear();
        let (number, times) = head.split_at(4);
        let number = u32::from_be_bytes(number.try_into().expect("four bytes"));
        let call = self.outstanding.take(number).ok_or(STRANGE)?;
        let time = |at: usize| {
            Nanos(u64::from_be_bytes(
                times[at..at + 8].try_into().expect("eight bytes"),
            ))
        };
        let [_, answered] = call.operation.carries(self.size());
        Ok(Reply {
            begun: now,
            left: answered.0 as usize,
            call,
            at_server: AtServer {
                queued: time(0),
                storage: time(8),
            },
        })
    }
}

impl Reply {
    fn answer(&self, now: Nanos, block: Bytes) -> BlockReply {
        let [sent, answered] = self.call.operation.carries(block);
        self.call
            .answer(self.begun, now, sent + answered, Some(self.at_server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::frame::CALL;
    use model::{BlockServer, BlockStore, WaitMode};

    fn client() -> Box<dyn BlockClient> {
        let order = Blocks {
            server: BlockServer::Peer(BlockStore::default()),
            block: Bytes(600),
            depth: 3,
            mix: vec![BlockOperation::Read, BlockOperation::Write],
            random: false,
            seed: 0,
            wait: WaitMode::Block,
        };
        clients(&order, 5, 1)(0)
    }

    fn reply(number: u32, data: usize) -> Vec<u8> {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend_from_slice(&7u64.to_be_bytes());
        bytes.extend_from_slice(&9u64.to_be_bytes());
        bytes.resize(bytes.len() + data, 1);
        bytes
    }

    #[test]
    fn input_is_parsed_the_same_in_pieces() {
        for n in 0..200 {
            // Often the number of a call, seldom of none.
            let mut bytes = noise(1500 + n)[n..].to_vec();
            bytes[..4].copy_from_slice(&(n as u32 % 4).to_be_bytes());
            let recv = |piece: usize| {
                let (mut client, mut answers) = (client(), Vec::new());
                (0..3).for_each(|_| client.ask(Nanos(0), &mut Vec::new()));
                let mut pieces = bytes.chunks(piece);
                let result = pieces.try_for_each(|one| {
                    client.recv(Nanos(1), one, &mut |answer| answers.push(answer))
                });
                (answers, result)
            };
            assert_eq!(recv(1), recv(1500));
        }
    }

    #[test]
    fn replies_in_any_order_and_pieces_are_those_of_their_calls() {
        for piece in [1, 19, 700] {
            let (mut client, mut out, mut answers) = (client(), Vec::new(), Vec::new());
            (0..3).for_each(|at| client.ask(Nanos(at), &mut out));
            assert_eq!(out.len(), 3 * CALL + 600);
            assert_eq!(out[..CALL], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(out[CALL..2 * CALL], [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
            client.sent(Nanos(10), CALL);
            client.sent(Nanos(20), out.len() - CALL);
            let replies = [reply(1, 0), reply(2, 600), reply(0, 600)].concat();
            for (at, bytes) in (100..).zip(replies.chunks(piece)) {
                client
                    .recv(Nanos(at), bytes, &mut |answer| answers.push(answer))
                    .unwrap();
            }
            let parsed: Vec<_> = answers
                .iter()
                .map(|one| (one.operation, one.call_send, one.data))
                .collect();
            use BlockOperation::{Read, Write};
            assert_eq!(
                parsed,
                [
                    (Write, Nanos(19), Bytes(600)),
                    (Read, Nanos(18), Bytes(600)),
                    (Read, Nanos(10), Bytes(600))
                ]
            );
            let at_server = answers[0].at_server.unwrap();
            assert_eq!((at_server.queued, at_server.storage), (Nanos(7), Nanos(9)));
            assert!(client.recv(Nanos(900), &reply(1, 0), &mut |_| ()).is_err());
        }
    }
}
