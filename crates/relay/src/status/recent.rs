//! Latest finished transfers in a compact format, for the dashboard. Each record also contains the
//! duration that a formula predicts for plain TCP.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    time::SystemTime,
};

use serde::Serialize;
use units::{BitRate, ByteCount, calc};

use crate::transfer_log::{TransferDirection, TransferRecord};

/// Compact record of a finished transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RecentTransfer {
    /// Number of the transfer, counted from 1 at the gateway's start.
    number: u64,
    /// Unix time of the end of the transfer, in milliseconds.
    ended_unix_ms: u64,
    user: Box<str>,
    client: Box<str>,
    peer: Box<str>,
    server: Box<str>,
    verb: Box<str>,
    path: Box<str>,
    direction: Option<TransferDirection>,
    bytes: u64,
    /// Number of bytes in the transfer's link streams.
    wan_bytes: u64,
    duration_s: f64,
    reply_code: Option<u16>,
    succeeded: bool,
    limited_by: Option<&'static str>,
    /// Predicted duration over one plain TCP connection on the same path, in seconds. `None` if the
    /// path was unknown.
    ///
    /// For a download, the value is a lower bound. This gateway does not measure the loss of
    /// packets from the peer, so the formula assumes no loss.
    plain_tcp_s: Option<f64>,
}

impl FoundTransfers {
    /// Removes the names of users, files and clients.
    pub fn hide_names(&mut self) {
        for transfer in &mut self.transfers {
            (transfer.user, transfer.client) = (Box::default(), Box::default());
            transfer.path = Box::default();
        }
    }
}

/// Measured properties of the path to a peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownPath {
    /// Highest rate that the link has measured recently.
    pub rate: BitRate,
    /// Base round-trip time of the path.
    pub rtt: std::time::Duration,
    /// Fraction of this gateway's packets that were lost, from 0 to 1.
    pub loss: f64,
}

/// A search for finished transfers.
#[derive(Debug, Clone, Default)]
pub struct TransferSearch {
    /// Words that a matching transfer must contain. Each word may occur in any field, in upper or
    /// lower case.
    pub words: String,
    /// Whether only failed transfers match.
    pub failed: bool,
    /// If set, only transfers whose number is below this value are returned.
    pub before: Option<u64>,
    /// Maximum number of transfers to return.
    pub count_max: usize,
}

/// Transfers that match a search, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundTransfers {
    transfers: Vec<RecentTransfer>,
    /// Number of matching transfers, including transfers that are not returned.
    matching: usize,
    /// Number of transfers kept in memory.
    kept: usize,
}

/// Latest finished transfers, and the paths to the peers.
#[derive(Debug, Default)]
pub(super) struct RecentTransfers {
    total: u64,
    /// Records, sorted by time. The newest is last.
    kept: VecDeque<RecentTransfer>,
    /// Path to each peer, by the name of the peer.
    paths: BTreeMap<String, KnownPath>,
}

impl RecentTransfers {
    pub(super) fn add(
        &mut self,
        record: &TransferRecord,
        limited_by: Option<&'static str>,
        ended: SystemTime,
    ) {
        self.total += 1;
        let since = ended.duration_since(SystemTime::UNIX_EPOCH);
        let path = self.paths.get(&record.peer);
        let plain_tcp_s = path.and_then(|path| plain_tcp_s(record, *path));
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(RecentTransfer {
            number: self.total,
            ended_unix_ms: since.map_or(0, |since| since.as_millis() as u64),
            user: short(&record.user),
            client: short(&record.client),
            peer: short(&record.peer),
            server: short(&record.server),
            verb: short(&record.verb),
            path: short(&record.path),
            direction: record.direction,
            bytes: record.bytes,
            wan_bytes: record.wan_bytes,
            duration_s: record.duration_s,
            reply_code: record.reply_code,
            succeeded: record.succeeded,
            limited_by,
            plain_tcp_s,
        });
    }

    pub(super) fn record_path(&mut self, peer: &str, path: KnownPath) {
        if let Some(known) = self.paths.get_mut(peer) {
            *known = path;
        } else if self.paths.len() < PATHS_MAX {
            self.paths.insert(peer.to_owned(), path);
        }
    }

    pub(super) fn find(&self, search: &TransferSearch) -> FoundTransfers {
        let words = search.words.to_lowercase();
        let words: Vec<_> = words.split_whitespace().collect();
        let mut text = String::new();
        let matching = self
            .kept
            .iter()
            .rev()
            .filter(|it| (!search.failed || !it.succeeded) && it.has_all(&words, &mut text));
        let mut transfers = Vec::new();
        let mut count = 0;
        for transfer in matching {
            count += 1;
            let is_older = search.before.is_none_or(|before| transfer.number < before);
            if is_older && transfers.len() < search.count_max {
                transfers.push(transfer.clone());
            }
        }
        FoundTransfers {
            transfers,
            matching: count,
            kept: self.kept.len(),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

impl RecentTransfer {
    fn has_all(&self, words: &[&str], text: &mut String) -> bool {
        if words.is_empty() {
            return true;
        }
        text.clear();
        let outcome = self.outcome();
        let fields = [
            &*self.path,
            &*self.user,
            &*self.client,
            &*self.peer,
            &*self.server,
            &*self.verb,
            &outcome,
        ];
        for field in fields {
            text.push('\n');
            text.extend(field.chars().flat_map(char::to_lowercase));
        }
        words.iter().all(|word| text.contains(word))
    }

    /// Returns the outcome in the words of the dashboard's table.
    fn outcome(&self) -> Cow<'static, str> {
        match (self.succeeded, self.reply_code) {
            (true, _) => "completed".into(),
            (false, None) => "failed".into(),
            (false, Some(code)) => format!("failed ({code})").into(),
        }
    }
}

impl KnownPath {
    /// Returns the input for the formula of `longhaul calc time`: a file of this size on this path.
    /// The formula models CUBIC with windows that fill the path.
    pub fn transfer(&self, size: ByteCount) -> calc::Transfer {
        calc::Transfer {
            size,
            rate: self.rate,
            rtt: self.rtt,
            loss: self.loss.clamp(0.0, LOSS_MAX),
            window: None,
        }
    }
}

fn plain_tcp_s(record: &TransferRecord, mut path: KnownPath) -> Option<f64> {
    // The path is at least as fast as this transfer.
    let rate = BitRate::bits_per_s(record.rate_bit_per_s);
    path.rate = path.rate.max(rate);
    if record.direction != Some(TransferDirection::Upload) {
        path.loss = 0.0;
    }
    let has_moved = record.bytes > 0 && record.direction.is_some();
    let is_known = has_moved && path.rate.as_bits_per_s() > 0;
    let transfer = path.transfer(ByteCount::new(record.bytes));
    is_known.then(|| transfer.plain().time.as_secs_f64())
}

/// Returns the longest prefix of at most [`TEXT_BYTES_MAX`] bytes that ends at a character
/// boundary.
fn short(text: &str) -> Box<str> {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text[..end].into()
}

/// Maximum number of transfers kept in memory. A dashboard can search them quickly. With names of
/// usual length, the transfers use 3 MB.
const KEPT: usize = 10_000;

/// Maximum length of a stored text, in bytes. Longer texts are cut, so that the memory is limited.
const TEXT_BYTES_MAX: usize = 256;

/// Maximum number of stored paths. A link has at most this number of peers.
const PATHS_MAX: usize = 4096;

/// Upper limit of the loss in the formula. The formula divides by the fraction of delivered
/// packets, which must not be zero.
const LOSS_MAX: f64 = 0.99;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transfer_log::TransferType;

    fn record(path: &str, succeeded: bool) -> TransferRecord {
        TransferRecord {
            schema: TransferRecord::SCHEMA,
            time: String::new(),
            session: 1,
            client: "10.0.0.7:4000".to_owned(),
            user: "Anna".to_owned(),
            door: String::new(),
            peer: "oslo".to_owned(),
            server: "ftp.example:21".to_owned(),
            verb: "STOR".to_owned(),
            path: path.to_owned(),
            direction: Some(TransferDirection::Upload),
            transfer_type: TransferType::Binary,
            bytes: 1_000_000_000,
            duration_s: 9.0,
            rate_bit_per_s: 888_000_000,
            reply_code: Some(if succeeded { 226 } else { 426 }),
            succeeded,
            client_tls: false,
            server_tls: false,
            limited_by: None,
            wan_bytes: 1_000_000_000,
            compression_saved_bytes: 0,
            deduplication_saved_bytes: 0,
            coding_processor_s: 0.0,
        }
    }

    fn add(recent: &mut RecentTransfers, path: &str, succeeded: bool) {
        recent.add(
            &record(path, succeeded),
            Some("WAN"),
            SystemTime::UNIX_EPOCH,
        );
    }

    fn numbers(recent: &RecentTransfers, search: &TransferSearch) -> Vec<u64> {
        let found = recent.find(search).transfers;
        found.iter().map(|it| it.number).collect()
    }

    #[test]
    fn words_of_any_field_and_case_are_found_the_newest_first() {
        let mut recent = RecentTransfers::default();
        for (path, succeeded) in [("reel-1.mxf", true), ("Reel-2.mxf", false), ("notes", true)] {
            add(&mut recent, path, succeeded);
        }
        let search = |words: &str| TransferSearch {
            words: words.to_owned(),
            count_max: 10,
            ..TransferSearch::default()
        };
        assert_eq!(numbers(&recent, &search("")), [3, 2, 1]);
        assert_eq!(numbers(&recent, &search("REEL anna")), [2, 1]);
        for outcome in ["failed", "426", "failed (426)", "Reel FAILED"] {
            assert_eq!(numbers(&recent, &search(outcome)), [2], "{outcome}");
        }
        assert_eq!(numbers(&recent, &search("completed")), [3, 1]);
        assert_eq!(numbers(&recent, &search("completed 426")), [0; 0]);
        assert_eq!(numbers(&recent, &search("reel notes")), [0; 0]);
        let failed = TransferSearch {
            failed: true,
            ..search("")
        };
        assert_eq!(numbers(&recent, &failed), [2]);
        let page = TransferSearch {
            before: Some(3),
            count_max: 1,
            ..search("")
        };
        assert_eq!(numbers(&recent, &page), [2]);
        assert_eq!(recent.find(&page).matching, 3);
    }

    #[test]
    fn the_oldest_make_room_and_long_names_are_cut() {
        let mut recent = RecentTransfers::default();
        for _ in 0..KEPT + 5 {
            add(&mut recent, &"ü".repeat(5000), true);
        }
        let found = recent.find(&TransferSearch {
            count_max: 1,
            ..TransferSearch::default()
        });
        assert_eq!((found.kept, found.matching), (KEPT, KEPT));
        assert_eq!(found.transfers[0].number, KEPT as u64 + 5);
        assert_eq!(found.transfers[0].path.len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn plain_tcp_is_calculated_where_the_path_is_known() {
        let mut recent = RecentTransfers::default();
        add(&mut recent, "a", true);
        let path = KnownPath {
            rate: BitRate::gbit(1),
            rtt: Duration::from_millis(200),
            loss: 0.001,
        };
        recent.record_path("oslo", path);
        add(&mut recent, "b", true);
        let found = recent.find(&TransferSearch {
            count_max: 2,
            ..TransferSearch::default()
        });
        let [known, unknown] = &found.transfers[..] else {
            panic!("two");
        };
        assert_eq!(unknown.plain_tcp_s, None);
        assert!(known.plain_tcp_s.is_some_and(|it| it > 300.0), "{known:?}");
        let download = TransferRecord {
            direction: Some(TransferDirection::Download),
            ..record("c", true)
        };
        let least = plain_tcp_s(&download, path).expect("a known path");
        assert!(9.0 < least && least < 15.0, "{least}");
    }
}
