//! ONC RPC over TCP (RFC 5531): calls with the user's numbers (`AUTH_SYS`), and the replies to them.

use super::programs;
use super::xdr::{Xdr, XdrWriter};
use crate::Machine;
use model::Nanos;

/// A reply that is taken whole is smaller: a list of exports, not a block.
const LARGEST: usize = 1 << 20;
/// The last fragment of a record has this bit in its mark.
pub(super) const LAST: u32 = 1 << 31;
/// A verifier is at most so long.
const VERIFIER: usize = 400;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcCredentials {
    /// Name of the host; servers take it for their logs alone.
    pub machine: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Reads what stands behind the head of a reply: what came back, or the status of a refusal; `None`: it is cut off, or
/// something else.
type ReadResults<T> = fn(&mut Xdr<'_>) -> Option<Result<T, u32>>;

/// A procedure with its arguments, and what comes back if the server did it.
pub struct RpcCall<T> {
    /// Program, its version, the number of the procedure.
    numbers: [u32; 3],
    arguments: Vec<u8>,
    results: ReadResults<T>,
}

impl<T> RpcCall<T> {
    pub(super) fn new(
        numbers: [u32; 3],
        results: ReadResults<T>,
        write: impl FnOnce(&mut XdrWriter<'_>),
    ) -> RpcCall<T> {
        let mut arguments = Vec::new();
        write(&mut XdrWriter(&mut arguments));
        RpcCall {
            numbers,
            arguments,
            results,
        }
    }

    /// Its name in its specification.
    pub fn name(&self) -> &'static str {
        programs::name(self.numbers)
    }

    /// Its bytes.
    pub fn encode(&self, number: u32, who: &RpcCredentials) -> Vec<u8> {
        let mut bytes = Vec::new();
        begin(&mut bytes, self.numbers, number, who);
        bytes.extend_from_slice(&self.arguments);
        end(&mut bytes, 0);
        bytes
    }

    /// What the reply with this number answers; `None` if it is the reply to another call.
    pub fn answer(&self, number: u32, reply: &[u8]) -> Result<Option<T>, RpcFailure> {
        let (mut from, call) = (Xdr(reply), self.name());
        if from.u32() != Some(number) {
            return Ok(None);
        }
        accepted(&mut from, call)?;
        match (self.results)(&mut from) {
            Some(Ok(answer)) => Ok(Some(answer)),
            Some(Err(status)) => Err(RpcFailure::Refused { call, status }),
            None => Err(RpcFailure::Malformed(call)),
        }
    }
}

/// Why a call brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcFailure {
    /// The server looked at it and says no.
    #[error("the server answers {call} with {}", in_words(*.status))]
    Refused {
        /// Name of the procedure.
        call: &'static str,
        /// `nfsstat3` or `mountstat3`.
        status: u32,
    },
    /// The server does not have the program, the version or the procedure, or wants to know better who asks.
    #[error("the server does not take {call}: {why}")]
    Rejected {
        /// Name of the procedure.
        call: &'static str,
        /// In words.
        why: &'static str,
    },
    /// Not what a server sends.
    #[error("what came back is no reply to {0}; is it an NFS server?")]
    Malformed(&'static str),
}

/// A status of NFSv3 or MOUNT in words (RFC 1813, 2.6 and 5.1.5: where both have a number it means the same).
fn in_words(number: u32) -> String {
    let words = match number {
        1 => "\"not owner\" (1): only the owner may",
        2 => "\"no such file or folder\" (2)",
        5 => "\"input or output error\" (5)",
        13 => {
            "\"permission denied\" (13): see which hosts and users the export takes, and whether it takes ports of 1024 and above (option insecure)"
        }
        17 => "\"exists already\" (17)",
        20 => "\"not a folder\" (20)",
        27 => "\"file too large\" (27)",
        28 => "\"no space left\" (28)",
        30 => "\"read-only file system\" (30): the export gives no right to write",
        69 => "\"quota exceeded\" (69)",
        70 => "\"stale handle\" (70): somebody removed the file meanwhile",
        10_004 => "\"not supported\" (10004)",
        10_006 => "\"server fault\" (10006)",
        10_008 => "\"try again later\" (10008)",
        number => return format!("status {number}"),
    };
    words.to_owned()
}

/// Appends everything in front of the arguments.
pub(super) fn begin(to: &mut Vec<u8>, numbers: [u32; 3], number: u32, who: &RpcCredentials) {
    const AUTH_SYS: u32 = 1;
    let mut out = XdrWriter(to);
    // The mark, which `end` writes.
    out.u32(0);
    let [program, version, procedure] = numbers;
    out.u32s(&[number, 0, 2, program, version, procedure, AUTH_SYS]);
    let mut credentials = Vec::new();
    let mut inner = XdrWriter(&mut credentials);
    inner.u32(0);
    inner.opaque(who.machine.as_bytes());
    inner.u32s(&[who.uid, who.gid, 0]);
    out.opaque(&credentials);
    // No verifier.
    out.u64(0);
}

/// Writes the mark of the record that began at `at`.
pub(super) fn end(bytes: &mut [u8], at: usize) {
    let length = u32::try_from(bytes.len() - at - 4).expect("a call is far below 2 GiB");
    bytes[at..at + 4].copy_from_slice(&(length | LAST).to_be_bytes());
}

/// Reads the head of a reply, behind its number.
pub(super) fn accepted(from: &mut Xdr<'_>, call: &'static str) -> Result<(), RpcFailure> {
    let mut read = || {
        if from.u32()? != 1 {
            return None;
        }
        if from.u32()? != 0 {
            return Some(Err(
                "it wants to know better who asks, or knows another version of RPC",
            ));
        }
        let _flavor = from.u32()?;
        from.opaque(VERIFIER)?;
        Some(match from.u32()? {
            0 => Ok(()),
            1 => Err("it does not have this program"),
            2 => Err("it has no version 3 of this program"),
            3 => Err("it does not have this procedure"),
            4 => Err("it could not read the arguments"),
            _ => Err("its system failed"),
        })
    };
    match read() {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) => Err(RpcFailure::Rejected { call, why }),
        None => Err(RpcFailure::Malformed(call)),
    }
}

/// Single calls over one connection, whose replies are taken whole. An event is a reply; see [`Call::answer`].
#[derive(Debug)]
pub struct RpcCalls {
    who: RpcCredentials,
    number: u32,
    out: Vec<u8>,
    bytes: Vec<u8>,
}

impl RpcCalls {
    /// Of this user; nothing is called yet.
    pub fn new(who: RpcCredentials) -> RpcCalls {
        RpcCalls {
            who,
            number: 0,
            out: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Calls a procedure: the number of its reply.
    pub fn call<T>(&mut self, call: &RpcCall<T>) -> u32 {
        self.number += 1;
        self.out.extend(call.encode(self.number, &self.who));
        self.number
    }

    /// The next reply, if all of it is there. Sun's own servers wrote each in one fragment, and so do all since;
    /// more are put together all the same.
    fn take(&mut self) -> Result<Option<Vec<u8>>, RpcFailure> {
        let mut record = Vec::new();
        let mut rest = Xdr(&self.bytes);
        loop {
            let Some(mark) = rest.u32() else {
                return Ok(None);
            };
            let length = (mark & !LAST) as usize;
            if record.len() + length > LARGEST {
                return Err(RpcFailure::Malformed("a call"));
            }
            let Some(fragment) = rest.skip(length) else {
                return Ok(None);
            };
            record.extend_from_slice(fragment);
            if mark & LAST != 0 {
                let left = rest.0.len();
                self.bytes.drain(..self.bytes.len() - left);
                return Ok(Some(record));
            }
        }
    }
}

impl Machine for RpcCalls {
    type Event = Result<Vec<u8>, RpcFailure>;

    fn input(&mut self, _: Nanos, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn input_end(&mut self) {}

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_timeout(&mut self, _: Nanos) {}

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.take().transpose()
    }

    fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::{Handle, TransferSizes, create, exports, fs_info, mount, nfs_port};
    use model::Bytes;

    fn who() -> RpcCredentials {
        RpcCredentials {
            machine: "abc".to_owned(),
            uid: 1,
            gid: 2,
        }
    }

    /// Words as bytes; a text is padded.
    fn bytes(parts: &[&dyn ReplyPart]) -> Vec<u8> {
        let mut all = Vec::new();
        parts.iter().for_each(|part| part.append(&mut all));
        all
    }

    trait ReplyPart {
        fn append(&self, to: &mut Vec<u8>);
    }

    impl ReplyPart for u32 {
        fn append(&self, to: &mut Vec<u8>) {
            XdrWriter(to).u32(*self);
        }
    }

    impl ReplyPart for &str {
        fn append(&self, to: &mut Vec<u8>) {
            XdrWriter(to).opaque(self.as_bytes());
        }
    }

    const DONE: [&dyn ReplyPart; 5] = [&1u32, &0u32, &0u32, &0u32, &0u32];

    fn reply(number: u32, results: &[&dyn ReplyPart]) -> Vec<u8> {
        let mut all = bytes(&[&number]);
        all.extend(bytes(&DONE));
        all.extend(bytes(results));
        all
    }

    #[test]
    fn a_call_is_as_the_specification_has_it() {
        let expected = bytes(&[
            &(LAST | 76),
            &5u32,
            &0u32,
            &2u32,
            &100_005u32,
            &3u32,
            &1u32,
            &1u32,
            &24u32,
            &0u32,
            &"abc",
            &1u32,
            &2u32,
            &0u32,
            &0u32,
            &0u32,
            &"/exp1",
        ]);
        assert_eq!(mount("/exp1").encode(5, &who()), expected);
    }

    #[test]
    fn results_are_read_and_refusals_reported() {
        let of = |results: &[&dyn ReplyPart]| reply(1, results);
        assert_eq!(nfs_port().answer(1, &of(&[&2049u32])), Ok(Some(2049)));
        assert_eq!(
            nfs_port().answer(2, &of(&[&2049u32])),
            Ok(None),
            "another call's"
        );
        let mounted = of(&[&0u32, &"handle", &1u32, &1u32]);
        assert_eq!(
            mount("/x").answer(1, &mounted),
            Ok(Some(Handle(b"handle".to_vec())))
        );
        let listed = of(&[&1u32, &"/a", &1u32, &"*", &0u32, &1u32, &"/b", &0u32, &0u32]);
        let all = vec!["/a".to_owned(), "/b".to_owned()];
        assert_eq!(exports().answer(1, &listed), Ok(Some(all)));
        let handle = Handle(vec![1; 4]);
        let sizes = of(&[&0u32, &0u32, &65_536u32, &9u32, &9u32, &32_768u32]);
        let expected = TransferSizes {
            read: Bytes(65_536),
            write: Bytes(32_768),
        };
        assert_eq!(fs_info(&handle).answer(1, &sizes), Ok(Some(expected)));
        let create = create(&handle, "f");
        assert_eq!(create.answer(1, &of(&[&0u32, &0u32])), Ok(Some(None)));
        let refused = create.answer(1, &of(&[&30u32])).unwrap_err().to_string();
        assert!(
            refused.contains("NFSv3 CREATE with \"read-only file system\" (30)"),
            "{refused}"
        );
        let denied = bytes(&[&1u32, &1u32, &1u32, &1u32, &1u32]);
        let why = create.answer(1, &denied).unwrap_err().to_string();
        assert!(why.contains("who asks"), "{why}");
        for cut in 4..mounted.len() - 8 {
            assert!(mount("/x").answer(1, &mounted[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn records_are_put_together_and_bounded() {
        let mut records = RpcCalls::new(who());
        let whole = bytes(&[&3u32, &0x0102_0304u32]);
        for byte in [&whole[..7], &bytes(&[&(LAST | 1)]), b"x", &bytes(&[&LAST])].concat() {
            records.input(Nanos(0), &[byte]);
        }
        assert_eq!(records.poll_event(), Some(Ok(vec![1, 2, 3, b'x'])));
        assert_eq!(records.poll_event(), Some(Ok(Vec::new())));
        assert_eq!(records.poll_event(), None);
        records.input(Nanos(0), b"HTTP");
        assert!(records.poll_event().unwrap().is_err());
    }

    /// The numbers of a call and the words of its arguments.
    fn asked<T>(call: &RpcCall<T>) -> ([u32; 3], Vec<u8>) {
        let encoded = call.encode(1, &who());
        let mark = u32::from_be_bytes(encoded[..4].try_into().unwrap());
        assert_eq!((mark & !LAST) as usize, encoded.len() - 4);
        (call.numbers, call.arguments.clone())
    }

    #[test]
    fn every_call_has_its_numbers_and_arguments() {
        use crate::nfs::{commit, lookup, mount_port, remove, unmount, write};
        let handle = Handle(vec![1, 2, 3, 4]);
        let of = |words: &[&dyn ReplyPart]| bytes(words);
        let folder: &[u8] = &[0, 0, 0, 4, 1, 2, 3, 4];
        let behind = |words: &[&dyn ReplyPart]| [folder, &bytes(words)].concat();
        let (mapper, mounts, files) = (100_000, 100_005, 100_003);
        assert_eq!(
            asked(&mount_port()),
            ([mapper, 2, 3], of(&[&mounts, &3u32, &6u32, &0u32]))
        );
        assert_eq!(
            asked(&nfs_port()),
            ([mapper, 2, 3], of(&[&files, &3u32, &6u32, &0u32]))
        );
        assert_eq!(asked(&unmount("/x")), ([mounts, 3, 3], of(&[&"/x"])));
        assert_eq!(asked(&exports()), ([mounts, 3, 5], Vec::new()));
        assert_eq!(asked(&fs_info(&handle)), ([files, 3, 19], folder.to_vec()));
        assert_eq!(
            asked(&lookup(&handle, "f")),
            ([files, 3, 3], behind(&[&"f"]))
        );
        assert_eq!(
            asked(&remove(&handle, "f")),
            ([files, 3, 12], behind(&[&"f"]))
        );
        let guarded = behind(&[
            &"f", &1u32, &1u32, &0o600u32, &0u32, &0u32, &0u32, &0u32, &0u32,
        ]);
        assert_eq!(asked(&create(&handle, "f")), ([files, 3, 8], guarded));
        let written = behind(&[&1u32, &2u32, &3u32, &0u32, &"abc"]);
        assert_eq!(
            asked(&write(&handle, (1 << 32) + 2, b"abc")),
            ([files, 3, 7], written)
        );
        assert_eq!(
            asked(&commit(&handle)),
            ([files, 3, 21], behind(&[&0u32, &0u32, &0u32]))
        );
    }

    #[test]
    fn results_behind_attributes_are_read() {
        use crate::nfs::{commit, remove, write};
        let handle = Handle(vec![1; 4]);
        let with = |before: bool, after: bool, rest: &[&dyn ReplyPart]| {
            let mut all = reply(1, &[&0u32]);
            for (there, size) in [(before, 24), (after, 84)] {
                all.extend(bytes(&[&u32::from(there)]));
                all.resize(all.len() + if there { size } else { 0 }, 7);
            }
            all.extend(bytes(rest));
            all
        };
        for (before, after) in [(false, false), (true, false), (false, true), (true, true)] {
            let done = write(&handle, 0, b"abc").answer(1, &with(before, after, &[&3u32]));
            assert_eq!(done, Ok(Some(Bytes(3))));
        }
        assert!(
            write(&handle, 0, b"")
                .answer(1, &with(true, true, &[]))
                .is_err()
        );
        assert_eq!(commit(&handle).answer(1, &reply(1, &[&0u32])), Ok(Some(())));
        assert_eq!(
            remove(&handle, "f").answer(1, &reply(1, &[&0u32])),
            Ok(Some(()))
        );
        let refused = remove(&handle, "f")
            .answer(1, &reply(1, &[&2u32]))
            .unwrap_err();
        assert!(matches!(refused, RpcFailure::Refused { status: 2, .. }));
        // Why a server does not take a call, by its number.
        for (status, words) in [
            (1u32, "this program"),
            (2, "no version 3"),
            (3, "this procedure"),
            (4, "read the arguments"),
            (5, "its system failed"),
        ] {
            let answer = bytes(&[&1u32, &1u32, &0u32, &0u32, &0u32, &status]);
            let why = commit(&handle).answer(1, &answer).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn calls_are_numbered_and_a_record_has_a_mebibyte_at_most() {
        let mut calls = RpcCalls::new(who());
        assert_eq!([calls.call(&exports()), calls.call(&nfs_port())], [1, 2]);
        let out = calls.poll_output().unwrap();
        let expected = [exports().encode(1, &who()), nfs_port().encode(2, &who())].concat();
        assert_eq!(out, expected);
        assert_eq!(calls.poll_output(), None);
        let of = |first: usize, second: usize| {
            let mut calls = RpcCalls::new(who());
            let fragment = |mark: u32, size: usize| {
                [&(mark | size as u32).to_be_bytes(), &vec![7; size][..]].concat()
            };
            calls.input(Nanos(0), &fragment(0, first));
            calls.input(Nanos(0), &fragment(LAST, second));
            calls
                .poll_event()
                .map(|event| event.map(|record| record.len()).map_err(drop))
        };
        assert_eq!(of(1000, LARGEST - 1000), Some(Ok(LARGEST)));
        assert_eq!(of(1000, LARGEST - 999), Some(Err(())));
    }

    #[test]
    fn a_record_behind_another_has_its_own_length_and_no_deadline() {
        let mut bytes = vec![9; 5];
        bytes.extend([0; 4 + 7]);
        end(&mut bytes, 5);
        assert_eq!(bytes[..9], [9, 9, 9, 9, 9, 0x80, 0, 0, 7]);
        let calls = RpcCalls::new(who());
        assert_eq!(
            (calls.deadline(), calls.longest_stall()),
            (None, Nanos::from_secs(10))
        );
    }
}
