//! The results that each side reports after a test.

use super::Malformed;
use super::frame::{KeyBytes, object, out_of_range};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The results of one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TestResults {
    /// Processor use in percent of one processor.
    #[serde(rename = "cpu_util_total")]
    pub cpu_total: f64,
    /// The same, user mode.
    #[serde(rename = "cpu_util_user")]
    pub cpu_user: f64,
    /// The same, kernel mode.
    #[serde(rename = "cpu_util_system")]
    pub cpu_system: f64,
    /// 1: retransmissions are counted; 0: the system cannot; -1: this end did not send.
    pub sender_has_retransmits: i64,
    /// Congestion control in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    /// One entry a stream.
    pub streams: Vec<StreamResult>,
    /// Report of the server, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<String>,
}

/// One stream of [`Results`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamResult {
    /// See [`super::stream_id`].
    pub id: u32,
    /// Bytes sent or received, without the omitted start.
    pub bytes: u64,
    /// Segments retransmitted; -1 where this end received.
    pub retransmits: i64,
    /// Jitter in seconds (UDP).
    #[serde(rename = "jitter")]
    pub jitter_s: f64,
    /// Datagrams lost, the omitted start included.
    pub errors: i64,
    /// Datagrams lost in the omitted start; `None` from versions that do not report it.
    #[serde(serialize_with = "or_zero")]
    pub omitted_errors: Option<i64>,
    /// Datagrams sent, or expected by the highest number seen, the omitted start included.
    pub packets: i64,
    /// Datagrams of the omitted start; `None` from versions that do not report it.
    #[serde(serialize_with = "or_zero")]
    pub omitted_packets: Option<i64>,
    /// Start in seconds; always 0 in practice.
    #[serde(rename = "start_time")]
    pub start_s: f64,
    /// End in seconds.
    #[serde(rename = "end_time")]
    pub end_s: f64,
}

impl TestResults {
    /// Bytes of JSON that are taken at most: the report of a long test with many streams fits.
    pub const MAX_JSON: usize = 4 << 20;

    /// Streams that are taken at most: 128 each way.
    const MAX_STREAMS: usize = 256;

    /// Reads the peer's JSON. Unknown keys are ignored; types are checked.
    pub fn from_json(bytes: &[u8]) -> Result<TestResults, Malformed> {
        TestResults::from_map(&object(bytes)?)
    }

    pub(super) fn from_map(map: &Map<String, Value>) -> Result<TestResults, Malformed> {
        let keys = KeyBytes(map);
        let missing = || Malformed("'streams' is missing".to_owned());
        let streams = match map.get("streams").ok_or_else(missing)? {
            Value::Array(streams) if streams.len() <= TestResults::MAX_STREAMS => streams,
            Value::Array(streams) => {
                let value = format!("{} long", streams.len());
                return Err(out_of_range("streams", &value, "at most 256 long"));
            }
            _ => return Err(Malformed("'streams' is not a list".to_owned())),
        };
        let streams: Result<_, _> = streams.iter().map(StreamResult::from_value).collect();
        Ok(TestResults {
            cpu_total: keys.real("cpu_util_total")?,
            cpu_user: keys.real("cpu_util_user")?,
            cpu_system: keys.real("cpu_util_system")?,
            sender_has_retransmits: keys.signed("sender_has_retransmits")?.unwrap_or(-1),
            congestion_used: keys.text("congestion_used")?,
            streams: streams?,
            server_output_text: keys.text("server_output_text")?,
        })
    }

    /// The JSON to send.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("numbers and texts")
    }
}

/// Versions that do not report it count it as zero.
fn or_zero<S: Serializer>(count: &Option<i64>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64(count.unwrap_or(0))
}

impl StreamResult {
    fn from_value(value: &Value) -> Result<StreamResult, Malformed> {
        let not = || Malformed("'streams' is not a list of objects".to_owned());
        let keys = KeyBytes(value.as_object().ok_or_else(not)?);
        let needed = |key, max: u64, range| {
            let missing = || Malformed(format!("'{key}' is missing"));
            keys.whole(key, max, range)?.ok_or_else(missing)
        };
        Ok(StreamResult {
            id: needed("id", u32::MAX.into(), "0 to 4294967295")? as u32,
            bytes: needed("bytes", u64::MAX, "0 or more")?,
            retransmits: keys.signed("retransmits")?.unwrap_or(-1),
            jitter_s: keys.real("jitter")?,
            errors: keys.signed("errors")?.unwrap_or(0),
            omitted_errors: keys.signed("omitted_errors")?,
            packets: keys.signed("packets")?.unwrap_or(0),
            omitted_packets: keys.signed("omitted_packets")?,
            start_s: keys.real("start_time")?,
            end_s: keys.real("end_time")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_stock_server_sends() {
        let sent = br#"{"cpu_util_total":41.01,"cpu_util_user":0.1,"cpu_util_system":40.8,
            "sender_has_retransmits":1,"congestion_used":"bbr","streams":[{"id":1,"bytes":1410334720,
            "retransmits":-1,"jitter":0,"errors":0,"omitted_errors":0,"packets":0,"omitted_packets":0,
            "start_time":0,"end_time":1.003618}]}"#;
        let results = TestResults::from_json(sent).unwrap();
        assert_eq!(results.streams[0].bytes, 1_410_334_720);
        assert_eq!(results.streams[0].retransmits, -1);
        assert_eq!(results.congestion_used.as_deref(), Some("bbr"));
    }

    #[test]
    fn a_stream_without_a_count_of_retransmissions_has_none() {
        let sent = br#"{"cpu_util_total":1,"cpu_util_user":1,"cpu_util_system":0,"sender_has_retransmits":0,
            "streams":[{"id":1,"bytes":7,"jitter":0,"errors":0,"packets":0}]}"#;
        let results = TestResults::from_json(sent).unwrap();
        assert_eq!(results.streams[0].retransmits, -1);
    }

    #[test]
    fn wrong_shapes_are_named() {
        for (text, says) in [
            ("{}", "'streams' is missing"),
            (r#"{"streams":{}}"#, "'streams' is not a list"),
            (r#"{"streams":[1]}"#, "'streams' is not a list of objects"),
            (r#"{"streams":[{"id":1}]}"#, "'bytes' is missing"),
            (
                r#"{"streams":[{"id":1,"bytes":"x"}]}"#,
                "'bytes' is not a number",
            ),
            (
                r#"{"streams":[],"cpu_util_total":"1"}"#,
                "'cpu_util_total' is not a number",
            ),
        ] {
            let error = TestResults::from_json(text.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn reading_what_was_written(streams in proptest::collection::vec(
            (any::<u32>(), any::<u64>(), any::<i64>(), 0.0f64..10.0, any::<i64>(), 0.0f64..100.0), 0..5)) {
            let results = TestResults {
                cpu_total: 12.5,
                sender_has_retransmits: 1,
                congestion_used: Some("cubic".into()),
                streams: streams.into_iter().map(|(id, bytes, retransmits, jitter_s, packets, end_s)| StreamResult {
                    id, bytes, retransmits, jitter_s, packets, end_s,
                    omitted_errors: Some(0), omitted_packets: Some(0), ..StreamResult::default()
                }).collect(),
                ..TestResults::default()
            };
            prop_assert_eq!(TestResults::from_json(results.to_json().to_string().as_bytes()), Ok(results));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TestResults::from_json(&bytes);
        }
    }

    #[test]
    fn who_does_not_say_whether_it_counts_retransmissions_does_not_know() {
        let of = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            TestResults::from_map(value.as_object().unwrap())
                .unwrap()
                .sender_has_retransmits
        };
        assert_eq!(of(r#"{"streams":[]}"#), -1);
        assert_eq!(of(r#"{"streams":[],"sender_has_retransmits":1}"#), 1);
    }
}
