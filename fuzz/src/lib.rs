//! One target a decoder: takes any bytes, and panics only where the decoder is wrong. Beyond "does
//! not panic", each target checks what must hold of whatever was taken: written again it reads the
//! same, cut elsewhere it says the same, and no count contradicts another.
//!
//! `cargo test -p linerate-fuzz` runs each target over its corpus and over mutations of it, from a seed that is new in each
//! run. `make fuzz` has libFuzzer make the inputs, guided by coverage. `fuzz TARGET` reads one input from standard input.

mod capture_files;
mod control;
mod datagrams;
mod iperf3;
mod kernel;
pub mod mutate;
mod nfs;
mod nouns;
mod web;

/// Takes an input; panics if a decoder is wrong about it.
pub type Target = fn(&[u8]);

/// All targets, by name. Their corpora lie in `corpus/NAME/`.
pub const TARGETS: &[(&str, Target)] = &[
    ("control_frames", control::frames),
    ("control_to_agent", control::to_agent),
    ("control_to_controller", control::to_controller),
    ("control_agent_machine", control::agent_machine),
    ("control_controller_machine", control::controller_machine),
    ("control_preamble", control::preamble),
    ("control_token", control::token),
    ("control_enrol", control::enrol),
    ("control_probe", control::probe),
    ("control_printable", control::printable),
    ("datagram_greeting", datagrams::greeting),
    ("datagram_arrivals", datagrams::arrivals),
    ("iperf3_params", iperf3::params),
    ("iperf3_results", iperf3::results),
    ("iperf3_client", iperf3::client),
    ("iperf3_server", iperf3::server),
    ("iperf3_udp_header", iperf3::udp_header),
    ("iperf3_auth_token", iperf3::auth_token),
    ("iperf3_users_file", iperf3::users_file),
    ("iperf3_json", iperf3::json),
    ("model_units", nouns::units),
    ("model_run", nouns::run),
    ("tcp_info", kernel::tcp_info),
    ("capture", capture_files::capture),
    ("capture_frame", capture_files::frame),
    ("requests", capture_files::requests),
    ("listing", capture_files::listing),
    ("trace", capture_files::trace),
    ("trace_blocks", capture_files::trace_blocks),
    ("quoted_syn", kernel::quoted_syn),
    ("http_request", web::http_request),
    ("nfs_replies", nfs::nfs_replies),
    ("nfs_client", nfs::nfs_client),
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, target)| *target)
}
