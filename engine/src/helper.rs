//! The processes beside the one of a server that talks to the network: they do for it what takes a privilege, over a socket
//! pair, and take nothing but the messages of this file.

use crate::listener::log;
use crate::prelude::*;
use crate::traces::{Ends, KeptTrace, OwnTracing};
use crate::tune_rules::Rules;
use crate::tuning::{Controller, Tuner, refused};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::Traced;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use sys::privilege;
use wire::control::{Origin, TuneOutcome, TuneRequest};

/// Longest request: one of the control protocol is shorter than 1 MiB.
const MOST_REQUEST: usize = 2 << 20;

/// Longest answer: a trace has at most [`crate::traces::MOST_EVENTS`].
const MOST_ANSWER: usize = 256 << 20;

/// Sessions that tune and traces that are taken at once: more than a server has sessions.
const MOST_AT_ONCE: usize = 128;

/// For an answer: settings of a slow device, and a guard that has to start.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

/// To the process that changes settings.
#[derive(Serialize, Deserialize)]
enum ToTuner {
    Act(Controller, Origin, TuneRequest),
    /// A leg of this session is under way.
    GoesOn(u64),
    /// The session is over.
    End(u64),
}

/// To the process that traces.
#[derive(Serialize, Deserialize)]
enum ToTracer {
    /// Trace what comes to and from this port, under this number.
    Start(u64, u16),
    /// These are the sockets of that trace.
    Own(u64, Vec<Ends>),
    /// The trace so far, in base64, and its end.
    Finish(u64),
    /// Its end: nobody wants it.
    Drop(u64),
}

/// What does for this process what takes a privilege: nothing, where it does all itself.
#[derive(Clone, Default)]
pub struct Helpers {
    /// Changes settings.
    pub tuner: Option<Arc<Helper>>,
    /// Takes traces.
    pub tracer: Option<Arc<Helper>>,
}

/// A helper, as its user sees it.
pub struct Helper {
    name: &'static str,
    socket: Mutex<UnixStream>,
    is_gone: AtomicBool,
}

impl Helpers {
    /// Starts those that have the rights for it; the tuner if it is to be one, bound by these rules. This process must
    /// have one thread.
    pub fn start(tune: Option<Rules>) -> Result<Helpers> {
        let mut helpers = Helpers::default();
        if let Some(rules) = tune {
            let has_rights = privilege::PrivilegedHelper::Tuner.has_rights()?;
            if !has_rights {
                log("the capability CAP_NET_ADMIN is missing: settings cannot be changed");
            }
            let mut tuners: BTreeMap<u64, Tuner> = BTreeMap::new();
            let act = move |request| tune_for(&mut tuners, &rules, request);
            helpers.tuner = Some(Helper::start(
                privilege::PrivilegedHelper::Tuner,
                "tuner",
                act,
            )?);
        }
        if privilege::PrivilegedHelper::Tracer.has_rights()? {
            let owner = std::process::id();
            let mut traces = BTreeMap::new();
            let act = move |request| trace_for(&mut traces, owner, request);
            helpers.tracer = Some(Helper::start(
                privilege::PrivilegedHelper::Tracer,
                "tracer",
                act,
            )?);
        }
        Ok(helpers)
    }

    /// Whether one died that was there.
    pub fn lost(&self) -> Option<&'static str> {
        let all = [&self.tuner, &self.tracer];
        let lost = |helper: &&Arc<Helper>| helper.is_gone.load(Ordering::Relaxed);
        all.into_iter()
            .flatten()
            .find(lost)
            .map(|helper| helper.name)
    }
}

impl Helper {
    fn start<Q: DeserializeOwned, A: Serialize>(
        which: privilege::PrivilegedHelper,
        name: &'static str,
        mut act: impl FnMut(Q) -> A,
    ) -> Result<Arc<Helper>> {
        let failed = || format!("cannot start the {name} of this server");
        let socket = which.start(move |mut socket| {
            // Its other rights are given up.
            if send(&mut socket, &()).is_err() {
                return;
            }
            // Nobody is there any more, or it is none of ours.
            while let Ok(request) = receive(&mut socket, MOST_REQUEST) {
                if send(&mut socket, &act(request)).is_err() {
                    break;
                }
            }
        });
        let mut socket = socket.with_context(failed)?;
        socket.set_read_timeout(Some(ANSWERED_WITHIN))?;
        let () = receive(&mut socket, 16).with_context(failed)?;
        Ok(Arc::new(Helper {
            name,
            socket: Mutex::new(socket),
            is_gone: AtomicBool::new(false),
        }))
    }

    fn request<A: DeserializeOwned>(&self, request: &impl Serialize) -> Result<A, String> {
        let mut socket = sys::lock(&self.socket);
        let gone = || {
            format!(
                "the {} of this server is gone: it has to be started again",
                self.name
            )
        };
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(gone());
        }
        let answer = send(&mut socket, request).and_then(|()| receive(&mut socket, MOST_ANSWER));
        answer.map_err(|_| {
            // Half of an answer may be left in the socket.
            self.is_gone.store(true, Ordering::Relaxed);
            gone()
        })
    }

    /// Has the tuner do what the controller requests.
    pub fn tune(&self, by: &Controller, origin: &Origin, request: TuneRequest) -> TuneOutcome {
        let request = ToTuner::Act(by.clone(), origin.clone(), request);
        self.request(&request).unwrap_or_else(refused)
    }

    /// A leg of this session is under way.
    pub fn goes_on(&self, session: u64) {
        // Whether it lives shows when something is to be changed.
        let _: Result<TuneOutcome, _> = self.request(&ToTuner::GoesOn(session));
    }

    /// A session is over, and what it changed is undone.
    pub fn end(&self, session: u64) {
        // Without it, its guard does that.
        let _: Result<TuneOutcome, _> = self.request(&ToTuner::End(session));
    }
}

fn tune_for(tuners: &mut BTreeMap<u64, Tuner>, rules: &Rules, request: ToTuner) -> TuneOutcome {
    let done = TuneOutcome {
        done: Ok(Vec::new()),
        shared: false,
    };
    match request {
        ToTuner::Act(by, origin, request) => {
            if tuners.len() >= MOST_AT_ONCE && !tuners.contains_key(&by.session) {
                return refused("too many sessions tune this host".to_owned());
            }
            let tuner = tuners.entry(by.session);
            let tuner = tuner.or_insert_with(|| Tuner::new(by, Some(rules.clone())));
            tuner.answer(&origin, request)
        }
        ToTuner::GoesOn(session) => {
            if let Some(tuner) = tuners.get_mut(&session) {
                tuner.goes_on();
            }
            done
        }
        ToTuner::End(session) => {
            tuners.remove(&session);
            done
        }
    }
}

/// A trace that the tracer takes.
pub struct HelperTrace {
    tracer: Arc<Helper>,
    number: u64,
    /// The tracer has ended it.
    is_over: bool,
}

type TraceAnswer = Result<Option<(Traced, String)>, String>;

impl HelperTrace {
    /// Begins one.
    pub fn start(tracer: &Arc<Helper>, port: u16) -> Result<HelperTrace> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let tracing = HelperTrace {
            tracer: Arc::clone(tracer),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            is_over: false,
        };
        tracing.ask(ToTracer::Start(tracing.number, port))?;
        Ok(tracing)
    }

    /// Of these sockets.
    pub fn own(&self, ends: impl Iterator<Item = Ends>) {
        // The end of the trace says what is wrong.
        let _ = self.ask(ToTracer::Own(self.number, ends.collect()));
    }

    /// Ends it.
    pub fn finish(mut self) -> Result<KeptTrace> {
        let kept = self.ask(ToTracer::Finish(self.number));
        self.is_over = kept.is_ok();
        let kept = kept?;
        let (traced, bytes) = kept.context("the tracer gave no trace")?;
        let bytes = BASE64.decode(bytes).context("the tracer gave no trace")?;
        Ok(KeptTrace { traced, bytes })
    }

    fn ask(&self, request: ToTracer) -> Result<Option<(Traced, String)>> {
        let answer: TraceAnswer = self.tracer.request(&request).map_err(|why| anyhow!(why))?;
        answer.map_err(|why| anyhow!(why))
    }
}

impl Drop for HelperTrace {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.ask(ToTracer::Drop(self.number));
        }
    }
}

fn trace_for(traces: &mut BTreeMap<u64, OwnTracing>, owner: u32, request: ToTracer) -> TraceAnswer {
    let act = || -> Result<Option<(Traced, String)>> {
        match request {
            ToTracer::Start(..) if traces.len() >= MOST_AT_ONCE => {
                bail!("too many traces are taken")
            }
            ToTracer::Start(number, port) => {
                traces.insert(number, OwnTracing::start(port, owner)?);
            }
            ToTracer::Own(number, ends) => {
                if let Some(tracing) = traces.get(&number) {
                    tracing.own(ends.into_iter());
                }
            }
            ToTracer::Finish(number) => {
                let tracing = traces.remove(&number).context("there is no such trace")?;
                let KeptTrace { traced, bytes } = tracing.finish()?;
                return Ok(Some((traced, BASE64.encode(bytes))));
            }
            ToTracer::Drop(number) => drop(traces.remove(&number)),
        }
        Ok(None)
    };
    act().map_err(|error| sentence(&error))
}

fn send(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    socket.write_all(&length.to_le_bytes())?;
    socket.write_all(&text)
}

fn receive<T: DeserializeOwned>(socket: &mut UnixStream, most: usize) -> io::Result<T> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    // No more memory than has come.
    socket.take(length as u64).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Peer;
    use crate::tune_rules::Rules;
    use std::net::Ipv4Addr;

    #[test]
    fn so_many_sessions_tune_a_host_and_no_more() {
        let rules = Rules {
            file: "/nowhere".into(),
            required: false,
        };
        let mut tuners = BTreeMap::new();
        let mut act = |session: usize| {
            let by = Controller::of(&Peer {
                session: session as u64,
                ..Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None)
            });
            let request = ToTuner::Act(by, Origin::default(), TuneRequest::Renew);
            tune_for(&mut tuners, &rules, request).done.unwrap_err()
        };
        let full = "too many sessions tune this host";
        for session in 0..MOST_AT_ONCE {
            assert_ne!(act(session), full, "{session}");
        }
        assert_eq!(act(MOST_AT_ONCE), full);
        assert_ne!(act(0), full, "it is one of them");
    }

    #[test]
    fn a_message_is_as_long_as_it_says_and_not_too_long() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        send(&mut ours, &ToTracer::Start(3, 5210)).unwrap();
        let got: ToTracer = receive(&mut theirs, 64).unwrap();
        assert!(matches!(got, ToTracer::Start(3, 5210)));

        for (text, most, fits) in [("\"abcd\"", 6, true), ("\"abcde\"", 6, false)] {
            ours.write_all(&(text.len() as u32).to_le_bytes()).unwrap();
            ours.write_all(text.as_bytes()).unwrap();
            let got: io::Result<String> = receive(&mut theirs, most);
            assert_eq!(got.is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn a_helper_that_answers_nothing_is_gone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let helper = Arc::new(Helper {
            name: "tracer",
            socket: Mutex::new(ours),
            is_gone: AtomicBool::new(false),
        });
        let helpers = Helpers {
            tracer: Some(Arc::clone(&helper)),
            tuner: None,
        };
        assert_eq!(helpers.lost(), None);
        let error = HelperTrace::start(&helper, 1).err().unwrap();
        assert_eq!(
            error.to_string(),
            "the tracer of this server is gone: it has to be started again"
        );
        assert_eq!(helpers.lost(), Some("tracer"));
    }
}
