//! A measurement between two other hosts.

use super::Measure;
use crate::prelude::*;
use engine::histories;
use engine::host_calendar::BUSY_FOR;
use engine::third_party::{self, Pair, PairOrder};
use model::Warning;
use report::live::Live;

impl Measure {
    /// Has the agent at HOST measure towards the one at `to`; this host only orders it and keeps the run as well.
    pub(super) fn between(&self, to: &str, global: &Global) -> Result<ExitCode> {
        let (source, destination) = (self.host.parse::<Host>()?, to.parse::<Host>()?);
        let spec = self.options.spec(&destination)?;
        self.can_order(&source, &destination, &spec)?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let mut run = self.order_between(&source, &destination, spec, global, stop)?;
        let kept = Archive::open(&global.archive_path()?).and_then(|mut archive| {
            archive.import(&run)?;
            histories::refresh(&mut archive, |path| path.is_of(&run))
        });
        if let Err(error) = &kept {
            run.warnings.push(Warning {
                what: format!("the run is not kept here: {error}"),
                meaning: format!("{source} keeps it, the archive of this host does not"),
                remedy: format!("fix that, then: linerate runs fetch {source}"),
            });
        }
        self.print(&run, &explain::explain(&run))?;
        let exit = match &run.ended {
            Ended::Interrupted => Exit::Interrupted,
            Ended::Complete if kept.is_ok() => Exit::Done,
            _ => Exit::Failed,
        };
        Ok(exit.into())
    }

    fn order_between(
        &self,
        source: &Host,
        destination: &Host,
        spec: Spec,
        global: &Global,
        stop: &AtomicBool,
    ) -> Result<model::Run> {
        let how = self.reaching.how(global, stop)?;
        let (mut from, _) = third_party::connect(source, &how)?;
        let (mut towards, to) = third_party::connect(destination, &how)?;
        let mut view = View::new(Live::new(&spec), self.output.quiet);
        let order = PairOrder {
            slot: archive::new_id(),
            spec,
            is_mtu: false,
            to,
            outage: self.outage,
            title: self.output.title.clone(),
            patience: BUSY_FOR,
            ends: None,
            confirmed: &|| Ok(()),
            ordered: &|| {},
        };
        let mut pair = Pair {
            source: &mut from,
            destination: &mut towards,
        };
        let result = pair.measure(&order, &mut view, stop)?;
        Ok(result.run().expect("no MTU was ordered"))
    }

    /// What makes no sense between two other hosts.
    fn can_order(&self, source: &Host, destination: &Host, spec: &Spec) -> Result<()> {
        if source == destination {
            refuse!("{source} and {destination} are one host: name two");
        }
        if self.options.corners().is_some() || self.options.depths().is_some() {
            refuse!("a series of runs is measured from here alone: name one host");
        }
        if self.output.json_stream || self.output.iperf3_json_stream {
            refuse!("a stream of events is printed of runs from here alone: use --json");
        }
        if spec.trace {
            refuse!("--trace records the ends of runs from here alone: name one host");
        }
        third_party::span(spec)?;
        Ok(())
    }
}
