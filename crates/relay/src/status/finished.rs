//! Finished FTP transfers. The module keeps their totals and the latest records, and logs each
//! transfer.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::info;

use super::{
    FtpTotals,
    histogram::{BITS_PER_S, Histogram, SECONDS},
};
use crate::{
    optimise::CodingSnapshot,
    transfer_log::{TransferDirection, TransferRecord, TransferType},
};

/// Outcome of a finished transfer, as its session records it.
#[derive(Debug)]
pub struct TransferConclusion {
    /// User name in the client's log-in.
    pub user: String,
    /// Address of the listener.
    pub listener: SocketAddr,
    /// Verb of the transfer command.
    pub verb: String,
    /// Argument of the transfer command.
    pub path: String,
    /// Kind and direction of the transfer. `None` if the verb is unknown.
    pub direction: Option<TransferDirection>,
    /// Representation type (ASCII or binary) of the transfer.
    pub transfer_type: TransferType,
    /// Code of the final reply to the client. `None` if the client received no final reply.
    pub reply_code: Option<u16>,
    /// Whether the final reply is a success.
    pub succeeded: bool,
    /// Whether the client's data connection used TLS.
    pub client_tls: bool,
    /// Whether the server's data connection used TLS.
    pub server_tls: bool,
    /// Time of the transfer command. `None` if the command arrived before the data connection was
    /// registered.
    pub commanded: Option<Instant>,
}

/// Measurements of a finished transfer, from its data connection.
#[derive(Debug)]
pub(super) struct TransferMeasurement {
    pub(super) time: String,
    pub(super) session: u64,
    pub(super) client: String,
    pub(super) peer: String,
    pub(super) server: String,
    pub(super) upload_bytes: u64,
    pub(super) download_bytes: u64,
    pub(super) duration: Duration,
    pub(super) limited_by: Option<&'static str>,
    pub(super) coded: CodingSnapshot,
}

/// Totals of all finished transfers, and the latest records.
#[derive(Debug, Default)]
pub(super) struct FinishedTransfers {
    pub(super) succeeded: FtpTotals,
    pub(super) failed: FtpTotals,
    /// Durations of successful transfers, in seconds.
    pub(super) durations_s: Histogram,
    pub(super) rates_bits_per_s: Histogram,
    /// Latest records, sorted by time. The newest is last.
    newest: VecDeque<Arc<TransferRecord>>,
}

impl FinishedTransfers {
    pub(super) fn add(&mut self, record: &Arc<TransferRecord>, measured: &TransferMeasurement) {
        let totals = match record.succeeded {
            true => &mut self.succeeded,
            false => &mut self.failed,
        };
        totals.transfers += 1;
        totals.upload_bytes += measured.upload_bytes;
        totals.download_bytes += measured.download_bytes;
        if record.succeeded {
            self.durations_s.add(&SECONDS, record.duration_s);
            if record.bytes > 0 {
                let rate = record.rate_bit_per_s as f64;
                self.rates_bits_per_s.add(&BITS_PER_S, rate);
            }
        }
        if self.newest.len() >= KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(record.clone());
    }

    /// Returns the latest finished transfers, the newest first.
    pub(super) fn newest(&self) -> Vec<TransferRecord> {
        self.newest.iter().rev().map(|r| (**r).clone()).collect()
    }
}

impl TransferConclusion {
    pub(super) fn record(self, measured: &TransferMeasurement) -> TransferRecord {
        let coded = measured.coded;
        let bytes = measured.upload_bytes + measured.download_bytes;
        let rate = units::BitRate::from_transfer(units::ByteCount::new(bytes), measured.duration);
        TransferRecord {
            schema: TransferRecord::SCHEMA,
            time: measured.time.clone(),
            session: measured.session,
            client: measured.client.clone(),
            user: self.user,
            door: self.listener.to_string(),
            peer: measured.peer.clone(),
            server: measured.server.clone(),
            verb: self.verb,
            path: self.path,
            direction: self.direction,
            transfer_type: self.transfer_type,
            bytes,
            duration_s: measured.duration.as_secs_f64(),
            rate_bit_per_s: rate.as_bits_per_s(),
            reply_code: self.reply_code,
            succeeded: self.succeeded,
            client_tls: self.client_tls,
            server_tls: self.server_tls,
            limited_by: measured.limited_by.map(str::to_owned),
            wan_bytes: coded.wan_bytes + bytes.saturating_sub(coded.bytes),
            compression_saved_bytes: coded.compression_saved_bytes,
            deduplication_saved_bytes: coded.deduplication_saved_bytes,
            coding_processor_s: coded.processor.as_secs_f64(),
        }
    }
}

/// Writes a log entry for the finished transfer.
pub(super) fn log(record: &TransferRecord) {
    info!(
        session = record.session,
        client = record.client,
        user = ?record.user,
        door = record.door,
        peer = record.peer,
        server = record.server,
        verb = record.verb,
        path = ?record.path,
        direction = record.direction.map(TransferDirection::name),
        bytes = record.bytes,
        duration_s = record.duration_s,
        rate_bit_per_s = record.rate_bit_per_s,
        reply_code = record.reply_code,
        succeeded = record.succeeded,
        client_tls = record.client_tls,
        server_tls = record.server_tls,
        limited_by = record.limited_by,
        wan_bytes = record.wan_bytes,
        compression_saved_bytes = record.compression_saved_bytes,
        deduplication_saved_bytes = record.deduplication_saved_bytes,
        coding_processor_s = record.coding_processor_s,
        "transfer"
    );
}

/// Maximum number of finished transfers that are kept for display.
const KEPT: usize = 100;
