//! The client's load: a fixed number of calls outstanding at a server of blocks, in any protocol.

use crate::prelude::*;
use crate::spin::is_pause;
use crate::stream::{Tally, counts, latencies};
use hdrhistogram::Histogram;
use model::{BlockClient, BlockOperation, BlockRecord, BlockReply, Blocks, Latency};
use std::collections::BTreeMap;
use sys::poll::{PollFd, poll};
use sys::sched;

/// Bytes that are received at once.
const CHUNK: usize = 1 << 18;
/// An end that was asked for while everything waits is noticed after this.
const LOOK: Duration = Duration::from_millis(100);

/// Asks until the limit, so that `depth` calls are outstanding all the time.
pub(super) fn ask(
    stream: &LoadStream<'_>,
    order: &Blocks,
    client: &mut dyn BlockClient,
    spin: Spin,
) -> Result<(), String> {
    // Timers may be late otherwise; without it they only are.
    let _ = sched::wake_on_time();
    let prepared = stream.socket().set_nonblocking(true);
    prepared.map_err(|error| stream.broken(&error))?;
    let started = Instant::now();
    let mut calls = Calls {
        stream,
        client,
        spin,
        started,
        out: Vec::new(),
        gone: 0,
        outstanding: 0,
        buffer: vec![0; CHUNK],
        records: BTreeMap::new(),
    };
    let result = calls.run(order.depth);
    if stream.phase() == LoadPhase::Cut {
        let lost = calls.outstanding;
        stream.tally(|tally: &mut Tally| tally.unanswered += lost);
    }
    // Signals the end of the requests to the server.
    let _ = stream.socket().shutdown(Shutdown::Write);
    stream.operated(calls.records.into_values().map(Record::finish));
    stream.moved(started, Instant::now());
    match stream.phase() {
        LoadPhase::Cut => Ok(()),
        _ => result,
    }
}

struct Calls<'a> {
    stream: &'a LoadStream<'a>,
    client: &'a mut dyn BlockClient,
    spin: Spin,
    started: Instant,
    out: Vec<u8>,
    /// Of `out`, what the kernel has.
    gone: usize,
    outstanding: u64,
    buffer: Vec<u8>,
    records: BTreeMap<BlockOperation, Record>,
}

impl Calls<'_> {
    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }

    fn run(&mut self, depth: u32) -> Result<(), String> {
        let stream = self.stream;
        loop {
            while self.outstanding < u64::from(depth)
                && stream.phase() == LoadPhase::Running
                && stream.claim(1) == 1
            {
                self.client.ask(self.now(), &mut self.out);
                self.outstanding += 1;
            }
            if self.outstanding == 0 || stream.phase() == LoadPhase::Cut {
                return Ok(());
            }
            self.send().map_err(|error| stream.broken(&error))?;
            let spins = self.gone == self.out.len();
            let spin = if spins { self.spin } else { Spin::NEVER };
            match spin.receive(stream, stream.fd(), &mut self.buffer, || {}) {
                Ok(0) => return Err(stream.broken(&ErrorKind::BrokenPipe.into())),
                Ok(got) => self.recv(got)?,
                Err(error) if is_pause(&error) => {
                    let mut both = [PollFd::new(stream.fd(), true, !spins)];
                    poll(&mut both, Some(LOOK)).map_err(|error| stream.broken(&error))?;
                }
                Err(error) => return Err(stream.broken(&error)),
            }
        }
    }

    /// As much as the kernel takes.
    fn send(&mut self) -> std::io::Result<()> {
        while self.gone < self.out.len() {
            match self.stream.send(self.stream.fd(), &self.out[self.gone..]) {
                Ok(sent) => {
                    self.gone += sent;
                    self.client.sent(self.started.elapsed().into(), sent);
                }
                Err(error) if is_pause(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.gone = 0;
        Ok(())
    }

    fn recv(&mut self, got: usize) -> Result<(), String> {
        let (stream, records, outstanding) =
            (self.stream, &mut self.records, &mut self.outstanding);
        let now = self.started.elapsed().into();
        self.client.recv(now, &self.buffer[..got], &mut |answer| {
            *outstanding = outstanding.saturating_sub(1);
            stream.record(answer.total().into());
            stream.count(answer.data.0 as usize);
            let operation = answer.operation;
            let record = records.entry(operation);
            record
                .or_insert_with(|| Record::new(operation))
                .take(&answer);
        })
    }
}

/// All answers of one operation on this connection; the histograms are counted at the end.
struct Record {
    latency: Histogram<u64>,
    storage: Histogram<u64>,
    sums: BlockRecord,
}

impl Record {
    fn new(operation: BlockOperation) -> Record {
        Record {
            latency: latencies(),
            storage: latencies(),
            sums: BlockRecord {
                operation,
                latency: Latency::default(),
                data: Bytes(0),
                call_send: Nanos(0),
                waited: Nanos(0),
                reply_send: Nanos(0),
                at_server: None,
            },
        }
    }

    fn take(&mut self, answer: &BlockReply) {
        // Only a value beyond what the histogram can ever hold fails: half an eternity.
        let _ = self.latency.record(answer.total().0);
        let sums = &mut self.sums;
        sums.data += answer.data;
        sums.call_send += answer.call_send;
        sums.waited += answer.waited;
        sums.reply_send += answer.reply_send;
        if let Some(one) = answer.at_server {
            let _ = self.storage.record(one.storage.0);
            let all = sums.at_server.get_or_insert_default();
            all.storage_time += one.storage;
            all.queued += one.queued;
        }
    }

    fn finish(mut self) -> BlockRecord {
        self.sums.latency = counts(&self.latency);
        if let Some(all) = &mut self.sums.at_server {
            all.storage = counts(&self.storage);
        }
        self.sums
    }
}
