//! Reports of the driver: snapshots of the link's state, and log lines at a limited rate.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use units::{BitRate, ByteCount};

use crate::{
    ConnectionCounters, DropCounters, Endpoint, LinkConfig, LinkSnapshot, PeerView, SocketBuffers,
    snapshot::{PeerSnapshot, PeerState, TrafficCounters},
};

/// Publisher of snapshots, and of log lines about dropped datagrams.
pub(super) struct Reporter {
    snapshot: Arc<Mutex<LinkSnapshot>>,
    socket_buffers: SocketBuffers,
    published: Instant,
    /// Whether the last update was skipped. The snapshot may then lack recent events.
    is_behind: bool,
    rates: Vec<PeerRates>,
    logged_drops: (Instant, DropCounters),
}

#[derive(Default, Clone, Copy)]
struct PeerRates {
    at: Option<Instant>,
    stats: ConnectionCounters,
    sent: BitRate,
    received: BitRate,
}

const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
const SNAPSHOT_INTERVAL_SPARSE: Duration = Duration::from_millis(5);
/// Time until the next snapshot while the rate of a peer is at least [`NOTABLE`]. Rates are
/// measured over one second, so this time is longer than one second.
const RATES_INTERVAL: Duration = Duration::from_millis(1100);
/// Minimum rate that requires further snapshots. Lower rates are caused by keep-alive packets.
const NOTABLE: BitRate = BitRate::bits_per_s(20_000);
/// Minimum time between two log lines about the same subject: dropped datagrams, or failed sends.
pub(super) const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl Reporter {
    pub(super) fn new(
        snapshot: Arc<Mutex<LinkSnapshot>>,
        socket_buffers: SocketBuffers,
        peers: usize,
        now: Instant,
    ) -> Self {
        Self {
            snapshot,
            socket_buffers,
            published: now,
            is_behind: false,
            rates: vec![PeerRates::default(); peers],
            logged_drops: (now, DropCounters::default()),
        }
    }

    /// Sets the number of peers for which rates are measured.
    pub(super) fn set_peers(&mut self, peers: usize) {
        self.rates.resize(peers, PeerRates::default());
    }

    /// Publishes a snapshot, unless the last snapshot is too recent. The minimum interval is 0.1 s
    /// while traffic is dense (`is_dense`), and 5 ms otherwise.
    pub(super) fn publish_if_due(
        &mut self,
        endpoint: &Endpoint,
        config: &LinkConfig,
        is_dense: bool,
        now: Instant,
    ) {
        let interval = if is_dense {
            SNAPSHOT_INTERVAL
        } else {
            SNAPSHOT_INTERVAL_SPARSE
        };
        self.is_behind = now.duration_since(self.published) < interval;
        if !self.is_behind {
            self.publish(endpoint, config, now);
        }
    }

    /// Returns the time at which a snapshot is due even if no event occurs. `None` means that the
    /// last snapshot stays valid until the next event.
    ///
    /// A snapshot is due if the last snapshot lacks recent events, or if the rates in the last
    /// snapshot become outdated.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.is_behind {
            return Some(self.published + SNAPSHOT_INTERVAL);
        }
        let is_moving = self.rates.iter().any(PeerRates::are_notable);
        is_moving.then(|| self.published + RATES_INTERVAL)
    }

    pub(super) fn publish(&mut self, endpoint: &Endpoint, config: &LinkConfig, now: Instant) {
        self.published = now;
        let peers = config.peers.iter().zip(&mut self.rates).enumerate();
        let peers = peers.map(|(index, (peer, rates))| {
            let view = endpoint.peer_view(index);
            rates.update(&view.stats, now);
            PeerSnapshot {
                is_removed: peer.is_removed(),
                is_guest: peer.is_guest,
                ..peer_snapshot(&peer.name, &view, rates, now)
            }
        });
        let snapshot = LinkSnapshot {
            peers: peers.collect(),
            socket_buffers: self.socket_buffers,
            dropped: endpoint.dropped(),
        };
        *self.snapshot.lock().expect("no holder of this lock panics") = snapshot;
    }

    /// Publishes the end of the link: all peers are shown as not connected.
    pub(super) fn publish_end(&self) {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        for peer in &mut snapshot.peers {
            peer.state = PeerState::Connecting;
        }
    }

    pub(super) fn log_drops(&mut self, dropped: DropCounters, now: Instant) {
        let (logged, before) = self.logged_drops;
        let is_due =
            now.duration_since(logged) >= LOG_INTERVAL || before == DropCounters::default();
        if dropped.of_strangers() > before.of_strangers() && is_due {
            self.logged_drops = (now, dropped);
            tracing::warn!(
                unknown_key = dropped.unknown_key,
                bad_mac = dropped.bad_mac,
                replayed = dropped.replayed,
                crowded = dropped.crowded,
                malformed = dropped.malformed,
                unknown_connection = dropped.unknown_connection,
                undecryptable = dropped.undecryptable,
                "datagrams dropped unanswered (totals)"
            );
        }
    }
}

impl PeerRates {
    fn are_notable(&self) -> bool {
        self.sent.max(self.received) >= NOTABLE
    }

    fn update(&mut self, stats: &ConnectionCounters, now: Instant) {
        let Some(at) = self.at else {
            self.at = Some(now);
            self.stats = *stats;
            return;
        };
        let elapsed = now.duration_since(at);
        if elapsed < Duration::from_secs(1) {
            return;
        }
        let rate = |now: u64, before: u64| {
            BitRate::from_transfer(ByteCount::new(now.saturating_sub(before)), elapsed)
        };
        self.sent = rate(stats.bytes_sent, self.stats.bytes_sent);
        self.received = rate(stats.bytes_received, self.stats.bytes_received);
        self.at = Some(now);
        self.stats = *stats;
    }
}

fn peer_snapshot(name: &str, view: &PeerView, rates: &PeerRates, now: Instant) -> PeerSnapshot {
    let state = match (view.connected, view.silent, view.last_heard) {
        (Some(_), Some(since), _) => PeerState::Silent {
            since: wall(since, now),
        },
        (Some(since), None, _) => PeerState::Up {
            since: wall(since, now),
        },
        (None, ..) if view.is_dismissed => PeerState::Dismissed,
        (None, ..) if view.is_refused => PeerState::Refused,
        (None, _, Some(_)) => PeerState::Connecting,
        (None, _, None) => PeerState::NeverAnswered {
            attempts: view.attempts,
        },
    };
    let stats = &view.stats;
    PeerSnapshot {
        is_removed: false,
        is_guest: false,
        name: name.to_owned(),
        state,
        endpoint: view.address,
        last_answer: view.last_heard.map(|at| wall(at, now)),
        rtt: view.rtt,
        base_rtt: view.base_rtt,
        queue_delay: view.connected.map(|_| view.queue_delay),
        loss: view.loss,
        send_rate: rates.sent,
        receive_rate: rates.received,
        allowed_rate: BitRate::bits_per_s((view.allowed_bytes_per_s.min(1e15) * 8.0) as u64),
        sent: TrafficCounters {
            datagrams: stats.datagrams_sent,
            bytes: ByteCount::new(stats.bytes_sent),
            payload: ByteCount::new(stats.payload_sent),
        },
        received: TrafficCounters {
            datagrams: stats.datagrams_received,
            bytes: ByteCount::new(stats.bytes_received),
            payload: ByteCount::new(stats.payload_received),
        },
        packets_lost: view.packets_lost,
        payload_retransmitted: ByteCount::new(stats.payload_again),
        streams_open: view.streams,
        controller_state: view.controller_state,
    }
}

/// Returns the system time at `at`.
pub(super) fn wall(at: Instant, now: Instant) -> SystemTime {
    SystemTime::now() - now.saturating_duration_since(at)
}
