//! `linerate watch --serve`: the last hour as a page and as metrics.

use crate::prelude::*;
use crate::web::{self, Answers, HTML, METRICS, SiteAnswer};
use model::Nanos;
use model::finding::Limit;
use report::pages::{MINUTES, WatchedHost, WatchedMinute};
use report::{page, prometheus};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use wire::http::{HttpRequest, Status};

const MINUTE: Nanos = Nanos::from_secs(60);

/// What the server shows: what the watch knew last.
pub struct WatchServer {
    latest: Arc<Mutex<WatchedHost>>,
    minutes: VecDeque<WatchedMinute>,
    /// The totals at the begin of the minute.
    before: BTreeMap<Limit, Nanos>,
}

struct WatchSite {
    latest: Arc<Mutex<WatchedHost>>,
    /// It was ordered to listen where others reach it, who may call this machine by any name.
    any_name: bool,
}

impl Answers for WatchSite {
    fn answer(&self, request: &HttpRequest) -> SiteAnswer {
        if !self.any_name && !request.names_no_name() {
            return SiteAnswer::of(Status::Misdirected);
        }
        let latest = sys::lock(&self.latest).clone();
        match request.path.as_str() {
            "/" => SiteAnswer::ok(HTML, page::html(&report::pages::watched(&latest))),
            "/metrics" => {
                let text = prometheus::watched(latest.open, &latest.account, &latest.groups);
                SiteAnswer::ok(METRICS, text)
            }
            _ => SiteAnswer::of(Status::NotFound),
        }
    }
}

impl WatchServer {
    /// Listens there, and answers until `stop` in a thread of its own.
    pub fn begin(address: SocketAddr, stop: &'static AtomicBool) -> Result<WatchServer> {
        let (listener, address) = web::listen(address, "--serve", "the connections of this host")?;
        let latest = Arc::new(Mutex::new(WatchedHost::default()));
        let site = WatchSite {
            latest: Arc::clone(&latest),
            any_name: !address.ip().is_loopback(),
        };
        std::thread::Builder::new()
            .name("web".to_owned())
            .spawn(move || {
                if let Err(error) = web::serve(&listener, site, stop) {
                    out::note(&format!("linerate: {}", engine::exit::sentence(&error)));
                }
            })
            .context("cannot start the thread that answers browsers")?;
        out::print(&format!(
            "the connections are at http://{address}/ until Ctrl-C, metrics at /metrics\n"
        ))?;
        Ok(WatchServer {
            latest,
            minutes: VecDeque::from([WatchedMinute::default()]),
            before: BTreeMap::new(),
        })
    }

    /// Shows this from now on, with the last minutes.
    pub fn update(&mut self, watched: WatchedHost) {
        let now = watched.now;
        let last = self.minutes.back_mut().expect("there is always one");
        if last.begun.0 == 0 {
            last.begun = now;
        }
        let grown = watched.account.limited.iter().map(|(limit, time)| {
            let before = self.before.get(limit).copied().unwrap_or_default();
            (*limit, time.since(before))
        });
        last.limited = grown.filter(|(_, time)| time.0 > 0).collect();
        if now.since(last.begun) >= MINUTE {
            self.before = watched.account.limited.clone();
            self.minutes.push_back(WatchedMinute {
                begun: now,
                ..WatchedMinute::default()
            });
            if self.minutes.len() > MINUTES {
                self.minutes.pop_front();
            }
        }
        *sys::lock(&self.latest) = WatchedHost {
            minutes: self.minutes.iter().cloned().collect(),
            ..watched
        };
    }
}
