//! Registry of open and finished sessions and transfers: their counters, and the snapshot of all
//! counters.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: rates and ages"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use link::LinkSnapshot;

use tokio::sync::Notify;

use super::{
    DroppedDatagrams, GatewaySnapshot, OptimiserTotals, TransferStatus,
    finished::{self, FinishedTransfers, TransferConclusion, TransferMeasurement},
    peer::peer_status,
    recent::{FoundTransfers, KnownPath, RecentTransfers, TransferSearch},
};
use crate::{
    optimise::{CodingCounters, CodingSnapshot, CodingTotals},
    time,
    transfer_log::TransferLog,
    wire::TransferBottleneck,
};

/// Meter of one direction of a transfer. It counts bytes, and measures the times for which the
/// direction waits for TCP and for the link.
#[derive(Debug)]
pub struct DirectionMeter {
    started: Instant,
    bytes: AtomicU64,
    is_on_link: AtomicBool,
    /// Start of the present wait, in nanoseconds since `started`.
    since_ns: AtomicU64,
    tcp_ns: AtomicU64,
    link_ns: AtomicU64,
}

impl DirectionMeter {
    fn new(started: Instant) -> Self {
        Self {
            started,
            bytes: AtomicU64::new(0),
            is_on_link: AtomicBool::new(false),
            since_ns: AtomicU64::new(0),
            tcp_ns: AtomicU64::new(0),
            link_ns: AtomicU64::new(0),
        }
    }

    /// Counts bytes that this direction has moved.
    pub fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Records that this direction now waits for the TCP connection.
    pub fn start_tcp_wait(&self) {
        self.switch_wait(false);
    }

    /// Records that this direction now waits for the link.
    pub fn start_link_wait(&self) {
        self.switch_wait(true);
    }

    fn switch_wait(&self, link: bool) {
        let now_ns = self.now_ns();
        let waited_ns = now_ns.saturating_sub(self.since_ns.swap(now_ns, Relaxed));
        match self.is_on_link.swap(link, Relaxed) {
            true => self.link_ns.fetch_add(waited_ns, Relaxed),
            false => self.tcp_ns.fetch_add(waited_ns, Relaxed),
        };
    }

    /// Returns the number of bytes that this direction has moved.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Whether this direction has spent more time on waiting for TCP than on waiting for the link.
    /// The function ignores the present wait.
    fn waited_for_tcp(&self) -> bool {
        self.tcp_ns.load(Relaxed) > self.link_ns.load(Relaxed)
    }

    /// Returns three totals: the number of bytes, the time of waiting for TCP, and the time of
    /// waiting for the link. The times are in nanoseconds and include the present wait.
    fn totals(&self) -> [u64; 3] {
        let waits_ns = self.now_ns().saturating_sub(self.since_ns.load(Relaxed));
        let is_on_link = self.is_on_link.load(Relaxed);
        let (tcp_ns, link_ns) = if is_on_link {
            (0, waits_ns)
        } else {
            (waits_ns, 0)
        };
        [
            self.bytes(),
            self.tcp_ns.load(Relaxed) + tcp_ns,
            self.link_ns.load(Relaxed) + link_ns,
        ]
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Handle of an open transfer. Dropping the handle removes the transfer from the registry.
#[derive(Debug)]
pub struct OpenTransfer {
    id: u64,
    registry: Arc<Registry>,
    entry: Arc<TransferEntry>,
}

#[derive(Debug)]
struct TransferEntry {
    session: u64,
    kind: &'static str,
    near: bool,
    peer: String,
    client: String,
    target: String,
    /// Meters of both directions: from TCP to the link, and from the link to TCP.
    meters: (DirectionMeter, DirectionMeter),
    coding_counters: Arc<CodingCounters>,
    started: Instant,
    /// Outcome of the transfer: `OPEN`, `COMPLETED` or `FAILED`.
    outcome: AtomicU8,
    sample: Mutex<Sample>,
    /// Bottleneck that the peer has reported, as a code of [`bottleneck_code`].
    peer_bottleneck: AtomicU8,
    requested: Mutex<RequestedFile>,
    stop: Notify,
    conclusion: Mutex<Option<TransferConclusion>>,
}

/// File that the client has requested.
#[derive(Debug, Default)]
struct RequestedFile {
    /// Argument of the transfer command.
    path: String,
    /// Size that the server has announced, in bytes.
    size_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    totals: [u64; 3],
    bits_per_s: u64,
    limit: Option<TransferBottleneck>,
}

/// Registry of all sessions and transfers of the gateway.
#[derive(Debug)]
pub struct Registry {
    started: SystemTime,
    next: AtomicU64,
    transfers: Mutex<BTreeMap<u64, Arc<TransferEntry>>>,
    sessions_open: AtomicU64,
    sessions_total: AtomicU64,
    refused_total: AtomicU64,
    logins_failed_total: AtomicU64,
    completed_total: AtomicU64,
    failed_total: AtomicU64,
    finished: Mutex<FinishedTransfers>,
    recent: Mutex<RecentTransfers>,
    coded: Arc<CodingTotals>,
    log: TransferLog,
}

/// Guard of an open session. The registry counts the session as open until the guard is dropped.
#[derive(Debug)]
pub struct SessionGuard(Arc<Registry>);

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.sessions_open.fetch_sub(1, Relaxed);
    }
}

impl OpenTransfer {
    /// Returns the meters of both directions: from TCP to the link, and from the link to TCP.
    pub fn meters(&self) -> &(DirectionMeter, DirectionMeter) {
        &self.entry.meters
    }

    /// Returns the number of bytes that the TCP connection has accepted from the link, and the time
    /// spent on waiting for the TCP connection.
    pub(crate) fn tcp_progress(&self) -> (u64, Duration) {
        let [bytes, tcp_ns, _] = self.entry.meters.1.totals();
        (bytes, Duration::from_nanos(tcp_ns))
    }

    /// Returns the coding counters of the transfer.
    pub fn coding_counters(&self) -> &Arc<CodingCounters> {
        &self.entry.coding_counters
    }

    /// Adds `part`, the share of this transfer in the coding of a stream that carries several
    /// transfers.
    pub fn add_coding(&self, part: &CodingSnapshot) {
        self.entry.coding_counters.add_part(part);
    }

    /// Marks the transfer as completed without an error.
    pub fn mark_completed(&self) {
        self.entry.outcome.store(COMPLETED, Relaxed);
    }

    /// Records the outcome of an FTP transfer. The registry counts and logs the transfer when its
    /// data connection ends.
    pub fn conclude(&self, conclusion: TransferConclusion) {
        let outcome = match conclusion.succeeded {
            true => COMPLETED,
            false => FAILED,
        };
        self.entry.outcome.store(outcome, Relaxed);
        *lock(&self.entry.conclusion) = Some(conclusion);
    }

    /// Stores the bottleneck that the peer has reported for the transfer.
    pub(crate) fn record_peer_bottleneck(&self, limit: TransferBottleneck) {
        self.entry
            .peer_bottleneck
            .store(bottleneck_code(limit), Relaxed);
    }

    /// Stores the path that the client has requested.
    pub fn set_requested_path(&self, path: String) {
        lock(&self.entry.requested).path = path;
    }

    /// Stores the file size that the server has announced.
    pub fn set_announced_size(&self, size_bytes: u64) {
        lock(&self.entry.requested).size_bytes = Some(size_bytes);
    }

    /// Waits until the operator stops the transfer.
    pub async fn wait_for_stop(&self) {
        self.entry.stop.notified().await;
    }

    /// Returns the bottleneck at this gateway, measured over the latest interval between ticks.
    pub(crate) fn bottleneck(&self) -> Option<TransferBottleneck> {
        lock(&self.entry.sample).limit
    }
}

impl Drop for OpenTransfer {
    fn drop(&mut self) {
        lock(&self.registry.transfers).remove(&self.id);
        if let Some(conclusion) = lock(&self.entry.conclusion).take() {
            self.registry.finish(&self.entry, conclusion);
        }
        let meters = &self.entry.meters;
        let total = match self.entry.outcome.load(Relaxed) {
            COMPLETED => &self.registry.completed_total,
            FAILED => &self.registry.failed_total,
            // A data connection that no transfer has used does not count.
            _ if meters.0.bytes() + meters.1.bytes() == 0 => return,
            _ => &self.registry.failed_total,
        };
        total.fetch_add(1, Relaxed);
    }
}

impl TransferEntry {
    /// Returns the totals of the direction with more bytes. In the opposite direction, the transfer
    /// only waits for the end.
    fn totals(&self) -> [u64; 3] {
        let (a, b) = &self.meters;
        if a.bytes() > b.bytes() {
            a.totals()
        } else {
            b.totals()
        }
    }

    fn tick(&self, now: Instant) {
        let mut sample = lock(&self.sample);
        let totals = self.totals();
        let elapsed = now - sample.at;
        let [bytes, tcp, link] = [0, 1, 2].map(|i| totals[i].saturating_sub(sample.totals[i]));
        let rate = units::BitRate::from_transfer(units::ByteCount::new(bytes), elapsed);
        sample.bits_per_s = rate.as_bits_per_s();
        sample.limit = if totals[0] == 0 {
            None
        } else if tcp > link {
            Some(if self.near {
                TransferBottleneck::Client
            } else {
                TransferBottleneck::Server
            })
        } else {
            Some(TransferBottleneck::Wan)
        };
        sample.at = now;
        sample.totals = totals;
    }

    /// Returns the bottleneck over the complete transfer. Callers use this function when the
    /// transfer ends.
    fn bottleneck(&self) -> Option<TransferBottleneck> {
        let (a, b) = &self.meters;
        let meter = if a.bytes() > b.bytes() { a } else { b };
        match (meter.bytes(), meter.waited_for_tcp()) {
            (0, _) => None,
            (_, true) => Some(TransferBottleneck::Client),
            (_, false) => bottleneck_of_code(self.peer_bottleneck.load(Relaxed))
                .or(Some(TransferBottleneck::Wan)),
        }
    }

    /// Returns the number of bytes from client to server, and the number of bytes from server to
    /// client.
    fn up_and_down(&self) -> (u64, u64) {
        let (to_link, from_link) = (self.meters.0.bytes(), self.meters.1.bytes());
        if self.near {
            (to_link, from_link)
        } else {
            (from_link, to_link)
        }
    }

    fn status(&self, id: u64, now: Instant) -> TransferStatus {
        let (path, size_bytes) = {
            let requested = lock(&self.requested);
            (requested.path.clone(), requested.size_bytes)
        };
        let sample = *lock(&self.sample);
        let limit = match (
            sample.limit,
            bottleneck_of_code(self.peer_bottleneck.load(Relaxed)),
        ) {
            (Some(TransferBottleneck::Wan), Some(peer_bottleneck)) => {
                bottleneck_name(peer_bottleneck)
            }
            // The peer has not reported its bottleneck yet, and never reports one for forwards.
            (Some(TransferBottleneck::Wan), None) if self.near => "WAN or server",
            (Some(TransferBottleneck::Wan), None) => "WAN or client",
            (limit, _) => limit.map_or("", bottleneck_name),
        };
        let (up, down) = self.up_and_down();
        TransferStatus {
            id,
            path,
            size_bytes,
            session: self.session,
            kind: self.kind.to_owned(),
            side: if self.near { "near" } else { "far" }.to_owned(),
            peer: self.peer.clone(),
            client: self.client.clone(),
            target: self.target.clone(),
            up_bytes: up,
            down_bytes: down,
            wan_bytes: wan_bytes(&self.coding_counters.snapshot(), up + down),
            bits_per_s: sample.bits_per_s,
            age_s: (now - self.started).as_secs_f64(),
            limit: limit.to_owned(),
        }
    }
}

impl Registry {
    /// Creates a registry whose counters are zero. The registry writes finished transfers to `log`.
    pub fn new(log: TransferLog) -> Arc<Self> {
        Arc::new(Self {
            started: SystemTime::now(),
            // A page may still show numbers of an earlier process, so each process uses other
            // numbers. JavaScript represents the numbers exactly.
            next: AtomicU64::new(time::unix_s(SystemTime::now()) * 1_000_000),
            transfers: Mutex::default(),
            sessions_open: AtomicU64::new(0),
            sessions_total: AtomicU64::new(0),
            refused_total: AtomicU64::new(0),
            logins_failed_total: AtomicU64::new(0),
            completed_total: AtomicU64::new(0),
            failed_total: AtomicU64::new(0),
            finished: Mutex::default(),
            recent: Mutex::default(),
            coded: Arc::default(),
            log,
        })
    }

    /// Returns the number of open control connections and forwards.
    pub fn sessions_open(&self) -> u64 {
        self.sessions_open.load(Relaxed)
    }

    /// Counts a session as open until the returned guard is dropped.
    pub fn session(self: &Arc<Self>) -> SessionGuard {
        self.sessions_open.fetch_add(1, Relaxed);
        self.sessions_total.fetch_add(1, Relaxed);
        SessionGuard(self.clone())
    }

    /// Returns the number of open data connections of this gateway's own clients.
    pub(crate) fn client_transfers_open(&self) -> usize {
        let transfers = lock(&self.transfers);
        let of_listeners = transfers.values().filter(|t| t.near && t.kind == "ftp");
        of_listeners.count()
    }

    /// Counts a client or log-on that the gateway has refused.
    pub fn count_refusal(&self) {
        self.refused_total.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_failed_login(&self) {
        self.logins_failed_total.fetch_add(1, Relaxed);
    }

    /// Returns counters for a coded stream that is no transfer, or carries several transfers.
    pub fn stream_coding_counters(&self) -> Arc<CodingCounters> {
        Arc::new(CodingCounters::new(self.coded.clone()))
    }

    /// Registers a transfer as open. Returns a handle of the transfer.
    pub fn transfer(
        self: &Arc<Self>,
        kind: &'static str,
        near: bool,
        session: u64,
        peer: &str,
        client: &str,
        target: &str,
    ) -> Arc<OpenTransfer> {
        let now = Instant::now();
        let entry = Arc::new(TransferEntry {
            session,
            kind,
            near,
            peer: peer.to_owned(),
            client: client.to_owned(),
            target: target.to_owned(),
            meters: (DirectionMeter::new(now), DirectionMeter::new(now)),
            coding_counters: Arc::new(CodingCounters::new(self.coded.clone())),
            started: now,
            outcome: AtomicU8::new(OPEN),
            sample: Mutex::new(Sample {
                at: now,
                totals: [0; 3],
                bits_per_s: 0,
                limit: None,
            }),
            peer_bottleneck: AtomicU8::new(0),
            requested: Mutex::default(),
            stop: Notify::new(),
            conclusion: Mutex::default(),
        });
        let id = self.next.fetch_add(1, Relaxed);
        lock(&self.transfers).insert(id, entry.clone());
        Arc::new(OpenTransfer {
            id,
            registry: self.clone(),
            entry,
        })
    }

    fn finish(&self, entry: &TransferEntry, conclusion: TransferConclusion) {
        let (upload_bytes, download_bytes) = entry.up_and_down();
        let ended = SystemTime::now();
        let measured = TransferMeasurement {
            time: time::utc_ms(ended),
            session: entry.session,
            client: entry.client.clone(),
            peer: entry.peer.clone(),
            server: entry.target.clone(),
            upload_bytes,
            download_bytes,
            duration: conclusion.commanded.unwrap_or(entry.started).elapsed(),
            limited_by: entry.bottleneck().map(bottleneck_name),
            coded: entry.coding_counters.snapshot(),
        };
        let record = Arc::new(conclusion.record(&measured));
        finished::log(&record);
        lock(&self.finished).add(&record, &measured);
        lock(&self.recent).add(&record, measured.limited_by, ended);
        self.log.write(record);
    }

    /// Stores the properties of the path to a peer. The registry uses them to predict the duration
    /// over plain TCP.
    pub fn record_path(&self, peer: &str, path: KnownPath) {
        lock(&self.recent).record_path(peer, path);
    }

    /// Searches the latest finished transfers. Returns the transfers that match the search.
    pub fn recent(&self, search: &TransferSearch) -> FoundTransfers {
        lock(&self.recent).find(search)
    }

    /// Returns the number of finished transfers since the gateway's start.
    pub fn recent_total(&self) -> u64 {
        lock(&self.recent).total()
    }

    /// Stops an open transfer. Returns whether an open transfer has this number.
    pub fn stop(&self, id: u64) -> bool {
        let entry = lock(&self.transfers).get(&id).cloned();
        let entry = entry.inspect(|entry| entry.stop.notify_one());
        entry.is_some()
    }

    /// Returns the log of finished transfers.
    pub fn transfer_log(&self) -> &TransferLog {
        &self.log
    }

    /// Updates the rates and bottlenecks of all open transfers. The caller calls this once a
    /// second.
    pub(crate) fn tick(&self) {
        let now = Instant::now();
        for entry in lock(&self.transfers).values() {
            entry.tick(now);
        }
    }

    /// Returns the state of each open transfer.
    pub fn open_transfers(&self) -> Vec<TransferStatus> {
        let now = Instant::now();
        lock(&self.transfers)
            .iter()
            .map(|(id, entry)| entry.status(*id, now))
            .collect()
    }

    /// Returns the present state of the gateway.
    pub fn snapshot(&self, link: &LinkSnapshot, link_listen: String) -> GatewaySnapshot {
        // The lock ensures that all values belong to one moment. The lock is released before the
        // link's state is formatted.
        let (totals, histograms, finished) = {
            let finished = lock(&self.finished);
            (
                (finished.succeeded, finished.failed),
                (finished.durations_s, finished.rates_bits_per_s),
                finished.newest(),
            )
        };
        GatewaySnapshot {
            version: crate::VERSION.to_owned(),
            build: String::new(),
            public_key: String::new(),
            started_unix_s: time::unix_s(self.started),
            link_listen,
            socket_buffer_asked_bytes: link.socket_buffers.asked.bytes(),
            socket_buffer_receive_bytes: link.socket_buffers.receive_granted.bytes(),
            socket_buffer_send_bytes: link.socket_buffers.send_granted.bytes(),
            dropped: DroppedDatagrams {
                unknown_key: link.dropped.unknown_key,
                bad_mac: link.dropped.bad_mac,
                replayed: link.dropped.replayed,
                crowded: link.dropped.crowded,
                malformed: link.dropped.malformed,
                unknown_connection: link.dropped.unknown_connection,
                undecryptable: link.dropped.undecryptable,
            },
            peers: {
                let peers = link
                    .peers
                    .iter()
                    .filter(|peer| !peer.is_removed && !peer.is_guest);
                peers.map(peer_status).collect()
            },
            sessions_open: self.sessions_open.load(Relaxed),
            sessions_total: self.sessions_total.load(Relaxed),
            refused_total: self.refused_total.load(Relaxed),
            logins_failed_total: self.logins_failed_total.load(Relaxed),
            transfers_completed_total: self.completed_total.load(Relaxed),
            transfers_failed_total: self.failed_total.load(Relaxed),
            ftp_succeeded: totals.0,
            ftp_failed: totals.1,
            ftp_durations_s: histograms.0,
            ftp_rates_bits_per_s: histograms.1,
            transfer_log_dropped_total: self.log.dropped_total(),
            optimiser: optimiser_totals(self.coded.snapshot()),
            stores: Vec::new(),
            ssh: Vec::new(),
            hides_names: false,
            admin_listen: String::new(),
            admin_socket: String::new(),
            older_processes: Vec::new(),
            transfers: self.open_transfers(),
            finished,
        }
    }
}

/// Returns the number of bytes on the link, including uncoded bytes.
fn wan_bytes(coded: &CodingSnapshot, bytes: u64) -> u64 {
    coded.wan_bytes + bytes.saturating_sub(coded.bytes)
}

fn optimiser_totals(seen: CodingSnapshot) -> OptimiserTotals {
    OptimiserTotals {
        bytes: seen.bytes,
        wan_bytes: seen.wan_bytes,
        compression_saved_bytes: seen.compression_saved_bytes,
        deduplication_saved_bytes: seen.deduplication_saved_bytes,
        processor_s: seen.processor.as_secs_f64(),
    }
}

/// Codes for the outcome of a transfer.
const OPEN: u8 = 0;
const COMPLETED: u8 = 1;
const FAILED: u8 = 2;

fn bottleneck_code(limit: TransferBottleneck) -> u8 {
    match limit {
        TransferBottleneck::Client => 1,
        TransferBottleneck::Wan => 2,
        TransferBottleneck::Server => 3,
    }
}

fn bottleneck_of_code(code: u8) -> Option<TransferBottleneck> {
    match code {
        1 => Some(TransferBottleneck::Client),
        2 => Some(TransferBottleneck::Wan),
        3 => Some(TransferBottleneck::Server),
        _ => None,
    }
}

fn bottleneck_name(limit: TransferBottleneck) -> &'static str {
    match limit {
        TransferBottleneck::Client => "client",
        TransferBottleneck::Wan => "WAN",
        TransferBottleneck::Server => "server",
    }
}

/// Locks the mutex. The value is valid even if a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
