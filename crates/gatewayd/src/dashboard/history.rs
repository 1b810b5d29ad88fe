//! History of each peer: one sample per second for ten minutes, and one sample per minute for a
//! day.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{Query, State},
    response::Response,
};
use serde::{Deserialize, Serialize};
use units::BitRate;

use super::{
    Dashboard,
    error::DashboardError,
    json, lock,
    view::{DashboardGateway, DashboardPeer, PEERS_MAX, PeerLimit},
};
use relay::status::KnownPath;

/// The histories of all peers that the dashboard shows.
#[derive(Debug, Default)]
pub(super) struct PeerHistories {
    peers: BTreeMap<String, PeerHistory>,
}

#[derive(Debug, Default)]
struct PeerHistory {
    /// One sample for each second of the last [`SECONDS`].
    minutes: VecDeque<Sample>,
    /// One sample for each minute of the last day. Each sample is a mean over its minute.
    day: VecDeque<Sample>,
    path: Option<KnownPath>,
}

/// State of a peer at one moment, or its mean over one minute. [`COLUMNS`] names the fields in
/// their order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Sample(
    u64,
    f32,
    f32,
    f32,
    Option<f32>,
    Option<f32>,
    Option<f32>,
    f32,
    &'static str,
);

const COLUMNS: [&str; 9] = [
    "unix_s",
    "send_bits_per_s",
    "receive_bits_per_s",
    "allowed_bits_per_s",
    "rtt_ms",
    "base_rtt_ms",
    "queue_delay_ms",
    "loss",
    "limit",
];

impl Sample {
    fn new(now_unix_s: u64, peer: &DashboardPeer) -> Self {
        let status = &peer.status;
        let ms = |value: Option<f64>| value.map(|it| it as f32);
        Self(
            now_unix_s,
            status.send_bits_per_s as f32,
            status.receive_bits_per_s as f32,
            status.allowed_bits_per_s as f32,
            ms(status.rtt_ms),
            ms(status.base_rtt_ms),
            ms(status.queue_delay_ms),
            status.loss as f32,
            peer.limit.name(),
        )
    }

    /// Returns the mean of the samples. The mean ignores unknown values. The field `limit` has the
    /// last known value.
    fn mean<'a>(samples: impl Iterator<Item = &'a Self> + Clone) -> Option<Self> {
        let last = samples.clone().last()?;
        let count = samples.clone().count() as f32;
        let mean = |field: fn(&Self) -> f32| samples.clone().map(field).sum::<f32>() / count;
        let mean_known = |field: fn(&Self) -> Option<f32>| {
            let known: Vec<_> = samples.clone().filter_map(field).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
        };
        let limits = samples.clone().map(|it| it.8);
        Some(Self(
            last.0,
            mean(|it| it.1),
            mean(|it| it.2),
            mean(|it| it.3),
            mean_known(|it| it.4),
            mean_known(|it| it.5),
            mean_known(|it| it.6),
            mean(|it| it.7),
            limits
                .filter(|it| !it.is_empty())
                .last()
                .unwrap_or_default(),
        ))
    }
}

impl PeerHistories {
    /// Adds one sample of each peer, once per second.
    pub(super) fn add(&mut self, view: &DashboardGateway) {
        if self.peers.len() > view.peers.len() {
            let is_shown = |name: &String| view.peers.iter().any(|it| it.status.name == *name);
            self.peers.retain(|name, _| is_shown(name));
        }
        for peer in view.peers.iter().take(PEERS_MAX) {
            let name = &peer.status.name;
            if !self.peers.contains_key(name) {
                self.peers.insert(name.clone(), PeerHistory::default());
            }
            let Some(series) = self.peers.get_mut(name) else {
                continue;
            };
            series.add(Sample::new(view.now_unix_s, peer));
            if let Some(rtt_ms) = peer.status.base_rtt_ms {
                series.path = Some(KnownPath {
                    rate: series.best_rate(),
                    rtt: Duration::try_from_secs_f64(rtt_ms / 1e3).unwrap_or_default(),
                    loss: peer.status.loss,
                });
            }
        }
    }

    /// Returns the known properties of the path to a peer.
    pub(super) fn path(&self, peer: &str) -> Option<KnownPath> {
        self.peers.get(peer)?.path
    }
}

impl PeerHistory {
    fn add(&mut self, sample: Sample) {
        push(&mut self.minutes, sample, SECONDS);
        let last = self.day.back().map_or(0, |it| it.0);
        if sample.0 / 60 != last / 60 {
            let minute = self.minutes.iter().rev().take(60);
            let minute = minute.rev().skip_while(|it| it.0 <= last);
            if let Some(mean) = Sample::mean(minute) {
                push(&mut self.day, mean, MINUTES);
            }
        }
    }

    /// Returns the highest rate at which the link has sent or received in the last minutes. The
    /// function ignores the allowed rate, because that rate can exceed the path's capacity. It also
    /// ignores samples in which neither the path nor a rate limit is the bottleneck. Examples are
    /// keep-alives, and transfers with a slow client or server.
    fn best_rate(&self) -> BitRate {
        let measures = [PeerLimit::Wan, PeerLimit::RateMax].map(PeerLimit::name);
        let measured = self.minutes.iter().filter(|it| measures.contains(&it.8));
        let rates = measured.flat_map(|it| [it.1, it.2]);
        BitRate::bits_per_s(rates.fold(0.0, f32::max) as u64)
    }
}

fn push(samples: &mut VecDeque<Sample>, sample: Sample, most: usize) {
    if samples.len() >= most {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    peer: String,
    span: HistorySpan,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HistorySpan {
    Minutes,
    Day,
}

#[derive(Serialize)]
struct HistoryReply<'a> {
    columns: [&'static str; 9],
    samples: &'a VecDeque<Sample>,
}

pub(super) async fn history(
    State(dashboard): State<Arc<Dashboard>>,
    Query(query): Query<HistoryQuery>,
) -> Result<Response, DashboardError> {
    let history = lock(&dashboard.history);
    let series = history.peers.get(&query.peer);
    let series = series.ok_or(DashboardError::Nothing("peer"))?;
    Ok(json(&HistoryReply {
        columns: COLUMNS,
        samples: match query.span {
            HistorySpan::Minutes => &series.minutes,
            HistorySpan::Day => &series.day,
        },
    }))
}

/// Number of samples, one per second. They cover ten minutes.
const SECONDS: usize = 600;

/// Number of samples, one per minute. They cover a day.
const MINUTES: usize = 1440;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(unix_s: u64, send: f32) -> Sample {
        let rtt = (send > 0.0).then_some(send);
        let limit = if send > 0.0 { "WAN" } else { "" };
        Sample(unix_s, send, 0.0, 0.0, rtt, None, None, 0.0, limit)
    }

    #[test]
    fn seconds_and_minutes_have_bounds() {
        let mut series = PeerHistory::default();
        for second in 0..2 * 86_400 {
            series.add(sample(second, 0.0));
        }
        assert_eq!((series.minutes.len(), series.day.len()), (SECONDS, MINUTES));
    }

    #[test]
    fn a_minute_is_the_mean_of_its_seconds() {
        let mut series = PeerHistory::default();
        for second in 60..=180 {
            series.add(sample(second, if second < 121 { 0.0 } else { 6.0 }));
        }
        let last = *series.day.back().expect("a minute");
        assert_eq!((last.0, last.1, last.4), (180, 6.0, Some(6.0)));
        assert_eq!(series.best_rate().as_bits_per_s(), 6);
    }

    #[test]
    fn the_best_rate_ignores_the_allowed_rate() {
        let mut series = PeerHistory::default();
        series.add(Sample(1, 6.0, 8.0, 90.0, None, None, None, 0.0, "WAN"));
        assert_eq!(series.best_rate().as_bits_per_s(), 8);
    }

    #[test]
    fn only_the_path_and_a_rate_limit_measure_the_best_rate() {
        for (limit, rate) in [
            ("client", 0),
            ("server", 0),
            ("", 0),
            ("WAN", 40_000_000),
            ("rate limit", 40_000_000),
        ] {
            let mut series = PeerHistory::default();
            series.add(Sample(1, 4e7, 0.0, 1e9, None, None, None, 0.0, limit));
            assert_eq!(series.best_rate().as_bits_per_s(), rate, "{limit}");
        }
    }

    #[test]
    fn keep_alives_of_an_idle_link_are_not_its_best_rate() {
        let mut series = PeerHistory::default();
        series.add(Sample(1, 3117.0, 3082.0, 48e6, None, None, None, 0.0, ""));
        assert_eq!(series.best_rate().as_bits_per_s(), 0);
    }
}
