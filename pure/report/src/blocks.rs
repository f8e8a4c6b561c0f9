//! What a person reads of reads and writes of blocks: by operation how many, how long, and where the time went.

use crate::requests;
use crate::words::{Style, escape, glue, grouped, percent, table, three_digits, wrap};
use model::request::Links;
use model::{BlockSummary, Blocks, Nanos, Wait};

/// The operations, those first that took the most time, and how the split is to be read.
pub(crate) fn operations(operations: &[BlockSummary], links: &Links, style: Style) -> String {
    if operations.is_empty() {
        return String::new();
    }
    let heads = [
        "operation",
        "count",
        "a second",
        "data",
        "p50",
        "p99",
        "longest",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(operations.iter().map(|one| {
        vec![
            one.operation.name().to_owned(),
            grouped(one.latency.count),
            three_digits(one.latency.per_s),
            one.data
                .map_or_else(|| "-".to_owned(), |rate| rate.to_string()),
            one.latency.p50.to_string(),
            one.latency.p99.to_string(),
            one.latency.max.to_string(),
        ]
    }));
    let mut out = table(&rows);
    let how = "Where the time went, by the client's clock (think time has the queues of the path and of the server in it; \
               there and back is the shortest round trip, half each way):";
    out.push_str(&wrap(how, style.width, "", ""));
    for one in operations {
        let total = one.parts.total().0.max(1) as f64;
        let share = |(name, time): &(&str, Nanos)| {
            format!("{name} {}", glue(percent(time.0 as f64 / total)))
        };
        let parts: Vec<String> = one.parts.each().iter().map(share).collect();
        let ideal = one
            .latency
            .ideal
            .map_or_else(String::new, |ideal| format!("ideal {}, ", glue(ideal)));
        let line = format!(
            "{}: {ideal}measured {}: {}",
            one.operation.name(),
            glue(one.latency.mean),
            parts.join(", ")
        );
        out.push_str(&wrap(&line, style.width, "  ", "    "));
    }
    let ideal = requests::ideal(links, requests::NO_RATE);
    out.push_str(&wrap(&ideal, style.width, "", ""));
    out
}

/// What was ordered.
pub(crate) fn order(order: &Blocks, streams: &str) -> Vec<String> {
    let mix: Vec<&str> = order.mix.iter().map(|one| one.name()).collect();
    let depth = match order.depth {
        1 => "the next leaves when the reply is in".to_owned(),
        n => format!("{n} outstanding on each"),
    };
    vec![
        format!(
            "Asked in turn: {}; {depth}; blocks of {} {} of a file of {} on {streams}, below {}.",
            mix.join("; "),
            glue(order.block),
            match order.random {
                true => "by chance",
                false => "one after the other",
            },
            glue(order.file_size),
            escape(&order.export)
        ),
        match order.wait {
            Wait::Hybrid => {
                "This end spins for some tens of microseconds, then sleeps (--wait hybrid)."
            }
            Wait::Block => {
                "This end sleeps at once (--wait block): waking a core is part of the latency."
            }
        }
        .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use model::{Workload, summarise};

    #[test]
    fn every_operation_has_its_figures_and_its_split() {
        let mut spec = fixtures::spec();
        spec.workload = Workload::Blocks(fixtures::blocks());
        let mut leg = fixtures::request_leg(100);
        leg.near.operations = fixtures::block_records();
        let mut run = fixtures::run(spec, vec![leg]);
        for host in [Some(&mut run.near), run.far.as_mut()]
            .into_iter()
            .flatten()
        {
            host.device.as_mut().unwrap().speed = None;
        }
        let told = crate::summary(&run, &summarise(&run), &[], Style::PLAIN);
        insta::assert_snapshot!(told);
    }
}
