//! `linerate tune knobs`: what can be set.

use crate::prelude::*;
use model::{Knob, Scope};
use std::fmt::Write;

pub fn run() -> Result<()> {
    out::print(&words())?;
    Ok(())
}

fn words() -> String {
    let mut text = String::new();
    let mut scope = None;
    for knob in Knob::by_scope() {
        if scope.replace(knob.scope()) != Some(knob.scope()) {
            let heading = match knob.scope() {
                Scope::Socket => "linerate's own connections; the machine is not changed",
                Scope::Route => "all connections to the remote host",
                Scope::Namespace => "all connections of the host (of a network namespace)",
                Scope::Device => "everything through the device towards the remote host",
                Scope::Host => "the whole machine with all its network namespaces",
            };
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{heading}:");
        }
        let row = knob.row();
        let _ = writeln!(text, "  {knob}  {}", row.summary);
        let (shape, on) = (row.shape, row.place);
        let _ = writeln!(text, "      {shape} (@{on} if no host is named)");
        if !knob.is_socket() {
            let _ = writeln!(text, "      risk: {}", row.risk);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_listed_under_what_it_changes() {
        let text = words();
        for knob in Knob::by_scope() {
            assert!(text.contains(&format!("\n  {knob}  ")), "{knob}");
            assert!(knob.is_socket() || text.contains(knob.row().risk), "{knob}");
        }
        let at = |what: &str| text.find(what).expect(what);
        assert!(at("\n  congestion  ") < at("\n  route.initcwnd  "));
        assert!(at("\n  route.initcwnd  ") < at("\n  sysctl:net.ipv4.tcp_rmem  "));
        assert!(at("\n  sysctl:net.ipv4.tcp_rmem  ") < at("\n  device.mtu  "));
        assert!(at("\n  device.mtu  ") < at("\n  sysctl:net.core.rmem_max  "));
    }
}
