//! Data about the gateway and its peers, for the dashboard's page. The data combine the snapshot
//! with settings of the configuration and of the operator.

use std::time::SystemTime;

use link::Policy;
use serde::Serialize;
use units::{BitRate, ByteCount};

use super::rate_overrides::ManualLimits;
use crate::config::Config;
use relay::status::{
    FtpTotals, GatewaySnapshot, KnownPath, OptimiserTotals, PeerStatus, StoreStatus, TransferStatus,
};

/// State of a gateway at one moment, without its transfers.
#[derive(Debug, Serialize)]
pub(super) struct DashboardGateway {
    pub(super) now_unix_s: u64,
    version: String,
    public_key: String,
    link_listen: String,
    started_unix_s: u64,
    policy: &'static str,
    rate_reserved_bits_per_s: Option<u64>,
    rate_max: RateMax,
    pub(super) peers: Vec<DashboardPeer>,
    /// Number of peers that the page does not show. `/status.json` contains them.
    peers_left_out: usize,
    sessions_open: u64,
    refused_total: u64,
    transfers_completed_total: u64,
    transfers_failed_total: u64,
    ftp_succeeded: FtpTotals,
    ftp_failed: FtpTotals,
    optimiser: OptimiserTotals,
    stores: Vec<StoreStatus>,
    /// Number of chunk stores that the page does not show. `/status.json` contains them.
    stores_left_out: usize,
    /// Number of transfers that have finished since the start. When the number changes, the page
    /// requests the finished transfers again.
    recent_total: u64,
}

/// State of a peer at one moment.
#[derive(Debug, Serialize)]
pub(super) struct DashboardPeer {
    #[serde(flatten)]
    pub(super) status: PeerStatus,
    pub(super) limit: PeerLimit,
    rate_max: RateMax,
    transfers_open: usize,
    /// Estimated rate of one plain TCP connection on the same path. `None` if the path is unknown.
    plain_tcp_bits_per_s: Option<u64>,
    /// Highest transfer rate of the last minutes. A rate counts only if the path or a rate limit
    /// was the bottleneck. `None` if the path is unknown, or if clients and servers limited all
    /// transfers.
    line_bits_per_s: Option<u64>,
}

/// A rate limit: the configured value and the present value.
#[derive(Debug, Serialize)]
struct RateMax {
    configured_bits_per_s: Option<u64>,
    now_bits_per_s: Option<u64>,
    is_by_hand: bool,
}

/// The factor that limits the rate of a peer's transfers most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum PeerLimit {
    /// No limit, because no bytes move.
    #[serde(rename = "")]
    Nothing,
    #[serde(rename = "client")]
    Client,
    #[serde(rename = "WAN")]
    Wan,
    #[serde(rename = "server")]
    Server,
    #[serde(rename = "rate limit")]
    RateMax,
}

impl DashboardGateway {
    pub(super) fn new(
        snapshot: &GatewaySnapshot,
        config: &Config,
        manual: &ManualLimits,
        recent_total: u64,
    ) -> Self {
        let (policy, rate_reserved) = match config.relay.link.policy {
            Policy::Fair => ("fair", None),
            Policy::Background => ("background", None),
            Policy::Reserved(rate) => ("reserved", Some(rate.as_bits_per_s())),
        };
        let rate_max = RateMax::new(config.relay.link.rate_max, manual.all);
        let of_all = rate_max.now_bits_per_s;
        let peers = snapshot.peers.iter().take(PEERS_MAX).map(|status| {
            let mut configured = config.relay.peers.iter().zip(&config.relay.link.peers);
            let configured = configured.find(|(peer, _)| peer.name == status.name);
            let rate_max = match configured {
                Some((peer, of_link)) => {
                    RateMax::new(of_link.rate_max, manual.peers.get(&peer.id.0).copied())
                }
                None => RateMax::new(None, None),
            };
            let transfers = snapshot.transfers.iter();
            let transfers: Vec<_> = transfers.filter(|it| it.peer == status.name).collect();
            let cap = of_all.into_iter().chain(rate_max.now_bits_per_s).min();
            DashboardPeer {
                limit: PeerLimit::from_transfers(status, &transfers, cap),
                status: status.clone(),
                rate_max,
                transfers_open: transfers.len(),
                plain_tcp_bits_per_s: None,
                line_bits_per_s: None,
            }
        });
        Self {
            now_unix_s: unix_s(),
            version: snapshot.version.clone(),
            public_key: snapshot.public_key.clone(),
            link_listen: snapshot.link_listen.clone(),
            started_unix_s: snapshot.started_unix_s,
            policy,
            rate_reserved_bits_per_s: rate_reserved,
            peers: peers.collect(),
            rate_max,
            peers_left_out: snapshot.peers.len().saturating_sub(PEERS_MAX),
            sessions_open: snapshot.sessions_open,
            refused_total: snapshot.refused_total,
            transfers_completed_total: snapshot.transfers_completed_total,
            transfers_failed_total: snapshot.transfers_failed_total,
            ftp_succeeded: snapshot.ftp_succeeded,
            ftp_failed: snapshot.ftp_failed,
            optimiser: snapshot.optimiser,
            stores: snapshot.stores.iter().take(STORES_MAX).cloned().collect(),
            stores_left_out: snapshot.stores.len().saturating_sub(STORES_MAX),
            recent_total,
        }
    }
}

impl DashboardPeer {
    /// Sets the values that depend on the path to the peer.
    pub(super) fn set_path(&mut self, path: KnownPath) {
        let goodput = path
            .transfer(ByteCount::megabytes(1000))
            .plain()
            .goodput_bits_per_s;
        let line_bits_per_s = path.rate.as_bits_per_s();
        let is_known = line_bits_per_s > 0;
        self.plain_tcp_bits_per_s = is_known.then_some(goodput as u64);
        self.line_bits_per_s = is_known.then_some(line_bits_per_s);
    }
}

impl RateMax {
    fn new(configured: Option<BitRate>, manual: Option<Option<BitRate>>) -> Self {
        let bits_per_s = |rate: Option<BitRate>| rate.map(BitRate::as_bits_per_s);
        Self {
            configured_bits_per_s: bits_per_s(configured),
            now_bits_per_s: bits_per_s(manual.unwrap_or(configured)),
            is_by_hand: manual.is_some(),
        }
    }
}

impl PeerLimit {
    fn from_transfers(peer: &PeerStatus, transfers: &[&TransferStatus], cap: Option<u64>) -> Self {
        let is_at_cap = cap.is_some_and(|cap| {
            let moved = peer.send_bits_per_s.max(peer.receive_bits_per_s);
            moved as f64 >= cap as f64 * AT_CAP
        });
        if is_at_cap {
            return Self::RateMax;
        }
        let moved = |limit: &str| -> u64 {
            // "WAN or server" counts as "WAN".
            let name = |it: &TransferStatus| it.limit.split(' ').next() == Some(limit);
            let transfers = transfers.iter().filter(|it| name(it));
            transfers.map(|it| it.bits_per_s).sum()
        };
        let all = [Self::Wan, Self::Client, Self::Server];
        let most = all.into_iter().max_by_key(|it| moved(it.name()));
        most.filter(|it| moved(it.name()) > 0)
            .unwrap_or(Self::Nothing)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Client => "client",
            Self::Wan => "WAN",
            Self::Server => "server",
            Self::RateMax => "rate limit",
        }
    }
}

fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Maximum number of peers with their histories on one page.
pub(super) const PEERS_MAX: usize = 64;

/// Maximum number of chunk stores on one page.
const STORES_MAX: usize = 64;

/// Fraction of a rate limit at which the limit counts as reached. Pacing and packet headers use the
/// remaining 10 %.
const AT_CAP: f64 = 0.9;
