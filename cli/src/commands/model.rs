//! `linerate model`: what a path needs at the very least.

use crate::global::time_with_unit;
use crate::prelude::*;
use model::physics::{IdealPath, LEAST_MTU};

/// Theoretical transfer time and rate of a block on a given path
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate model --block 8k --rate 1g --rtt 0.2ms
  linerate model --block 8k --mtu 1500 --rate 1g --rtt 0.2ms --hops 2
  linerate model --block 1M --rate 10g --rtt 30ms --window 64k

TCP over IPv4 with timestamps on Ethernet: a full frame at an MTU of 1500
carries 1448 bytes and takes 1538 of the link. Nothing is lost or queued, and
hosts take no time: what a measurement shows beyond this is theirs. --rtt is
that of a small ping.")]
pub struct Model {
    /// The block
    #[arg(long, value_name = "BYTES")]
    block: Bytes,
    /// The largest IP packet; several are compared
    #[arg(long, value_delimiter = ',', default_values_t = [1500, 9000])]
    #[arg(value_parser = clap::value_parser!(u32).range(i64::from(LEAST_MTU)..=65_535))]
    mtu: Vec<u32>,
    /// Rate of each link
    #[arg(long)]
    rate: BitRate,
    /// RTT without the serialization delay of the frames
    #[arg(long, value_name = "TIME", value_parser = time_with_unit)]
    rtt: Nanos,
    /// Links, each of which takes a whole frame before the next begins with it
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    hops: u32,
    /// The least of the receive window and the buffers, where one limits
    #[arg(long, value_name = "BYTES")]
    window: Option<Bytes>,
    /// Segments that a new connection begins with
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    initial_window: u32,
    /// A JSON document
    #[arg(short = 'J', long)]
    json: bool,
}

impl Model {
    pub fn run(&self) -> Result<Exit> {
        if self.block.0 == 0 || self.rate.0 == 0 {
            refuse!("nothing to calculate: --block and --rate must be more than 0");
        }
        let ideal = |mtu: &u32| {
            let path = IdealPath {
                mtu: *mtu,
                rate: self.rate,
                rtt: self.rtt,
                hops: self.hops,
                initial_window: self.initial_window,
                window: self.window,
            };
            path.ideal(self.block)
        };
        let ideals: Vec<_> = self.mtu.iter().map(ideal).collect();
        out::result(&match self.json {
            true => report::physics::json(&ideals),
            false => report::physics::text(&ideals, stdout_style()),
        })
    }
}
