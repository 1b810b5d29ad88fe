//! The trace of a link as text: qlog 0.3, in JSON text sequences.
//!
//! Sources: draft-ietf-quic-qlog-main-schema-02 (the records and their header),
//! draft-ietf-quic-qlog-quic-events-01 (names and fields of events that exist in QUIC), and RFC
//! 7464 (the framing). Events that do not exist in QUIC are in the namespace `longhaul`. Additional
//! fields in events of QUIC have the prefix `longhaul_`.

use std::time::{Duration, SystemTime};

use link::{ConnectionState, Sample, TraceEvent, TraceObservation};
use serde_json::{Value, json};

use crate::VERSION;

/// Media type of the response with the qlog records.
pub(super) const CONTENT_TYPE: &str = "application/qlog+json-seq";

/// Returns the first record. The times of all later records count from `begun`.
pub(super) fn header(peer: &str, begun: SystemTime) -> String {
    let begun = begun.duration_since(SystemTime::UNIX_EPOCH);
    record(&json!({
        "qlog_version": "0.3",
        "qlog_format": "JSON-SEQ",
        "title": format!("longhaul {VERSION}, the link to {peer}"),
        "description": DESCRIPTION,
        "trace": {
            "vantage_point": { "name": format!("the gateway that has the peer {peer}"), "type": "unknown" },
            "common_fields": {
                "protocol_type": ["LONGHAUL"],
                "time_format": "relative",
                "reference_time": ms(begun.unwrap_or_default()),
            },
        },
    }))
}

/// Returns the records of one event.
pub(super) fn records(event: &TraceEvent) -> String {
    let one = |name: &str, data: Value| record(&object(event, name, data));
    match &event.observation {
        TraceObservation::Attempts(count) => {
            one("longhaul:handshakes_begun", json!({ "count": count }))
        }
        TraceObservation::State { old, new } => one(
            "connectivity:connection_state_updated",
            change(old.map(state), state(*new)),
        ),
        TraceObservation::Silence(is_silent) => one(
            "longhaul:silence_updated",
            json!({ "is_silent": is_silent }),
        ),
        TraceObservation::Retired => one("longhaul:connection_retired", json!({})),
        TraceObservation::Controller { old, new } => {
            one("recovery:congestion_state_updated", change(*old, new))
        }
        TraceObservation::Lost(count) => one("longhaul:samples_lost", json!({ "count": count })),
        TraceObservation::Sample(sample) => {
            let records = sample_fields(sample).into_iter();
            records.map(|(name, data)| one(name, data)).collect()
        }
        _ => String::new(),
    }
}

/// Returns the name and the data of each qlog record for one sample of the link's counters. A count
/// of zero yields no record.
fn sample_fields(sample: &Sample) -> Vec<(&'static str, Value)> {
    let counts = &sample.counts;
    let mut metrics = json!({
        "min_rtt": ms(sample.base_rtt),
        "congestion_window": sample.window_bytes,
        "bytes_in_flight": sample.in_flight_bytes,
        "pacing_rate": (sample.allowed_bytes_per_s.min(1e15) * 8.0) as u64,
        "longhaul_queue_delay": ms(sample.queue_delay),
        "longhaul_streams": sample.streams,
    });
    if let Some(rtt) = sample.rtt {
        metrics["smoothed_rtt"] = json!(ms(rtt));
    }
    let mut records = vec![("recovery:metrics_updated", metrics)];
    for (name, datagrams, bytes, payload) in [
        (
            "transport:datagrams_sent",
            counts.datagrams_sent,
            counts.bytes_sent,
            counts.payload_sent,
        ),
        (
            "transport:datagrams_received",
            counts.datagrams_received,
            counts.bytes_received,
            counts.payload_received,
        ),
    ] {
        if datagrams > 0 {
            let data = json!({
                "count": datagrams,
                "longhaul_bytes": bytes,
                "longhaul_payload_bytes": payload,
            });
            records.push((name, data));
        }
    }
    if sample.packets_lost + sample.packets_late > 0 {
        let data = json!({ "lost": sample.packets_lost, "late": sample.packets_late });
        records.push(("longhaul:packets_lost", data));
    }
    if counts.payload_again > 0 {
        let data = json!({
            "bytes": counts.payload_again,
            // Number of payload bytes that were retransmitted before any report of a loss.
            "in_advance_bytes": counts.payload_repeated,
        });
        records.push(("longhaul:payload_repeated", data));
    }
    records
}

fn object(event: &TraceEvent, name: &str, data: Value) -> Value {
    let mut object = json!({ "time": ms(event.at), "name": name, "data": data });
    if let Some(connection) = event.connection {
        object["group_id"] = json!(format!("{connection:08x}"));
    }
    object
}

fn change(old: Option<&str>, new: &str) -> Value {
    match old {
        Some(old) => json!({ "old": old, "new": new }),
        None => json!({ "new": new }),
    }
}

/// Returns the name that qlog gives to this state of a QUIC connection.
fn state(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::Established => "handshake_complete",
        ConnectionState::Confirmed => "handshake_confirmed",
        ConnectionState::Closing => "closing",
        ConnectionState::Closed => "closed",
    }
}

/// Converts a time to milliseconds, the time unit of qlog.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Frames an object as one record of a JSON text sequence (RFC 7464 section 2.2).
fn record(object: &Value) -> String {
    format!("\u{1e}{object}\n")
}

const DESCRIPTION: &str = "A sample of each connection every 10 ms while something changes, otherwise every second. \
    Counts are of the time since the connection's last sample. States are looked at whenever the link's thread runs. \
    Times and delays are in ms, rates in bit/s.";

#[cfg(test)]
mod tests {
    use link::ConnectionCounters;

    use super::*;

    #[test]
    fn a_sample_has_a_record_for_each_thing_that_it_counted() {
        let counts = ConnectionCounters {
            datagrams_sent: 3,
            bytes_sent: 4000,
            ..ConnectionCounters::default()
        };
        let sample = Sample {
            rtt: Some(Duration::from_micros(20_500)),
            base_rtt: Duration::from_millis(20),
            queue_delay: Duration::ZERO,
            allowed_bytes_per_s: 1e6,
            window_bytes: 1,
            in_flight_bytes: 2,
            streams: 1,
            packets_lost: 2,
            packets_late: 0,
            counts,
        };
        let event = TraceEvent {
            at: Duration::from_micros(10_001),
            connection: Some(0xa),
            observation: TraceObservation::Sample(Box::new(sample)),
        };
        let text = records(&event);
        let records = text.split_terminator('\n').map(|line| {
            let line = line.strip_prefix('\u{1e}').expect("a record separator");
            serde_json::from_str::<Value>(line).expect("an object")
        });
        let records: Vec<_> = records.collect();
        let names: Vec<_> = records.iter().map(|it| it["name"].as_str()).collect();
        let expected = [
            "recovery:metrics_updated",
            "transport:datagrams_sent",
            "longhaul:packets_lost",
        ];
        assert_eq!(names, expected.map(Some));
        assert_eq!(records[0]["data"]["smoothed_rtt"], 20.5);
        assert_eq!(records[0]["data"]["pacing_rate"], 8_000_000);
        assert_eq!(records[1]["data"]["longhaul_bytes"], 4000);
        assert_eq!(
            (&records[2]["time"], &records[2]["group_id"]),
            (&json!(10.001), &json!("0000000a"))
        );
    }
}
