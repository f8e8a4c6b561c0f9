//! Each end of a leg between hosts that TLS authenticated signs what it reports, with its key (Ed25519).
//!
//! Signed are: the SHA-256 of the token of the leg, whether this end sent, the clock of its host, and the SHA-256 of its
//! samples, of its sockets and of its record. Warnings and the note of a trace are not.

use crate::prelude::*;
use crate::trust::{Identity, NodeId, SPKI_PREFIX, id_of_spki};
use aws_lc_rs::digest::{Context, Digest, SHA256, digest};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use model::{Signature, SocketOptions};
use report::words::shown;
use wire::{hex, unhex};

/// What a signed text begins with: the key signs nothing else of this form.
const PURPOSE: &[u8] = b"linerate record of a leg 1\n";

/// What a leg is called in public: its token is a secret of both ends.
pub fn tag(token: &Token) -> Vec<u8> {
    digest(&SHA256, token.as_bytes()).as_ref()[..8].to_vec()
}

/// What an end reports, sample by sample.
pub struct Statement(Context);

impl Default for Statement {
    fn default() -> Statement {
        Statement(Context::new(&SHA256))
    }
}

impl Statement {
    /// Takes in the next sample.
    pub fn sample(&mut self, sample: &Sample) {
        self.line(sample);
    }

    /// Signs it with the rest of the record and the sockets.
    pub fn sign(
        self,
        identity: &Identity,
        token: &Token,
        sent: bool,
        record: &EndRecord,
        sockets: &[SocketOptions],
    ) -> Signature {
        let leg = hex(digest(&SHA256, token.as_bytes()).as_ref());
        let at = unix_time();
        let reported = self.end(record, sockets);
        let key = hex(&identity.spki()[SPKI_PREFIX.len()..]);
        let signature = identity.sign(&text(&leg, sent, at, &reported));
        Signature {
            key,
            leg,
            at,
            signature: hex(&signature),
        }
    }

    fn end(mut self, record: &EndRecord, sockets: &[SocketOptions]) -> Digest {
        self.line(&sockets);
        self.line(&EndRecord {
            bytes: record.bytes,
            duration: record.duration,
            acknowledged: record.acknowledged,
            requests: record.requests.clone(),
            operations: record.operations.clone(),
            datagrams: record.datagrams,
            arrivals: record.arrivals.clone(),
            copy: record.copy.clone(),
            store: record.store.clone(),
            line: record.line.clone(),
            ..EndRecord::default()
        });
        self.0.finish()
    }

    fn line(&mut self, value: &impl serde::Serialize) {
        let json = serde_json::to_vec(value).expect("what is sent as JSON is JSON");
        self.0.update(&json);
        self.0.update(b"\n");
    }
}

/// Whether what `side` reports of a leg, of which these are all samples, is what it signed.
///
/// # Errors
/// Why not, without a subject.
pub fn check(samples: Statement, leg: &Leg, side: Side, signature: &Signature) -> Result<()> {
    let end = leg.end(side);
    let sent = leg.direction.sender() == side;
    let reported = samples.end(end, &end.sockets);
    let text = text(&signature.leg, sent, signature.at, &reported);
    let (Some(key), Some(bytes)) = (unhex(&signature.key), unhex(&signature.signature)) else {
        bail!("the signature is not hexadecimal");
    };
    if UnparsedPublicKey::new(&ED25519, key)
        .verify(&text, &bytes)
        .is_err()
    {
        bail!(
            "the record is not the one that the key {} signed",
            signature.key
        );
    }
    Ok(())
}

/// Whether a signature is by the host with this id, for the leg of this token.
pub fn is_of(signature: &Signature, id: NodeId, token: &Token) -> bool {
    let leg = hex(digest(&SHA256, token.as_bytes()).as_ref());
    signer(signature) == Some(id) && signature.leg == leg
}

/// The host whose key a signature has.
fn signer(signature: &Signature) -> Option<NodeId> {
    let spki = unhex(&signature.key).map(|key| [&SPKI_PREFIX[..], &key].concat());
    id_of_spki(&spki?)
}

/// A sentence for each record of a run that is not the signed one, and for each leg whose ends signed different legs.
/// `samples` gives all those of one end of a leg.
///
/// # Errors
/// Those of `samples`.
pub fn verify<E>(
    run: &Run,
    mut samples: impl FnMut(usize, Side, &mut dyn FnMut(&Sample)) -> Result<u64, E>,
) -> Result<Vec<String>, E> {
    let mut wrong = Vec::new();
    for (index, leg) in run.legs.iter().enumerate() {
        let number = index + 1;
        let mut say =
            |what: &str| wrong.push(format!("run {}, leg {number}: {what}", shown(&run.id)));
        for (side, whose) in [
            (Side::Local, "this host"),
            (Side::Remote, "the remote host"),
        ] {
            let Some(signature) = &leg.end(side).signed else {
                continue;
            };
            let id = match side {
                Side::Local => run.local_id,
                Side::Remote => run.remote_id,
            };
            if id.is_some_and(|id| signer(signature) != Some(id)) {
                say(&format!(
                    "{whose} signed with another key than the run names"
                ));
            }
            let mut all = Statement::default();
            let count = samples(index, side, &mut |sample| all.sample(sample))?;
            let taken = leg.end(side).taken();
            if count != taken {
                let why = "and the signature of all cannot be checked";
                say(&format!(
                    "{whose}: {count} of {taken} samples are here, {why}"
                ));
            } else if let Err(why) = check(all, leg, side, signature) {
                say(&format!("{whose}: {why}"));
            }
        }
        if let (Some(local), Some(remote)) = (&leg.local.signed, &leg.remote.signed)
            && local.leg != remote.leg
        {
            say("its ends signed records of different legs");
        }
    }
    Ok(wrong)
}

fn text(leg: &str, sent: bool, at: Nanos, reported: &Digest) -> Vec<u8> {
    let head = format!("{leg} {sent} {}\n", at.0);
    [PURPOSE, head.as_bytes(), reported.as_ref()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::identity_tests::fresh;
    use model::{Bytes, Direction, Ended};

    fn socket() -> SocketOptions {
        let at = ([192, 0, 2, 1], 9).into();
        SocketOptions::new(0, at, at)
    }

    fn block_record() -> model::BlockRecord {
        model::BlockRecord {
            operation: model::BlockOperation::Read,
            latency: model::Latency::default(),
            data: Bytes(0),
            call_send: Nanos(0),
            waited: Nanos(0),
            reply_send: Nanos(0),
            at_server: None,
        }
    }

    #[test]
    fn what_is_changed_afterwards_is_found() {
        let identity = fresh();
        let token = Token::new([7; 32]);
        let mut leg = Leg {
            direction: Direction::Up,
            started: Nanos(0),
            local: EndRecord {
                bytes: Bytes(1000),
                samples: vec![Sample::default(); 3],
                ..EndRecord::default()
            },
            remote: EndRecord::default(),
            ended: Ended::Complete,
        };
        let mut statement = Statement::default();
        leg.local
            .samples
            .iter()
            .for_each(|one| statement.sample(one));
        let signature = statement.sign(&identity, &token, true, &leg.local, &[]);
        assert!(is_of(&signature, identity.id(), &token));
        assert!(!is_of(&signature, fresh().id(), &token));
        assert!(!is_of(&signature, identity.id(), &Token::new([8; 32])));
        leg.local.signed = Some(signature);
        let mut run = Run {
            legs: vec![leg],
            ..Run::default()
        };
        let verify = |run: &Run| {
            let samples = |leg: usize, side, each: &mut dyn FnMut(&Sample)| -> Result<u64> {
                let end = run.legs[leg].end(side);
                end.samples.iter().for_each(each);
                Ok(end.taken())
            };
            verify(run, samples).unwrap()
        };
        assert_eq!(verify(&run), [""; 0]);

        // Through the form in which it is kept.
        let json = serde_json::to_string(&run).unwrap();
        run = serde_json::from_str(&json).unwrap();
        assert_eq!(verify(&run), [""; 0]);

        type Change = fn(&mut Leg);
        let changes: [Change; 16] = [
            |leg| leg.local.bytes.0 += 1,
            |leg| leg.local.duration.0 += 1,
            |leg| leg.local.acknowledged = Some(Nanos(1)),
            |leg| leg.local.requests = Some(model::Latency::default()),
            |leg| leg.local.operations.push(block_record()),
            |leg| leg.local.datagrams = Some(model::Datagrams::default()),
            |leg| leg.local.arrivals = Some(model::Arrivals::default()),
            |leg| leg.local.copy = Some(model::CopyRecord::default()),
            |leg| leg.local.store = Some(model::StoreRecord::default()),
            |leg| leg.local.line = Some(model::LineErrors::default()),
            |leg| leg.local.sockets.push(socket()),
            |leg| leg.local.samples[1].bytes.0 += 1,
            |leg| drop(leg.local.samples.pop()),
            |leg| leg.direction = Direction::Down,
            |leg| leg.local.signed.as_mut().unwrap().at.0 += 1,
            |leg| leg.local.signed.as_mut().unwrap().leg.push('0'),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = run.clone();
            change(&mut changed.legs[0]);
            assert_eq!(verify(&changed).len(), 1, "change {number}");
        }
    }
}
