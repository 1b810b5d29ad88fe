//! Transfers of a session, for the transfer log. The module stores the time of each transfer
//! command, and creates a record of each finished transfer.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: durations of transfers"
)]

use std::{sync::Arc, time::Instant};

use ftp::{
    command::{Command, CommandKind, DataDirection, escape},
    session::near::TransferSummary,
};

use super::{Session, far_half::FarHalf};
use crate::{
    status::{OpenTransfer, TransferConclusion},
    transfer_log::{TransferDirection, TransferType, path_text},
};

/// Time and type of a transfer that the client has requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestedTransfer {
    at: Instant,
    transfer_type: TransferType,
    /// Whether the transfer is a download of a complete file. If so, the size in the server's reply
    /// is the number of bytes to move.
    is_whole_download: bool,
    is_announced: bool,
}

impl Session {
    pub(super) fn register(&self, far: &FarHalf) -> Arc<OpenTransfer> {
        self.shared.registry.transfer(
            "ftp",
            true,
            self.number,
            self.shared.peer_name(far.peer),
            &self.client.to_string(),
            &far.target.to_string(),
        )
    }

    /// Records a command that starts a transfer, or that sets its offset or type.
    pub(super) fn record_command(&mut self, command: &Command<'_>) {
        match command.kind() {
            CommandKind::Transfer(direction) => {
                // The command uses the newest data connection.
                let newest = self.data.values_mut().next_back();
                let whole = !std::mem::take(&mut self.begins_inside);
                if let Some(data) = newest
                    && let Some(transfer) = &data.transfer
                    && data.commanded.is_none()
                {
                    transfer.set_requested_path(path_text(command.argument()));
                    data.commanded = Some(RequestedTransfer {
                        at: Instant::now(),
                        transfer_type: self.transfer_type,
                        is_whole_download: whole && direction == DataDirection::Download,
                        is_announced: false,
                    });
                }
            }
            CommandKind::Other if matches!(command.verb(), "REST" | "RANG") => {
                self.begins_inside = command.argument() != b"0";
            }
            CommandKind::Type => {
                let asked = command.argument().first().map(u8::to_ascii_uppercase);
                self.transfer_type = match asked {
                    Some(b'I' | b'L') => TransferType::Binary,
                    _ => TransferType::Ascii,
                };
            }
            _ => {}
        }
    }

    /// Records the size that the server's preliminary reply contains. An example of such a reply is
    /// "150 Opening BINARY mode data connection for a (1048576 bytes)."
    pub(super) fn record_reply(&mut self, line: &[u8]) {
        if !line.starts_with(b"150 ") && !line.starts_with(b"125 ") {
            return;
        }
        // Replies arrive in the order of the commands.
        let mut waiting = self.data.values_mut().filter_map(|data| {
            let commanded = data.commanded.as_mut().filter(|it| !it.is_announced)?;
            Some((commanded, data.transfer.as_ref()?))
        });
        let Some((commanded, transfer)) = waiting.next() else {
            return;
        };
        commanded.is_announced = true;
        if commanded.is_whole_download
            && let Some(size_bytes) = announced_size(line)
        {
            transfer.set_announced_size(size_bytes);
        }
    }

    /// Records the outcome of a transfer. The registry counts the bytes of the transfer until the
    /// data connection ends.
    pub(super) fn transferred(&mut self, record: TransferSummary) {
        let data = self.data.get_mut(&record.transfer);
        let (transfer, has_tls, commanded) = match data {
            Some(data) => (data.transfer.take(), data.has_tls, data.commanded),
            None => (None, false, None),
        };
        // A transfer without a data connection counts, too.
        let transfer = transfer.or_else(|| self.far.as_ref().map(|far| self.register(far)));
        let Some(transfer) = transfer else { return };
        transfer.conclude(TransferConclusion {
            user: escape(self.near.user()),
            listener: self.listener.address,
            direction: direction(&record),
            path: path_text(&record.argument),
            verb: record.verb,
            transfer_type: commanded.map_or(self.transfer_type, |c| c.transfer_type),
            reply_code: record.code,
            succeeded: record.succeeded,
            client_tls: has_tls,
            server_tls: self.listener.config.server_tls.is_some(),
            commanded: commanded.map(|c| c.at),
        });
    }
}

/// Returns the number of bytes that a preliminary reply contains. Returns `None` if the reply
/// contains no size.
fn announced_size(line: &[u8]) -> Option<u64> {
    let text = str::from_utf8(line).ok()?;
    let (before, _) = text.rsplit_once(" bytes)")?;
    let (_, number) = before.rsplit_once('(')?;
    number.parse().ok()
}

fn direction(record: &TransferSummary) -> Option<TransferDirection> {
    match (record.direction?, record.verb.as_str()) {
        (DataDirection::Upload, _) => Some(TransferDirection::Upload),
        (_, "LIST" | "NLST" | "MLSD") => Some(TransferDirection::Listing),
        _ => Some(TransferDirection::Download),
    }
}

#[cfg(test)]
mod tests {
    use super::announced_size;

    #[test]
    fn a_reply_announces_a_size_or_none() {
        for (line, size) in [
            (
                "150 Opening BINARY mode data connection for a (1048576 bytes).",
                Some(1_048_576),
            ),
            (
                "150 Opening BINARY mode data connection for a (2) (7 bytes)",
                Some(7),
            ),
            ("150 Here comes the directory listing.", None),
            ("150 (x bytes)", None),
            ("150 (-1 bytes)", None),
            ("150 bytes)", None),
            ("150 (99999999999999999999999 bytes)", None),
        ] {
            assert_eq!(announced_size(line.as_bytes()), size, "{line}");
        }
        assert_eq!(announced_size(b"150 \xff (7 bytes)"), None);
    }
}
