//! Transfers of an SFTP session, for the status and the transfer log.
#![allow(
    clippy::disallowed_methods,
    reason = "the gateway's own clock: durations of transfers"
)]

use std::{collections::HashMap, sync::Arc, time::Instant};

use relay::{
    optimise::{CodingCounters, CodingSnapshot},
    status::{DirectionMeter, OpenTransfer, TransferConclusion},
    transfer_log::{self, TransferType, path_text},
};
use sftp::{FileDirection, TransferEvent};
use tokio::{sync::Notify, task::JoinHandle};

use super::{client::Client, far_half::FarHalf};

/// Open transfers of one SFTP session.
pub(super) struct Transfers {
    client: Arc<Client>,
    peer: String,
    target: String,
    user: String,
    open: HashMap<u64, Transfer>,
    /// Whether downloads wait for the far half. Otherwise, they wait for the client.
    are_downloads_on_far: bool,
    /// Counters of the channel's coding, and their latest values. `None` if the data are not coded.
    coding: Option<(Arc<CodingCounters>, CodingSnapshot)>,
    /// Notified when the operator stops a transfer.
    stops: Arc<Notify>,
}

/// One open file.
struct Transfer {
    status: Arc<OpenTransfer>,
    path: String,
    direction: FileDirection,
    started: Instant,
    /// Number of bytes since the latest call of [`Transfers::share_coding`].
    moved_bytes: u64,
    /// Task that waits for the operator.
    stop: JoinHandle<()>,
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl Transfers {
    pub(super) fn new(client: Arc<Client>, far: &FarHalf, user: String) -> Self {
        Self {
            peer: client.relay.peer_name(far.peer).to_owned(),
            client,
            target: far.target.to_string(),
            user,
            open: HashMap::new(),
            are_downloads_on_far: false,
            coding: None,
            stops: Arc::default(),
        }
    }

    /// Returns the notification that the operator has stopped a transfer.
    pub(super) fn stops(&self) -> Arc<Notify> {
        self.stops.clone()
    }

    /// Sets the counters of the channel's coding.
    pub(super) fn set_coding_counters(&mut self, counters: Arc<CodingCounters>) {
        self.coding = Some((counters, CodingSnapshot::default()));
    }

    /// Divides the increase of the coding counters among the open transfers, in proportion to their
    /// bytes. The increase covers the time since the previous division.
    fn share_coding(&mut self) {
        let Some((counters, latest)) = &mut self.coding else {
            return;
        };
        let moved_bytes = self.open.values().map(|it| it.moved_bytes).sum();
        if moved_bytes == 0 {
            return;
        }
        let now = counters.snapshot();
        let increase = now.since(latest);
        *latest = now;
        for transfer in self.open.values_mut() {
            let part = std::mem::take(&mut transfer.moved_bytes);
            transfer
                .status
                .add_coding(&increase.share(part, moved_bytes));
        }
    }

    /// Records an event of the session.
    pub(super) fn record(&mut self, event: TransferEvent) {
        match event {
            TransferEvent::Started {
                handle,
                path,
                direction,
            } => {
                let status = self.client.relay.registry().transfer(
                    "sftp",
                    true,
                    self.client.session,
                    &self.peer,
                    &self.client.address.to_string(),
                    &self.target,
                );
                record_wait(&status.meters().1, self.are_downloads_on_far);
                let path = path_text(&path);
                status.set_requested_path(path.clone());
                let (stopped, stops) = (status.clone(), self.stops.clone());
                let stop = tokio::spawn(async move {
                    stopped.wait_for_stop().await;
                    stops.notify_one();
                });
                let transfer = Transfer {
                    status,
                    path,
                    direction,
                    started: Instant::now(),
                    moved_bytes: 0,
                    stop,
                };
                self.share_coding();
                self.open.insert(handle, transfer);
            }
            TransferEvent::Bytes { handle, count } => {
                if let Some(transfer) = self.open.get_mut(&handle) {
                    transfer.moved_bytes += count;
                    let (up, down) = transfer.status.meters();
                    let meter = match transfer.direction {
                        FileDirection::Upload => up,
                        FileDirection::Download => down,
                    };
                    meter.add_bytes(usize::try_from(count).unwrap_or(usize::MAX));
                    if transfer.moved_bytes >= SHARED_BYTES {
                        self.share_coding();
                    }
                }
            }
            TransferEvent::Finished { handle, outcome } => {
                self.share_coding();
                let Some(transfer) = self.open.remove(&handle) else {
                    return;
                };
                let (verb, direction) = match transfer.direction {
                    FileDirection::Upload => ("put", transfer_log::TransferDirection::Upload),
                    FileDirection::Download => ("get", transfer_log::TransferDirection::Download),
                };
                transfer.status.conclude(TransferConclusion {
                    user: self.user.clone(),
                    listener: self.client.listener.listen,
                    verb: verb.to_owned(),
                    path: transfer.path.clone(),
                    direction: Some(direction),
                    transfer_type: TransferType::Binary,
                    reply_code: None,
                    succeeded: outcome.is_ok(),
                    client_tls: false,
                    server_tls: false,
                    commanded: Some(transfer.started),
                });
            }
        }
    }

    /// Records whether uploads now wait for the far half. Otherwise, they wait for the client.
    pub(super) fn record_upload_wait(&self, is_on_far: bool) {
        for transfer in self.open.values() {
            record_wait(&transfer.status.meters().0, is_on_far);
        }
    }

    /// Records whether downloads now wait for the far half. Otherwise, they wait for the client.
    pub(super) fn record_download_wait(&mut self, is_on_far: bool) {
        if self.are_downloads_on_far == is_on_far {
            return;
        }
        self.are_downloads_on_far = is_on_far;
        for transfer in self.open.values() {
            record_wait(&transfer.status.meters().1, is_on_far);
        }
    }
}

fn record_wait(meter: &DirectionMeter, is_on_far: bool) {
    match is_on_far {
        true => meter.start_link_wait(),
        false => meter.start_tcp_wait(),
    }
}
/// Number of moved bytes of one transfer. After this number, the increase of the coding counters is
/// divided among the transfers.
const SHARED_BYTES: u64 = 4 * 1024 * 1024;
