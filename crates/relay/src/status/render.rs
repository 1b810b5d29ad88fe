//! Formats a snapshot as Prometheus text, and as text for a terminal.

use std::fmt::{self, Write as _};

use units::{BitRate, ByteCount};

use super::{
    FtpTotals, GatewaySnapshot, Histogram, OlderProcess, OptimiserTotals, PeerStatus,
    SshListenerStatus, StoreStatus,
    histogram::{BITS_PER_S, HistogramScale, SECONDS},
};
use crate::{time, transfer_log::TransferRecord};

impl GatewaySnapshot {
    /// Returns the snapshot in the text format of Prometheus, version 0.0.4. The text does not list
    /// the transfers, because each transfer would add labels. The number of labels would then have
    /// no limit.
    pub fn to_metrics(&self) -> String {
        let mut out = Metrics(String::new());
        out.gauge(
            "longhaul_start_time_seconds",
            "Unix time of the start",
            self.started_unix_s,
        );
        out.gauge(
            "longhaul_sessions_open",
            "Sessions open now",
            self.sessions_open,
        );
        out.gauge(
            "longhaul_older_processes",
            "Replaced processes that still serve",
            self.older_processes.len() as u64,
        );
        let of_older = self.older_processes.iter().map(|it| it.sessions_open);
        out.gauge(
            "longhaul_older_processes_sessions_open",
            "Sessions open now in older processes",
            of_older.sum(),
        );
        out.counter(
            "longhaul_sessions_total",
            "Sessions since the start",
            self.sessions_total,
        );
        out.counter(
            "longhaul_refused_total",
            "Logons refused by the gateway",
            self.refused_total,
        );
        out.counter(
            "longhaul_logins_failed_total",
            "Log-ins that servers have refused",
            self.logins_failed_total,
        );
        out.gauge(
            "longhaul_transfers_open",
            "Transfers open now",
            self.transfers.len() as u64,
        );
        let completed = self.transfers_completed_total;
        out.counter(
            "longhaul_transfers_completed_total",
            "Transfers that completed",
            completed,
        );
        let failed = self.transfers_failed_total;
        out.counter(
            "longhaul_transfers_failed_total",
            "Transfers that broke",
            failed,
        );
        let outcomes = [
            ("succeeded", &self.ftp_succeeded),
            ("failed", &self.ftp_failed),
        ];
        let name = "longhaul_ftp_transfers_total";
        out.head(
            name,
            "Finished FTP transfers of clients, as in the transfer log",
            "counter",
        );
        for (outcome, totals) in outcomes {
            out.sample(name, "outcome", outcome, totals.transfers as f64);
        }
        for (name, help, bytes) in FTP_BYTES {
            out.head(name, help, "counter");
            for (outcome, totals) in outcomes {
                out.sample(name, "outcome", outcome, bytes(totals) as f64);
            }
        }
        out.histogram(
            "longhaul_ftp_transfer_duration_seconds",
            "Time that succeeded FTP transfers took",
            &self.ftp_durations_s,
            &SECONDS,
        );
        out.histogram(
            "longhaul_ftp_transfer_rate_bits_per_second",
            "Mean rate of succeeded FTP transfers in which bytes moved",
            &self.ftp_rates_bits_per_s,
            &BITS_PER_S,
        );
        out.counter(
            "longhaul_transfer_log_dropped_total",
            "Lines that the transfer log lacks",
            self.transfer_log_dropped_total,
        );
        self.optimiser.to_metrics(&mut out);
        for (name, help, kind, value) in STORE_METRICS {
            out.head(name, help, kind);
            for store in &self.stores {
                out.sample(name, "store", &store.store, value(store) as f64);
            }
        }
        let name = "longhaul_dropped_datagrams_total";
        out.head(name, "Datagrams dropped unanswered", "counter");
        let dropped = &self.dropped;
        for (reason, count) in [
            ("unknown_key", dropped.unknown_key),
            ("bad_mac", dropped.bad_mac),
            ("replayed", dropped.replayed),
            ("crowded", dropped.crowded),
            ("malformed", dropped.malformed),
            ("unknown_connection", dropped.unknown_connection),
            ("undecryptable", dropped.undecryptable),
        ] {
            out.sample(name, "reason", reason, count as f64);
        }
        for (name, help, kind, value) in PEER_METRICS {
            out.head(name, help, kind);
            for peer in &self.peers {
                if let Some(value) = value(peer) {
                    out.sample(name, "peer", &peer.name, value);
                }
            }
        }
        out.0
    }
}

impl OptimiserTotals {
    fn to_metrics(self, out: &mut Metrics) {
        out.counter(
            "longhaul_optimiser_bytes_total",
            "Bytes of transfers and forwards that were coded for the link",
            self.bytes,
        );
        out.counter(
            "longhaul_optimiser_wan_bytes_total",
            "Bytes of their streams on the link, without headers and repeats",
            self.wan_bytes,
        );
        let name = "longhaul_optimiser_saved_bytes_total";
        out.head(name, "Bytes that did not cross the link", "counter");
        for (by, bytes) in [
            ("compression", self.compression_saved_bytes),
            ("deduplication", self.deduplication_saved_bytes),
        ] {
            out.sample(name, "by", by, bytes as f64);
        }
        let name = "longhaul_optimiser_processor_seconds_total";
        out.head(
            name,
            "Processor time of this gateway for coding and decoding",
            "counter",
        );
        let _ = writeln!(out.0, "{name} {}", self.processor_s);
    }
}

type FtpBytes = (&'static str, &'static str, fn(&FtpTotals) -> u64);

const FTP_BYTES: [FtpBytes; 2] = [
    (
        "longhaul_ftp_upload_bytes_total",
        "Bytes from clients in finished FTP transfers",
        |t| t.upload_bytes,
    ),
    (
        "longhaul_ftp_download_bytes_total",
        "Bytes to clients in finished FTP transfers, listings included",
        |t| t.download_bytes,
    ),
];

type PeerMetric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&PeerStatus) -> Option<f64>,
);

const PEER_METRICS: [PeerMetric; 14] = [
    (
        "longhaul_peer_up",
        "Whether the peer answers",
        "gauge",
        |p| Some(f64::from(p.state == "up")),
    ),
    (
        "longhaul_peer_rtt_seconds",
        "Round-trip time",
        "gauge",
        |p| Some(p.rtt_ms? / 1e3),
    ),
    (
        "longhaul_peer_base_rtt_seconds",
        "Least round-trip time",
        "gauge",
        |p| Some(p.base_rtt_ms? / 1e3),
    ),
    (
        "longhaul_peer_queue_delay_seconds",
        "Time spent in queues",
        "gauge",
        |p| Some(p.queue_delay_ms? / 1e3),
    ),
    (
        "longhaul_peer_loss_ratio",
        "Share of packets lost",
        "gauge",
        |p| Some(p.loss),
    ),
    (
        "longhaul_peer_send_bits_per_second",
        "Sent now",
        "gauge",
        |p| Some(p.send_bits_per_s as f64),
    ),
    (
        "longhaul_peer_receive_bits_per_second",
        "Received now",
        "gauge",
        |p| Some(p.receive_bits_per_s as f64),
    ),
    (
        "longhaul_peer_allowed_bits_per_second",
        "Allowed by congestion control",
        "gauge",
        |p| Some(p.allowed_bits_per_s as f64),
    ),
    (
        "longhaul_peer_sent_bytes_total",
        "Bytes sent",
        "counter",
        |p| Some(p.sent_bytes as f64),
    ),
    (
        "longhaul_peer_sent_payload_bytes_total",
        "Payload sent",
        "counter",
        |p| Some(p.sent_payload_bytes as f64),
    ),
    (
        "longhaul_peer_received_bytes_total",
        "Bytes received",
        "counter",
        |p| Some(p.received_bytes as f64),
    ),
    (
        "longhaul_peer_received_payload_bytes_total",
        "Payload received",
        "counter",
        |p| Some(p.received_payload_bytes as f64),
    ),
    (
        "longhaul_peer_packets_lost_total",
        "Packets declared lost",
        "counter",
        |p| Some(p.packets_lost as f64),
    ),
    (
        "longhaul_peer_retransmitted_bytes_total",
        "Payload sent again",
        "counter",
        |p| Some(p.retransmitted_bytes as f64),
    ),
];

type StoreMetric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&StoreStatus) -> u64,
);

const STORE_METRICS: [StoreMetric; 12] = [
    (
        "longhaul_store_chunks",
        "Chunks in the store",
        "gauge",
        |s| s.chunks,
    ),
    (
        "longhaul_store_segments",
        "Segments on the disk",
        "gauge",
        |s| s.segments,
    ),
    (
        "longhaul_store_disk_bytes",
        "Bytes of the segments",
        "gauge",
        |s| s.disk_bytes,
    ),
    (
        "longhaul_store_size_max_bytes",
        "Most bytes of the segments",
        "gauge",
        |s| s.size_max_bytes,
    ),
    (
        "longhaul_store_index_bytes",
        "Memory of the index",
        "gauge",
        |s| s.index_bytes,
    ),
    (
        "longhaul_store_rebuilding",
        "Whether chunks of earlier runs may be unknown yet",
        "gauge",
        |s| u64::from(s.is_rebuilding),
    ),
    (
        "longhaul_store_hits_total",
        "Chunks read from the store",
        "counter",
        |s| s.hits,
    ),
    (
        "longhaul_store_misses_total",
        "Chunks looked for that were not there",
        "counter",
        |s| s.misses,
    ),
    (
        "longhaul_store_damaged_total",
        "Chunks and segments that were damaged",
        "counter",
        |s| s.damaged,
    ),
    (
        "longhaul_store_dropped_total",
        "Chunks that were not kept",
        "counter",
        |s| s.dropped,
    ),
    (
        "longhaul_store_evicted_segments_total",
        "Segments removed to make room",
        "counter",
        |s| s.evicted_segments,
    ),
    (
        "longhaul_store_write_errors_total",
        "Writes and removals that failed",
        "counter",
        |s| s.write_errors,
    ),
];

struct Metrics(String);

impl Metrics {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn histogram(&mut self, name: &str, help: &str, values: &Histogram, scale: &HistogramScale) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        let mut all = 0;
        for (bound, count) in values.cumulated(scale) {
            let bound = match bound.is_finite() {
                true => bound.to_string(),
                false => "+Inf".to_owned(),
            };
            self.sample(&bucket, "le", &bound, count as f64);
            all = count;
        }
        let _ = writeln!(self.0, "{name}_sum {}\n{name}_count {all}", values.sum);
    }

    fn sample(&mut self, name: &str, label: &str, label_value: &str, value: f64) {
        let label_value = label_value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = writeln!(self.0, "{name}{{{label}=\"{label_value}\"}} {value}");
    }
}

impl fmt::Display for GatewaySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match self.build.as_str() {
            "" => &self.version,
            build => build,
        };
        writeln!(f, "gateway {version} on {}", self.link_listen)?;
        for peer in &self.peers {
            writeln!(f, "peer {}: {}", peer.name, PeerLine(peer))?;
        }
        writeln!(
            f,
            "sessions: {} open, {} since the start; transfers: {} completed, {} broken; refused: {}; failed log-ins: {}",
            self.sessions_open,
            self.sessions_total,
            self.transfers_completed_total,
            self.transfers_failed_total,
            self.refused_total,
            self.logins_failed_total
        )?;
        for older in &self.older_processes {
            writeln!(f, "{older}")?;
        }
        if self.optimiser.bytes > 0 {
            writeln!(f, "{}", self.optimiser)?;
        }
        for store in &self.stores {
            writeln!(f, "{store}")?;
        }
        for listener in &self.ssh {
            writeln!(f, "{listener}")?;
        }
        for t in &self.transfers {
            let limit = match t.limit.as_str() {
                "" => "idle".to_owned(),
                limit => format!("limited by {limit}"),
            };
            writeln!(
                f,
                "  {} {} {} via {}: up {}, down {}{}, {}, {limit}",
                t.side,
                t.kind,
                t.target,
                t.peer,
                ByteCount::new(t.up_bytes).measured(),
                ByteCount::new(t.down_bytes).measured(),
                WanBytes(t.up_bytes + t.down_bytes, t.wan_bytes),
                BitRate::bits_per_s(t.bits_per_s),
            )?;
        }
        match self.finished.iter().all(TransferRecord::is_without_names) {
            _ if self.finished.is_empty() => {}
            true => writeln!(
                f,
                "finished, the newest first (names: sudo longhaul status):"
            )?,
            false => writeln!(f, "finished, the newest first:")?,
        }
        for record in self.finished.iter().take(FINISHED_SHOWN) {
            writeln!(f, "  {}", FinishedLine(record))?;
        }
        match self.finished.len().saturating_sub(FINISHED_SHOWN) {
            0 => Ok(()),
            more => writeln!(
                f,
                "  and {more} more: longhaul status --json, or the transfer log"
            ),
        }
    }
}

impl fmt::Display for SshListenerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target.as_deref().unwrap_or("user%server");
        write!(
            f,
            "ssh on {} to {target}, host key {}",
            self.listen, self.host_key
        )
    }
}

impl fmt::Display for OlderProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "older process {} (version {}), replaced at {}: sessions: {} open; transfers: {} open; it ends after them",
            self.pid,
            self.version,
            time::utc(self.since_unix_s),
            self.sessions_open,
            self.transfers_open,
        )
    }
}
/// Maximum number of finished transfers in the terminal text. With more transfers, the list of
/// peers would scroll off the screen.
const FINISHED_SHOWN: usize = 10;

impl fmt::Display for OptimiserTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "optimiser: {} became {} on the WAN; saved by compression: {}, by deduplication: {}; processor time: {:.1} s",
            ByteCount::new(self.bytes).measured(),
            ByteCount::new(self.wan_bytes).measured(),
            ByteCount::new(self.compression_saved_bytes).measured(),
            ByteCount::new(self.deduplication_saved_bytes).measured(),
            self.processor_s,
        )
    }
}

/// Returns the final path of a file that the mover uploads under a temporary name. For example,
/// `a/film.0123abcd.part` becomes `a/film`.
pub fn final_path(path: &str) -> &str {
    let without_digits = |text: &str, count: usize| {
        let (rest, digits) = text.split_at_checked(text.len().checked_sub(count)?)?;
        let is_digit = |it: &u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
        let rest = rest.strip_suffix('.')?;
        digits.bytes().all(|it| is_digit(&it)).then_some(rest.len())
    };
    let Some(stem) = path.strip_suffix(".part") else {
        return path;
    };
    // The workers of a fleet append a mark to the digits.
    let marked = without_digits(stem, 10).map_or(stem, |end| &stem[..end]);
    match without_digits(marked, 8) {
        Some(end) if end > 0 && !stem[..end].ends_with('/') => &path[..end],
        _ => path,
    }
}

impl TransferRecord {
    /// Whether all names are missing from the record. The gateway removes all names from its
    /// answers at the admin address.
    fn is_without_names(&self) -> bool {
        self.user.is_empty() && self.path.is_empty()
    }
}

struct FinishedLine<'a>(&'a TransferRecord);

impl fmt::Display for FinishedLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.0;
        let outcome = if t.succeeded { "ok" } else { "failed" };
        let reply = t.reply_code.map_or("-".to_owned(), |code| code.to_string());
        match t.is_without_names() {
            true => write!(f, "{} {outcome} {reply} {}", t.time, t.verb)?,
            false => write!(
                f,
                "{} {outcome} {reply} {:?} {} {:?}",
                t.time,
                t.user,
                t.verb,
                final_path(&t.path)
            )?,
        }
        write!(
            f,
            " via {}: {}, {:.1} s, {}",
            t.peer,
            ByteCount::new(t.bytes).measured(),
            t.duration_s,
            BitRate::bits_per_s(t.rate_bit_per_s),
        )?;
        if let Some(limit) = &t.limited_by {
            write!(f, ", limited by {limit}")?;
        }
        write!(f, "{}", WanBytes(t.bytes, t.wan_bytes))
    }
}

/// Number of application bytes, and number of bytes on the link. The text is empty if coding has
/// saved no bytes. A gateway that does not count link bytes reports zero.
struct WanBytes(u64, u64);

impl fmt::Display for WanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(bytes, wan_bytes) = self;
        match 0 < wan_bytes && wan_bytes < bytes {
            true => write!(f, ", {} on the WAN", ByteCount::new(wan_bytes).measured()),
            false => Ok(()),
        }
    }
}

impl fmt::Display for StoreStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {}", self.peer)?;
        if !self.tenant.is_empty() {
            write!(f, ", tenant {}", self.tenant)?;
        }
        write!(
            f,
            ": {} chunks, {} of {} in {} segments; index: {}; {} hits, {} misses",
            self.chunks,
            ByteCount::new(self.disk_bytes).measured(),
            ByteCount::new(self.size_max_bytes).measured(),
            self.segments,
            ByteCount::new(self.index_bytes).measured(),
            self.hits,
            self.misses,
        )?;
        for (count, what) in [
            (self.damaged, "damaged"),
            (self.dropped, "dropped"),
            (self.evicted_segments, "segments evicted"),
            (self.write_errors, "write errors"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.is_rebuilding {
            f.write_str(", rebuilding its index")?;
        }
        match &self.trouble {
            Some(trouble) => write!(f, "; keeps nothing new: {trouble}"),
            None => Ok(()),
        }
    }
}

struct PeerLine<'a>(&'a PeerStatus);

impl fmt::Display for PeerLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.0;
        let since = peer.since_unix_s.map_or("never".to_owned(), time::utc);
        let endpoint = peer.endpoint.as_deref().unwrap_or("no endpoint");
        match peer.state.as_str() {
            "never-answered" => {
                write!(
                    f,
                    "never answered at {endpoint} (UDP blocked?), {} attempts",
                    peer.attempts
                )
            }
            "refused" => write!(f, "refused at {endpoint}: no gateway listens there"),
            "connecting" => write!(f, "connecting to {endpoint}"),
            "silent" => write!(f, "silent since {since} ({endpoint})"),
            "dismissed" => write!(
                f,
                "this gateway is no longer a peer of it ({endpoint}): the operator there has removed it"
            ),
            _ => {
                write!(f, "up since {since} ({endpoint})")?;
                if let Some(rtt) = peer.rtt_ms {
                    write!(f, ", rtt {rtt:.1} ms")?;
                }
                write!(
                    f,
                    ", loss {:.2} %, sending {}, receiving {}, allowed {}",
                    peer.loss * 100.0,
                    BitRate::bits_per_s(peer.send_bits_per_s),
                    BitRate::bits_per_s(peer.receive_bits_per_s),
                    BitRate::bits_per_s(peer.allowed_bits_per_s),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_shown_under_the_name_that_it_becomes() {
        for (path, shown) in [
            ("/a/film.0123abcd.part", "/a/film"),
            ("film.mov.0123abcd.part", "film.mov"),
            ("film.0123abcd.0123456789.part", "film"),
            ("film.part", "film.part"),
            ("film.0123ABCD.part", "film.0123ABCD.part"),
            ("/a/.0123abcd.part", "/a/.0123abcd.part"),
            (".0123abcd.part", ".0123abcd.part"),
            ("é.0123abcd.part", "é"),
            ("film", "film"),
            ("", ""),
        ] {
            assert_eq!(final_path(path), shown);
        }
    }
}
