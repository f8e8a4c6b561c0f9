//! `linerate watch --serve`: the last hour as a page and as metrics.

use crate::prelude::*;
use crate::web::{self, Answers, HTML, METRICS, SiteAnswer};
use report::pages::WatchedHost;
use report::{page, prometheus};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use wire::http::{HttpRequest, Status};

/// What the server shows: what the watch knew last.
pub struct WatchServer {
    latest: Arc<Mutex<WatchedHost>>,
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
        sys::spawn("web", move || {
            if let Err(error) = web::serve(&listener, site, stop) {
                out::note(&format!("linerate: {}", engine::exit::sentence(&error)));
            }
        })
        .context("cannot start the thread that answers browsers")?;
        out::print(&format!(
            "the connections are at http://{address}/ until Ctrl-C, metrics at /metrics\n"
        ))?;
        Ok(WatchServer { latest })
    }

    /// Shows this from now on.
    pub fn update(&mut self, watched: WatchedHost) {
        *sys::lock(&self.latest) = watched;
    }
}
