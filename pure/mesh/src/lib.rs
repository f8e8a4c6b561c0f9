//! A mesh of hosts that measure each other by a plan.
//!
//! A *mesh file* names hosts, links and tests ([`parse_mesh`]). A *round* is a set of pairs that measure at the same
//! time, in which no host is twice and no link carries more than its units ([`rounds`]); the rounds of a *cycle* cover
//! the pairs once. Light probes have rounds of their own ([`light_rounds`]), beside the others. [`planned`] lays the
//! rounds of all tests one after the other around the quiet hours. A *cell* is a source, a destination and a test; each
//! of its legs has an outcome ([`judge`]). [`MeshSuspects`] names the host or uplink that explains the low cells.
//!
//! Moments come in; nothing here has a clock. The same file, cycle and moment give the same plan.

mod cell;
mod check;
mod file;
mod iso8601;
mod light;
mod plan;
mod psconfig;
mod rounds;
mod rules;
mod suspects;

pub use cell::{FEWEST_FOR_MEDIAN, WINDOW, fires, judge};
pub use check::{CheckedHost, CheckedLink, CheckedTest, MeshChecked, check, span};
pub use file::{
    AGENT_PORT, AlertWhen, GoodThreshold, HostPair, Mesh, MeshAlert, MeshHost, MeshLink, MeshTest,
    PairChoice, parse_mesh,
};
pub use iso8601::{iso_duration, iso_moment};
pub use light::{LightRound, LightTest, light_bytes_a_day, light_rounds, light_span, too_small};
pub use plan::{PlannedRound, QuietSpan, first_loud, next_round, period, planned, round_length};
pub use psconfig::{LeftOut, PsconfigImport, THROUGHPUT_TIME, import_psconfig};
pub use rounds::{MOST_HOSTS, circle, rounds};
pub use rules::prometheus_rules;
pub use suspects::{JudgedLeg, MeshSuspect, MeshSuspects, PathElement, elements, fewest_low};
