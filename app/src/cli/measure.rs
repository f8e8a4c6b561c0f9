//! `linerate measure`: how fast is this path, and what did the kernel see meanwhile?

use super::Global;
use super::live::{View, stdout_style};
use crate::controller;
use crate::exit::{Exit, Refusal, exit_of, sentence};
use crate::host::Host;
use crate::iperf3;
use crate::out;
use crate::progress::{Event, Watcher};
use crate::record::Record;
use crate::transport::{self, How};
use crate::trust;
use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, ValueEnum};
use model::{
    BitRate, Bulk, Bytes, Directions, Ended, Fingerprint, IpVersion, Leg, Limit, Nanos, Placement,
    Request, Run, SCHEMA_VERSION, SocketSettings, Spec, Udp, Wait, Workload,
};
use report::json::Line;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

/// Measure a path: throughput each way, or request latency, with both ends' TCP state
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate measure local                       this machine against itself
  linerate measure db2                         an agent (linerate serve) on db2: up, then down
  linerate measure ssh:me@db2 --bidir -t 30    starts the agent over ssh; both ways at once
  linerate measure db2 --workload request      8 KiB replies, one after the other
  linerate measure db2 --workload request --pace 2000 -P 4 --down
  linerate measure iperf3:speed.example -P 4   any stock iperf3 server
  linerate measure db2 -w 8M -C cubic --json > run.json

HOST is name[:port] (an agent), ssh:[user@]name, iperf3:name[:port] or local.
Sizes take K, M, G (1024-based); rates take K, M, G bits per second (1000-based);
times take s, ms, us, m.")]
#[command(group = ArgGroup::new("direction"), group = ArgGroup::new("end"))]
#[command(group = ArgGroup::new("output"))]
pub struct Measure {
    /// The far end
    host: String,

    /// Only from here to HOST
    #[arg(long, group = "direction", help_heading = "What to measure")]
    up: bool,
    /// Only from HOST to here
    #[arg(long, short = 'R', visible_alias = "reverse", group = "direction")]
    #[arg(help_heading = "What to measure")]
    down: bool,
    /// Both ways at once
    #[arg(long, group = "direction", help_heading = "What to measure")]
    bidir: bool,
    /// What moves
    #[arg(long, value_enum, default_value_t = Kind::Bulk, help_heading = "What to measure")]
    workload: Kind,
    /// Connections, each with a thread of its own
    #[arg(short = 'P', long, visible_alias = "concurrency", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128), value_name = "N")]
    #[arg(help_heading = "What to measure")]
    streams: u32,
    /// How long each leg sends [default: 10s]
    #[arg(
        short = 't',
        long,
        group = "end",
        value_name = "TIME",
        help_heading = "What to measure"
    )]
    time: Option<Nanos>,
    /// Ends a leg after this much, all streams together
    #[arg(
        short = 'n',
        long,
        group = "end",
        value_name = "SIZE",
        help_heading = "What to measure"
    )]
    bytes: Option<Bytes>,
    /// Ends a leg after this many answers (request workload)
    #[arg(
        long,
        group = "end",
        value_name = "N",
        help_heading = "What to measure"
    )]
    requests: Option<u64>,
    /// Start of a leg that the steady figures leave out [default: 2s or 20 round trips]
    #[arg(short = 'O', long, visible_alias = "omit", value_name = "TIME")]
    #[arg(help_heading = "What to measure")]
    ramp: Option<Nanos>,
    /// Time between samples, from 10ms
    #[arg(short = 'i', long, default_value = "1s", value_name = "TIME")]
    #[arg(help_heading = "What to measure")]
    interval: Nanos,

    /// Send and receive buffer of the data sockets, at both ends
    #[arg(short = 'w', long, value_name = "SIZE", help_heading = "Sockets")]
    sockbuf: Option<Bytes>,
    /// Send buffer alone
    #[arg(long, value_name = "SIZE", help_heading = "Sockets")]
    send_buffer: Option<Bytes>,
    /// Receive buffer alone
    #[arg(long, value_name = "SIZE", help_heading = "Sockets")]
    receive_buffer: Option<Bytes>,
    /// Largest segment, in bytes
    #[arg(short = 'M', long, value_name = "BYTES", help_heading = "Sockets")]
    #[arg(value_parser = clap::value_parser!(u32).range(88..=65495))]
    mss: Option<u32>,
    /// Congestion control of the sender
    #[arg(short = 'C', long, value_name = "NAME", help_heading = "Sockets")]
    congestion: Option<String>,
    /// Send small segments at once (TCP_NODELAY); always on for requests
    #[arg(short = 'N', long, help_heading = "Sockets")]
    nodelay: bool,
    /// Highest rate of each stream, paced by the kernel
    #[arg(long, value_name = "RATE", help_heading = "Sockets")]
    pacing: Option<BitRate>,
    /// Differentiated services code point: 0 to 63, or a name like EF, AF21, CS1
    #[arg(long, value_name = "DSCP", value_parser = parse_dscp, help_heading = "Sockets")]
    dscp: Option<u8>,
    /// Only IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6", help_heading = "Sockets")]
    ipv4: bool,
    /// Only IPv6
    #[arg(short = '6', long, help_heading = "Sockets")]
    ipv6: bool,

    /// Source address here
    #[arg(short = 'B', long, value_name = "ADDRESS", help_heading = "Placement")]
    bind: Option<IpAddr>,
    /// Network device here
    #[arg(long, value_name = "DEVICE", help_heading = "Placement")]
    bind_device: Option<String>,
    /// Processors for the stream threads here, like 0,2
    #[arg(
        short = 'A',
        long,
        value_delimiter = ',',
        value_name = "LIST",
        help_heading = "Placement"
    )]
    cpus: Vec<u32>,
    /// Processors for the stream threads at HOST
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        help_heading = "Placement"
    )]
    far_cpus: Vec<u32>,

    /// Bytes a write [default: adapts, up to 1M]
    #[arg(short = 'l', long, value_name = "SIZE", help_heading = "Bulk")]
    write_size: Option<Bytes>,
    /// The receiver discards in the kernel: measures the path, not the reader
    #[arg(long, help_heading = "Bulk")]
    discard: bool,
    /// The sender asks for zero-copy
    #[arg(short = 'Z', long, help_heading = "Bulk")]
    zerocopy: bool,

    /// Bytes of a request
    #[arg(
        long,
        default_value = "128",
        value_name = "SIZE",
        help_heading = "Requests"
    )]
    request_size: Bytes,
    /// Bytes of a reply
    #[arg(
        long,
        default_value = "8K",
        value_name = "SIZE",
        help_heading = "Requests"
    )]
    reply_size: Bytes,
    /// Requests a second, all connections together [default: closed loop]
    #[arg(long, value_name = "N", help_heading = "Requests")]
    pace: Option<f64>,
    /// A new connection for every request
    #[arg(long, help_heading = "Requests")]
    reconnect: bool,
    /// How both ends wait for data
    #[arg(long, value_enum, default_value_t = WaitArg::Hybrid, help_heading = "Requests")]
    wait: WaitArg,

    /// Rate of each stream of datagrams (workload udp, iperf3 only)
    #[arg(
        short = 'b',
        long,
        default_value = "1M",
        value_name = "RATE",
        help_heading = "Datagrams"
    )]
    rate: BitRate,
    /// Payload of a datagram
    #[arg(
        long,
        default_value = "1448",
        value_name = "SIZE",
        help_heading = "Datagrams"
    )]
    datagram_size: Bytes,

    /// How ssh is to start linerate at the other end [default: linerate]
    #[arg(long, value_name = "COMMAND", help_heading = "Placement")]
    remote_command: Option<String>,

    #[command(flatten)]
    iperf3: iperf3::client::Options,

    /// A note kept with the run
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    title: Option<String>,
    /// The whole run as JSON
    #[arg(short = 'J', long, group = "output", help_heading = "Output")]
    json: bool,
    /// One JSON object a line, as it happens
    #[arg(long, group = "output", help_heading = "Output")]
    json_stream: bool,
    /// The run in the shape of iperf3's JSON
    #[arg(long, group = "output", help_heading = "Output")]
    iperf3_json: bool,
    /// The same as a stream, one object a line
    #[arg(long, group = "output", help_heading = "Output")]
    iperf3_json_stream: bool,
    /// No live view
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// As much as fits
    Bulk,
    /// Requests, each answered
    Request,
    /// Datagrams at a set rate
    Udp,
}

#[derive(Clone, Copy, ValueEnum)]
enum WaitArg {
    /// Spin some tens of microseconds, then sleep: what the network takes
    Hybrid,
    /// Sleep at once: what a sleeping server takes
    Block,
}

impl Measure {
    /// Runs the command.
    ///
    /// # Errors
    /// If nothing was measured. If something was, it is printed and kept, and the exit code tells
    /// that it is not all.
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let spec = self.spec().map_err(|e| Refusal::usage(e.to_string()))?;
        let host: Host = self.host.parse()?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let mut run = Run {
            schema: SCHEMA_VERSION,
            id: archive::new_id(),
            started: unix_time(),
            host: self.host.clone(),
            title: self.title.clone(),
            spec,
            near: Fingerprint::default(),
            far: None,
            legs: Vec::new(),
            warnings: Vec::new(),
            ended: Ended::Unfinished,
        };
        let mut view = View::new(&run.spec, self.quiet);
        let mut record = Record::new(global.archive_path(), &run);
        let mut stream = self.json_stream.then(|| Stream::begin(&run));
        let mut iperf3_stream = self
            .iperf3_json_stream
            .then(|| iperf3::stream::Stream::begin(&run));
        let mut watchers: Vec<&mut dyn Watcher> = vec![&mut view, &mut record];
        watchers.extend(stream.as_mut().map(|s| s as &mut dyn Watcher));
        watchers.extend(iperf3_stream.as_mut().map(|s| s as &mut dyn Watcher));

        let outcome = self.play(&host, global, &mut run, &mut Tee(watchers), stop);
        drop(view);
        run.ended = match &outcome {
            Err(error) => Ended::Failed {
                why: sentence(error),
            },
            Ok(()) => worst(&run.legs),
        };
        let outcome = match outcome {
            // Nothing was measured: the error is the whole story.
            Err(error) if run.legs.is_empty() => {
                record.discard();
                return Err(error);
            }
            outcome => outcome,
        };
        run.warnings.extend(record.finish(&run));
        self.print(&run)?;
        Ok(match (outcome, &run.ended) {
            (_, Ended::Interrupted) => Exit::Interrupted,
            (Ok(()), Ended::Complete) => Exit::Done,
            (Ok(()), _) => Exit::Failed,
            (Err(error), _) => exit_of(&error),
        })
    }

    fn play(
        &self,
        host: &Host,
        global: &Global,
        run: &mut Run,
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<()> {
        if let Host::Iperf3 { name, port } = host {
            return iperf3::client::play(name, *port, run, &self.iperf3, watcher, stop);
        }
        if let Workload::Udp(_) = run.spec.workload {
            return Err(Refusal::usage(
                "datagrams are measured with iperf3 peers only: linerate measure iperf3:HOST --workload udp",
            )
            .into());
        }
        let how = How {
            directory: trust::directory(global.config.as_deref())?,
            ip_version: run.spec.socket.ip_version,
            placement: &run.spec.near.clone(),
            remote_command: self.remote_command.as_deref(),
            stop: Some(stop),
        };
        let reached = transport::connect(host, &how)?;
        run.near = observe::fingerprint(transport::VERSION, reached.addresses.first().copied());
        controller::measure(reached, run, watcher, stop)
    }

    fn print(&self, run: &Run) -> Result<()> {
        let summary = model::summarise(run);
        out::print(&if self.json {
            report::json::run(run, &summary)
        } else if self.json_stream {
            Line::end(run, &summary).print()
        } else if self.iperf3_json {
            report::iperf3::to_json(run, &summary)
        } else if self.iperf3_json_stream {
            report::iperf3::stream_end(run, &summary)
        } else {
            report::summary(run, &summary, stdout_style())
        })
    }

    /// The order that the options describe.
    fn spec(&self) -> Result<Spec> {
        let workload = match self.workload {
            Kind::Bulk => Workload::Bulk(Bulk {
                write_size: self.write_size,
                discard: self.discard,
                zerocopy: self.zerocopy,
            }),
            Kind::Request => Workload::Request(self.request()?),
            Kind::Udp => Workload::Udp(Udp {
                rate: self.rate,
                datagram_size: self.datagram_size,
            }),
        };
        let limit = match (self.time, self.bytes, self.requests) {
            (_, Some(bytes), _) => Limit::Bytes(bytes),
            (_, _, Some(requests)) => Limit::Requests(requests),
            (time, None, None) => Limit::Time(time.unwrap_or(Nanos::from_secs(10))),
        };
        match (&workload, limit) {
            (Workload::Bulk(_) | Workload::Udp(_), Limit::Requests(_)) => {
                bail!("--requests counts answers: add --workload request, or end with --bytes")
            }
            (Workload::Request(_), Limit::Bytes(_)) => {
                bail!(
                    "--bytes ends a bulk transfer: end the request workload with --requests or --time"
                )
            }
            (_, Limit::Time(Nanos(0)) | Limit::Bytes(Bytes(0)) | Limit::Requests(0)) => {
                bail!("a leg of nothing measures nothing: give a time, size or count above 0")
            }
            _ => {}
        }
        if self.interval < Nanos::from_millis(10) {
            bail!(
                "--interval {}: samples can be taken every 10 ms at the most",
                self.interval
            );
        }
        Ok(Spec {
            directions: self.directions(),
            workload,
            streams: self.streams,
            limit,
            ramp: self.ramp,
            interval: self.interval,
            socket: SocketSettings {
                send_buffer: self.send_buffer.or(self.sockbuf),
                receive_buffer: self.receive_buffer.or(self.sockbuf),
                mss: self.mss,
                congestion: self.congestion.clone(),
                nodelay: self.nodelay.then_some(true),
                pacing: self.pacing,
                dscp: self.dscp,
                ip_version: match (self.ipv4, self.ipv6) {
                    (true, _) => Some(IpVersion::V4),
                    (_, true) => Some(IpVersion::V6),
                    _ => None,
                },
            },
            near: Placement {
                bind_address: self.bind,
                bind_device: self.bind_device.clone(),
                cpus: self.cpus.clone(),
            },
            far: Placement {
                cpus: self.far_cpus.clone(),
                ..Placement::default()
            },
        })
    }

    fn directions(&self) -> Directions {
        match (self.up, self.down, self.bidir) {
            (true, _, _) => Directions::Up,
            (_, true, _) => Directions::Down,
            (_, _, true) => Directions::Bidirectional,
            // A request and its answer use both directions already.
            _ if self.workload == Kind::Request => Directions::Up,
            _ => Directions::UpThenDown,
        }
    }

    fn request(&self) -> Result<Request> {
        if self.request_size < Request::MIN_SIZE {
            bail!(
                "--request-size {}: the smallest request has {}",
                self.request_size,
                Request::MIN_SIZE
            );
        }
        let largest = Bytes(1 << 30);
        if self.reply_size == Bytes(0) || self.reply_size > largest || self.request_size > largest {
            bail!("--request-size and --reply-size go from 1 byte to {largest}");
        }
        if self.pace.is_some_and(|pace| !(pace > 0.0 && pace <= 1e7)) {
            bail!("--pace is in requests a second, above 0 and up to 10 million");
        }
        Ok(Request {
            request_size: self.request_size,
            reply_size: self.reply_size,
            pace_per_s: self.pace,
            reconnect: self.reconnect,
            wait: match self.wait {
                WaitArg::Hybrid => Wait::Hybrid,
                WaitArg::Block => Wait::Block,
            },
        })
    }
}

/// Tells everything to each of several watchers.
struct Tee<'a>(Vec<&'a mut dyn Watcher>);

impl Watcher for Tee<'_> {
    fn event(&mut self, event: &Event<'_>) {
        for watcher in &mut self.0 {
            watcher.event(event);
        }
    }
}

/// Prints what happens as JSON, an object a line.
struct Stream;

impl Stream {
    fn begin(run: &Run) -> Stream {
        Stream.line(&Line::start(run));
        Stream
    }

    /// A reader that is gone does not stop the measurement: the archive keeps it.
    fn line(&self, line: &Line<'_>) {
        let _ = out::print(&line.print());
    }
}

impl Watcher for Stream {
    fn event(&mut self, event: &Event<'_>) {
        self.line(&match *event {
            Event::Hosts { near, far } => Line::Hosts { near, far },
            Event::LegStarted {
                index: leg,
                direction,
            } => Line::LegStarted { leg, direction },
            Event::Sample {
                index: leg,
                side,
                sample,
            } => Line::Sample { leg, side, sample },
            Event::LegEnded { index, leg } => Line::leg_ended(index, leg),
            Event::Warning(warning) => Line::Warning { warning },
            Event::Waiting(what) => Line::Waiting { what },
        });
    }
}

/// How the run ended that these legs make: one that failed outweighs one that was interrupted.
fn worst(legs: &[Leg]) -> Ended {
    let failed = legs
        .iter()
        .find(|leg| matches!(leg.ended, Ended::Failed { .. }));
    let not_whole = || legs.iter().find(|leg| leg.ended != Ended::Complete);
    failed
        .or_else(not_whole)
        .map_or(Ended::Complete, |leg| leg.ended.clone())
}

fn unix_time() -> Nanos {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .into()
}

/// A code point as a number or by its name (RFC 2474 class selectors, RFC 2597 assured, RFC 3246
/// expedited forwarding, RFC 8622 lower effort).
fn parse_dscp(text: &str) -> Result<u8, String> {
    let upper = text.to_ascii_uppercase();
    let digit = |at: usize| upper.as_bytes().get(at).map(|d| d.wrapping_sub(b'0'));
    let named = match (upper.as_str(), upper.len()) {
        ("BE" | "DF", _) => Some(0),
        ("EF", _) => Some(46),
        ("LE", _) => Some(1),
        (name, 3) if name.starts_with("CS") => digit(2).filter(|c| *c <= 7).map(|c| c * 8),
        (name, 4) if name.starts_with("AF") => match (digit(2), digit(3)) {
            (Some(class @ 1..=4), Some(drop @ 1..=3)) => Some(class * 8 + drop * 2),
            _ => None,
        },
        _ => text.parse().ok().filter(|n| *n <= 63),
    };
    named.ok_or_else(|| "a code point is 0 to 63 or a name: CS0-CS7, AF11-AF43, EF, LE".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_dscp;

    #[test]
    fn code_points_by_number_and_name() {
        for (text, code) in [
            ("0", 0),
            ("46", 46),
            ("ef", 46),
            ("AF21", 18),
            ("cs1", 8),
            ("LE", 1),
        ] {
            assert_eq!(parse_dscp(text), Ok(code), "{text}");
        }
        for bad in ["64", "-1", "AF51", "AF14", "CS8", "X", ""] {
            assert!(parse_dscp(bad).is_err(), "{bad}");
        }
    }
}
