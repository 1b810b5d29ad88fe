//! The transfers of a session, for the transfer log: when their commands came, and what is told once
//! the session is done with one.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: durations of transfers"
)]

use std::{sync::Arc, time::Instant};

use ftp::{
    command::{self, Command, Kind, escape},
    session::near::Record,
};

use super::{Session, far_half::Far};
use crate::{
    status::{Conclusion, Transfer},
    transfer_log::{TransferDirection, TransferType, path_text},
};

/// When a transfer was asked for, and of what type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Commanded {
    at: Instant,
    transfer_type: TransferType,
}

impl Session {
    pub(super) fn register(&self, far: &Far) -> Arc<Transfer> {
        self.shared.registry.transfer(
            "ftp",
            true,
            self.number,
            self.shared.peer_name(far.peer),
            &self.client.to_string(),
            &far.target.to_string(),
        )
    }

    /// Takes note of a command from the client that says what a transfer is, or begins one.
    pub(super) fn note(&mut self, command: &Command<'_>) {
        match command.kind() {
            Kind::Transfer(_) => {
                // The newest data connection is the one that it uses.
                let newest = self.data.values_mut().next_back();
                if let Some(data) = newest.filter(|data| data.transfer.is_some()) {
                    data.commanded.get_or_insert_with(|| Commanded {
                        at: Instant::now(),
                        transfer_type: self.transfer_type,
                    });
                }
            }
            Kind::Type => {
                let asked = command.argument().first().map(u8::to_ascii_uppercase);
                self.transfer_type = match asked {
                    Some(b'I' | b'L') => TransferType::Binary,
                    _ => TransferType::Ascii,
                };
            }
            _ => {}
        }
    }

    /// The session is done with a transfer: what it has moved by its end counts.
    pub(super) fn transferred(&mut self, record: Record) {
        let data = self.data.get_mut(&record.transfer);
        let (transfer, has_tls, commanded) = match data {
            Some(data) => (data.transfer.take(), data.has_tls, data.commanded),
            None => (None, false, None),
        };
        // One without a data connection counts, too.
        let transfer = transfer.or_else(|| self.far.as_ref().map(|far| self.register(far)));
        let Some(transfer) = transfer else { return };
        transfer.concluded(Conclusion {
            user: escape(self.near.user()),
            door: self.door.address,
            direction: direction(&record),
            path: path_text(&record.argument),
            verb: record.verb,
            transfer_type: commanded.map_or(self.transfer_type, |c| c.transfer_type),
            reply_code: record.code,
            succeeded: record.succeeded,
            client_tls: has_tls,
            server_tls: self.door.config.server_tls.is_some(),
            commanded: commanded.map(|c| c.at),
        });
    }
}

fn direction(record: &Record) -> Option<TransferDirection> {
    match (record.direction?, record.verb.as_str()) {
        (command::Direction::Upload, _) => Some(TransferDirection::Upload),
        (_, "LIST" | "NLST" | "MLSD") => Some(TransferDirection::Listing),
        _ => Some(TransferDirection::Download),
    }
}
