//! What an NFS server answers, or somebody who is none.

use model::{
    BlockClient, BlockOperation, BlockOrder, BlockReply, BlockServer, Blocks, Bytes, Nanos,
    WaitMode,
};
use wire::Machine;
use wire::nfs::{
    Handle, NfsBlockClient, RpcCall, RpcCalls, RpcCredentials, commit, create, exports, fs_info,
    lookup, mount, nfs_port, remove, unmount, write,
};

/// Calls that a client has outstanding.
const DEPTH: usize = 12;
const BLOCK: Bytes = Bytes(512);

/// Replies to single calls: cut elsewhere they are the same, and none is one to another call.
pub fn nfs_replies(bytes: &[u8]) {
    let (replies, failed) = replies(bytes, 4096);
    assert_eq!((replies.clone(), failed), self::replies(bytes, 13));
    let folder = folder(&replies);
    let (folder, name) = (&folder, "name");
    for reply in &replies {
        reads(&nfs_port(), reply);
        reads(&mount("/export"), reply);
        reads(&unmount("/export"), reply);
        reads(&exports(), reply);
        reads(&fs_info(folder), reply);
        reads(&create(folder, name), reply);
        reads(&lookup(folder, name), reply);
        reads(&remove(folder, name), reply);
        reads(&write(folder, 7, b"data"), reply);
        reads(&commit(folder), reply);
    }
}

/// All whole replies, and whether something came that is none.
fn replies(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut records = RpcCalls::new(who());
    let mut all = Vec::new();
    for piece in bytes.chunks(piece) {
        records.input(Nanos(0), piece);
        while let Some(reply) = records.poll_event() {
            match reply {
                Ok(reply) => all.push(reply),
                Err(_) => return (all, true),
            }
        }
    }
    (all, false)
}

/// What a server calls a folder: any handle that it gave, for there is no other way to one.
fn folder(replies: &[Vec<u8>]) -> Handle {
    let known = |reply: &Vec<u8>| reply.first_chunk().map(|n| u32::from_be_bytes(*n));
    let mut given = replies.iter().filter_map(|reply| {
        let mounted = mount("/export").answer(known(reply)?, reply);
        mounted.ok().flatten()
    });
    let none = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &[0; 24]].concat();
    let empty = || mount("/export").answer(1, &none).ok().flatten();
    given.next().or_else(empty).expect("a handle may be empty")
}

fn reads<T>(call: &RpcCall<T>, reply: &[u8]) {
    let Some(number) = reply.first_chunk().map(|n| u32::from_be_bytes(*n)) else {
        return;
    };
    let other = call.answer(number.wrapping_add(1), reply);
    assert!(matches!(other, Ok(None)), "it is the reply to another call");
    match call.answer(number, reply) {
        Ok(answered) => assert!(answered.is_some()),
        Err(failure) => says(&failure.to_string()),
    }
    let asked = call.encode(number, &who());
    let length = asked.len() as u32 - 4;
    assert!(asked.starts_with(&(length | 1 << 31).to_be_bytes()));
}

fn says(said: &str) {
    assert!(!said.is_empty() && !said.chars().any(char::is_control));
}

fn who() -> RpcCredentials {
    RpcCredentials {
        machine: "here".to_owned(),
        uid: 1,
        gid: 2,
    }
}

/// Replies to reads and writes of blocks; cut elsewhere they say the same.
pub fn nfs_client(bytes: &[u8]) {
    let (answers, failure) = parse(bytes, 4096);
    assert_eq!((answers.clone(), failure.clone()), parse(bytes, 1));
    assert!(answers.len() <= DEPTH, "no more than was asked");
    for answer in &answers {
        assert!(answer.data.0 <= BLOCK.0);
        assert_eq!(answer.total(), Nanos(1000));
    }
    if let Some(failure) = failure {
        says(&failure);
    }
}

fn parse(bytes: &[u8], piece: usize) -> (Vec<BlockReply>, Option<String>) {
    use BlockOperation::{Commit, Getattr, Read, Write, WriteStable};
    let order = Blocks {
        server: BlockServer::Nfs {
            export: "/export".to_owned(),
            file_size: Bytes(8 * BLOCK.0),
        },
        block: BLOCK,
        depth: DEPTH as u32,
        mix: vec![Read, Write, WriteStable, Getattr, Commit],
        random: true,
        seed: 1,
        wait: WaitMode::Block,
    };
    let places = BlockOrder::new(&order, 8, 0, 1);
    let block = vec![7; BLOCK.0 as usize];
    let mut client = NfsBlockClient::new(order, folder(&[]), who(), places, block);
    let mut asked = Vec::new();
    (0..DEPTH).for_each(|_| client.ask(Nanos(0), &mut asked));
    client.sent(Nanos(1), asked.len());
    let mut answers = Vec::new();
    for piece in bytes.chunks(piece) {
        let parsed = client.recv(Nanos(1000), piece, &mut |answer| answers.push(answer));
        if let Err(failure) = parsed {
            return (answers, Some(failure));
        }
    }
    (answers, None)
}
