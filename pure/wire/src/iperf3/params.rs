//! What a client asks of a server.

use super::Malformed;
use super::frame::{KeyBytes, object, out_of_range};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// What carries the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TestProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// The parameters of a test. Zero and `None` leave the choice to the peer, as in iperf3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Params {
    /// What carries the data.
    #[serde(skip)]
    pub protocol: TestProtocol,
    /// Seconds at the start that the results leave out.
    #[serde(rename = "omit")]
    pub omit_s: u32,
    /// Seconds to run after that; 0: until `bytes` are through.
    #[serde(rename = "time")]
    pub time_s: u32,
    /// Bytes to send in all; 0: no such limit.
    #[serde(rename = "num")]
    pub bytes: u64,
    /// `TCP_MAXSEG` in bytes.
    #[serde(rename = "MSS", skip_serializing_if = "is_default")]
    pub mss: Option<u32>,
    /// `TCP_NODELAY`.
    #[serde(skip_serializing_if = "is_default")]
    pub nodelay: bool,
    /// Streams each way.
    pub parallel: u32,
    /// The server sends.
    #[serde(skip_serializing_if = "is_default")]
    pub reverse: bool,
    /// Both send.
    #[serde(skip_serializing_if = "is_default")]
    pub bidirectional: bool,
    /// Socket buffers in bytes, both of them.
    #[serde(skip_serializing_if = "is_default")]
    pub window: Option<u32>,
    /// Bytes of a write or a datagram.
    #[serde(rename = "len", skip_serializing_if = "is_default")]
    pub block_size: Option<u32>,
    /// Rate of each stream in bit/s; 0: as fast as it goes.
    #[serde(rename = "bandwidth", skip_serializing_if = "is_default")]
    pub rate_bit_s: u64,
    /// Rate of each socket in bit/s that the kernel is to keep; 0: none.
    #[serde(rename = "fqrate", skip_serializing_if = "is_default")]
    pub fq_rate_bit_s: u64,
    /// Byte of the type of service; the code point is its upper six bits.
    #[serde(rename = "TOS", skip_serializing_if = "is_default")]
    pub tos: u8,
    /// A title for the reports.
    #[serde(skip_serializing_if = "is_default")]
    pub title: Option<String>,
    /// Congestion control to use.
    #[serde(skip_serializing_if = "is_default")]
    pub congestion: Option<String>,
    /// The client wants the report of the server.
    #[serde(skip_serializing_if = "is_default", serialize_with = "as_number")]
    pub get_server_output: bool,
    /// Datagrams carry 64-bit sequence numbers.
    #[serde(skip_serializing_if = "is_default", serialize_with = "as_number")]
    pub udp_counters_64bit: bool,
    /// The sender avoids a copy.
    #[serde(skip_serializing_if = "is_default", serialize_with = "as_number")]
    pub zerocopy: bool,
    /// The receiver discards in the kernel.
    #[serde(skip_serializing_if = "is_default", serialize_with = "as_number")]
    pub skip_rx_copy: bool,
    /// The sender hands several datagrams to the kernel as one message (`--gsro`, iperf3 3.21).
    #[serde(skip_serializing_if = "is_default", serialize_with = "as_number")]
    pub gso: bool,
    /// Bytes of each of them.
    #[serde(rename = "gso_dg_size", skip_serializing_if = "is_default")]
    pub gso_datagram: u32,
    /// Bytes of a message.
    #[serde(rename = "gso_bf_size", skip_serializing_if = "is_default")]
    pub gso_message: u32,
    /// The receiver takes datagrams that arrived together as one message.
    #[serde(skip_serializing_if = "is_default", serialize_with = "as_number")]
    pub gro: bool,
    /// Bytes of its buffer.
    #[serde(rename = "gro_bf_size", skip_serializing_if = "is_default")]
    pub gro_buffer: u32,
    /// Credentials, encrypted and in base64.
    #[serde(skip_serializing_if = "is_default")]
    pub authtoken: Option<String>,
    /// Version of the client.
    #[serde(skip_serializing_if = "is_default")]
    pub client_version: Option<String>,
}

impl Params {
    /// Bytes of JSON that are taken at most (the limit of iperf3 itself).
    pub const MAX_JSON: usize = 8 * 1024;

    /// Reads the client's JSON. Unknown keys are ignored; types and ranges are checked.
    pub fn from_json(bytes: &[u8]) -> Result<Params, Malformed> {
        Params::from_map(&object(bytes)?)
    }

    pub(super) fn from_map(map: &Map<String, Value>) -> Result<Params, Malformed> {
        let keys = KeyBytes(map);
        if keys.flag("sctp")? {
            let range = "absent: only TCP and UDP are spoken here";
            return Err(out_of_range("sctp", "true", range));
        }
        let upto = |key, max: u32, range| {
            let value = keys.whole(key, max.into(), range)?;
            Ok::<_, Malformed>(value.unwrap_or(0) as u32)
        };
        let some = |value: u32| Some(value).filter(|&v| v > 0);
        let any = |key| Ok::<_, Malformed>(keys.whole(key, u64::MAX, "0 or more")?.unwrap_or(0));
        let udp = keys.flag("udp")?;
        let params = Params {
            protocol: if udp {
                TestProtocol::Udp
            } else {
                TestProtocol::Tcp
            },
            omit_s: upto("omit", 600, "0 to 600")?,
            time_s: upto("time", 86_400, "0 to 86400")?,
            bytes: any("num")?,
            mss: some(upto("MSS", 32_767, "0 to 32767")?),
            nodelay: keys.flag("nodelay")?,
            parallel: keys.whole("parallel", 128, PARALLEL)?.unwrap_or(1) as u32,
            reverse: keys.flag("reverse")?,
            bidirectional: keys.flag("bidirectional")?,
            window: some(upto("window", 512 << 20, "0 to 536870912")?),
            block_size: some(upto("len", 1 << 20, "0 to 1048576")?),
            rate_bit_s: any("bandwidth")?,
            fq_rate_bit_s: any("fqrate")?,
            tos: upto("TOS", 255, "0 to 255")? as u8,
            title: keys.text("title")?,
            congestion: keys.text("congestion")?,
            get_server_output: keys.flag("get_server_output")?,
            udp_counters_64bit: keys.flag("udp_counters_64bit")?,
            zerocopy: keys.flag("zerocopy")?,
            skip_rx_copy: keys.flag("skip_rx_copy")?,
            gso: keys.flag("gso")?,
            gso_datagram: upto("gso_dg_size", 1 << 20, "0 to 1048576")?,
            gso_message: upto("gso_bf_size", 1 << 20, "0 to 1048576")?,
            gro: keys.flag("gro")?,
            gro_buffer: upto("gro_bf_size", 1 << 20, "0 to 1048576")?,
            authtoken: keys.text("authtoken")?,
            client_version: keys.text("client_version")?,
        };
        params.check().map(|()| params)
    }

    fn check(&self) -> Result<(), Malformed> {
        if self.parallel == 0 {
            return Err(out_of_range("parallel", "0", PARALLEL));
        }
        if self.reverse && self.bidirectional {
            let range = "absent where 'reverse' is set";
            return Err(out_of_range("bidirectional", "1", range));
        }
        let is_name = |name: &&String| name.len() <= 15 && name.bytes().all(is_letter);
        if let Some(name) = self.congestion.as_ref().filter(|name| !is_name(name)) {
            let range = "a name of at most 15 letters";
            return Err(out_of_range("congestion", name, range));
        }
        match (self.protocol, self.block_size) {
            (TestProtocol::Udp, Some(size)) if !(16..=65_507).contains(&size) => Err(out_of_range(
                "len",
                &size.to_string(),
                "16 to 65507 for UDP",
            )),
            _ => Ok(()),
        }
    }

    /// The JSON that a client sends.
    pub fn to_json(&self) -> Value {
        let mut json = serde_json::to_value(self).expect("numbers, flags and texts");
        let protocol = match self.protocol {
            TestProtocol::Tcp => "tcp",
            TestProtocol::Udp => "udp",
        };
        json[protocol] = true.into();
        json
    }
}

/// What is left to the peer is not sent.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Stock servers take `nodelay`, `reverse` and `bidirectional` only as `true`, other flags only as a number.
fn as_number<S: Serializer>(flag: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(u8::from(*flag))
}

/// Streams each way.
const PARALLEL: &str = "1 to 128";

/// Letters of the name of a congestion control.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_stock_client_sends() {
        let sent =
            br#"{"tcp":true,"omit":1,"time":10,"num":0,"blockcount":0,"MSS":1400,"nodelay":true,
            "parallel":2,"reverse":true,"window":65536,"len":131072,"pacing_timer":1000,"TOS":16,
            "congestion":"cubic","get_server_output":1,"client_version":"3.12","news":{"a":[]}}"#;
        let params = Params::from_json(sent).unwrap();
        assert_eq!(params.parallel, 2);
        assert!(params.reverse && params.nodelay && params.get_server_output);
        assert_eq!(params.mss, Some(1400));
        assert_eq!(params.block_size, Some(131_072));
        assert_eq!(params.congestion.as_deref(), Some("cubic"));
    }

    #[test]
    fn wrong_types_and_ranges_are_named() {
        for (text, says) in [
            (r#"{"parallel":"2"}"#, "'parallel' is not a number"),
            (r#"{"parallel":0}"#, "'parallel' is 0, and must be 1 to 128"),
            (
                r#"{"parallel":1e99}"#,
                "'parallel' is 1e+99, and must be 1 to 128",
            ),
            (r#"{"time":-1}"#, "'time' is -1, and must be 0 to 86400"),
            (r#"{"title":7}"#, "'title' is not a text"),
            (
                r#"{"udp":true,"len":4}"#,
                "'len' is 4, and must be 16 to 65507 for UDP",
            ),
            (
                r#"{"reverse":true,"bidirectional":true}"#,
                "absent where 'reverse' is set",
            ),
            (
                r#"{"congestion":"../../etc"}"#,
                "a name of at most 15 letters",
            ),
            ("[1]", "not a JSON object"),
            ("", "not a JSON object"),
        ] {
            let error = Params::from_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn reading_what_was_written(
            (udp, reverse, nodelay, wide) in any::<(bool, bool, bool, bool)>(),
            (omit_s, time_s, parallel) in (0u32..600, 0u32..86_400, 1u32..=128),
            (bytes, rate_bit_s) in any::<(u64, u64)>(),
            (mss, window, size, tos) in (1u32..9000, 1u32..1 << 29, 16u32..65_507, any::<u8>()),
            title in proptest::option::of(".{0,20}"),
        ) {
            let params = Params {
                protocol: if udp { TestProtocol::Udp } else { TestProtocol::Tcp },
                omit_s, time_s, bytes, mss: Some(mss), nodelay, parallel, reverse,
                window: Some(window), block_size: Some(size), rate_bit_s, tos, title,
                udp_counters_64bit: wide, ..Params::default()
            };
            prop_assert_eq!(Params::from_json(params.to_json().to_string().as_bytes()), Ok(params));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Params::from_json(&bytes);
        }
    }
}
