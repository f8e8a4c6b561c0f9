//! The columns of a run's samples as a table, for every form in which they leave.

use crate::words::escape;
use model::socket::{FIELDS, FieldValue};
use model::{Datagrams, Latency, Leg, MeshLeg, Run, Sample, Side, StreamSample};

/// Whose samples they are.
#[derive(Clone, Copy)]
pub struct SamplesOf<'a> {
    /// The run; its samples are not read.
    pub run: &'a Run,
    /// Number of the leg in the run, from 0.
    pub index: usize,
    /// Which end of the leg.
    pub side: Side,
    /// The leg as one of a mesh.
    pub mesh: Option<&'a MeshLeg>,
}

impl SamplesOf<'_> {
    fn leg(&self) -> Option<&Leg> {
        self.run.legs.get(self.index)
    }

    /// The name of the host that sends, or makes the requests; or of the other one.
    fn host(&self, is_sender: bool) -> String {
        let sender = self.leg().map(|leg| leg.direction.sender());
        escape(match (self.mesh, is_sender) {
            (Some(leg), true) => &leg.src,
            (Some(leg), false) => &leg.dst,
            (None, _) if (sender == Some(Side::Local)) == is_sender => &self.run.local.hostname,
            (None, _) => &self.run.host,
        })
    }
}

/// What a row is of.
pub(crate) struct StreamRow<'a> {
    pub of: SamplesOf<'a>,
    pub sample: &'a Sample,
    pub stream: Option<&'a StreamSample>,
}

/// A row for each stream of a sample, or one if it has none.
pub(crate) fn rows<'a>(
    of: SamplesOf<'a>,
    sample: &'a Sample,
) -> impl Iterator<Item = StreamRow<'a>> {
    let none = sample.streams.is_empty().then_some(None);
    let streams = sample.streams.iter().map(Some).chain(none);
    streams.map(move |stream| StreamRow { of, sample, stream })
}

type TextColumn = (&'static str, fn(&SamplesOf<'_>) -> String);
type NumberColumn = (&'static str, fn(&StreamRow<'_>) -> Option<u64>);

/// The first columns: text, the same in all rows of an end.
pub(crate) const TEXTS: [TextColumn; 8] = [
    ("run_id", |of| escape(&of.run.id)),
    ("host", |of| escape(&of.run.host)),
    ("mesh", |of| {
        of.mesh.map_or(String::new(), |leg| escape(&leg.mesh))
    }),
    ("test", |of| {
        of.mesh.map_or(String::new(), |leg| escape(&leg.test))
    }),
    ("src", |of| of.host(true)),
    ("dst", |of| of.host(false)),
    ("direction", |of| {
        of.leg()
            .map_or(String::new(), |leg| leg.direction.to_string())
    }),
    ("side", |of| of.side.to_string()),
];

/// The column of the run's start, since 1970-01-01 UTC.
pub(crate) const STARTED: &str = "started_unix_ns";

/// Those that follow, before the ones of the socket ([`socket`]).
pub(crate) const NUMBERS: [NumberColumn; 23] = [
    (STARTED, |r| Some(r.of.run.started.0)),
    ("leg", |r| Some(r.of.index as u64)),
    ("at_ns", |r| Some(r.sample.at.0)),
    ("stream", |r| Some(r.stream?.stream.into())),
    ("bytes", |r| Some(r.stream?.bytes.0)),
    ("send_buffer", |r| Some(r.stream?.send_buffer?.0)),
    ("receive_buffer", |r| Some(r.stream?.receive_buffer?.0)),
    ("end_bytes", |r| Some(r.sample.bytes.0)),
    ("end_process_user_ns", |r| Some(r.sample.cpu.process_user.0)),
    ("end_process_system_ns", |r| {
        Some(r.sample.cpu.process_system.0)
    }),
    ("end_host_busy_ns", |r| Some(r.sample.cpu.host_busy.0)),
    ("end_busiest_processor_ns", |r| {
        Some(r.sample.cpu.busiest_processor?.0)
    }),
    ("end_host_softirq_ns", |r| Some(r.sample.cpu.host_softirq.0)),
    ("end_host_steal_ns", |r| Some(r.sample.cpu.host_steal.0)),
    ("end_host_total_ns", |r| Some(r.sample.cpu.host_total.0)),
    ("end_requests", |r| Some(requests(r)?.count())),
    ("end_request_p50_ns", |r| {
        Some(requests(r)?.percentile(0.5)?.0)
    }),
    ("end_request_p99_ns", |r| {
        Some(requests(r)?.percentile(0.99)?.0)
    }),
    ("end_request_max_ns", |r| Some(requests(r)?.max()?.0)),
    ("end_datagrams", |r| Some(datagrams(r)?.packets)),
    ("end_datagrams_lost", |r| Some(datagrams(r)?.lost)),
    ("end_datagrams_out_of_order", |r| {
        Some(datagrams(r)?.out_of_order)
    }),
    ("end_jitter_ns", |r| Some(datagrams(r)?.jitter.0)),
];

/// The names of the columns behind the text: [`NUMBERS`], and those of the socket.
pub(crate) fn number_names() -> impl Iterator<Item = String> {
    let numbers = NUMBERS.iter().map(|(name, _)| (*name).to_owned());
    numbers.chain(FIELDS.iter().map(|field| format!("tcp_{}", field.name)))
}

/// The values of the columns of the socket.
pub(crate) fn socket<'a>(row: &StreamRow<'a>) -> impl Iterator<Item = Option<FieldValue>> {
    let tcp = row.stream.and_then(|stream| stream.tcp.as_ref());
    FIELDS.iter().map(move |field| tcp.and_then(field.get))
}

fn datagrams(row: &StreamRow<'_>) -> Option<Datagrams> {
    row.sample.datagrams
}

fn requests<'a>(row: &StreamRow<'a>) -> Option<&'a Latency> {
    row.sample.requests.as_ref()
}
