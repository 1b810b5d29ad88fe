//! Periodic reports from the far gateway to the near gateway about the transfers of a session.

use std::{net::IpAddr, time::Duration};

use ftp::session::TransferId;
use tokio::time::Instant;

use super::{Session, SessionError};
use crate::{
    drain::{self, DrainBudget, UploadTotals},
    wire::{DeliveryReport, FarMessage, Version},
};

impl Session<'_> {
    /// Sends the near gateway the present bottleneck of each transfer of this session.
    pub(super) async fn report_limits(&mut self) -> Result<(), SessionError> {
        let limits: Vec<_> = self
            .data
            .iter()
            .filter_map(|(&id, data)| Some((id, data.transfer.upgrade()?.bottleneck()?)))
            .collect();
        for (id, limit) in limits {
            self.send_to_near(&FarMessage::Waiting(id, limit)).await?;
        }
        Ok(())
    }

    /// Creates the drain budget (maximum bytes in flight) of a new upload to `server`.
    pub(super) fn new_drain(&self, server: IpAddr) -> DrainBudget {
        let known = self.shared.server_rates.bytes_per_s(server, Instant::now());
        DrainBudget::new(self.drain_limit, self.rtt(), known)
    }

    /// Stores the measured rate of the server after an upload.
    pub(super) async fn remember_rate(&mut self, transfer: TransferId) -> Result<(), SessionError> {
        let data = self.data.get(&transfer);
        let Some((server, rate)) =
            data.and_then(|it| Some((it.server, it.drain.measured_bytes_per_s()?)))
        else {
            return Ok(());
        };
        self.shared
            .server_rates
            .remember(server, rate, Instant::now());
        self.report_first_budget().await
    }

    /// Sends the near gateway the initial budget of uploads, if it has changed.
    pub(super) async fn report_first_budget(&mut self) -> Result<(), SessionError> {
        let server = self.server.ip();
        let known = self.shared.server_rates.bytes_per_s(server, Instant::now());
        let bytes = drain::first_budget_bytes(self.drain_limit, self.rtt(), known);
        if bytes == self.first_budget_bytes {
            return Ok(());
        }
        self.first_budget_bytes = bytes;
        self.send_to_near(&FarMessage::FirstBudget(bytes)).await
    }

    /// Returns the time of the next observation of the running uploads.
    pub(super) fn next_observation(&self) -> Instant {
        let next = self
            .data
            .values()
            .map(|data| data.observed + data.drain.time_to_observation());
        next.min().unwrap_or_else(Instant::now)
    }

    /// Measures how many bytes the servers of uploads have accepted, and sends the resulting grants
    /// to the near gateway.
    pub(super) async fn observe_uploads(&mut self) -> Result<(), SessionError> {
        let now = Instant::now();
        let mut messages = Vec::new();
        for (&transfer, data) in &mut self.data {
            data.observed = now;
            let Some(open) = data.transfer.upgrade() else {
                continue;
            };
            let (accepted_bytes, busy) = open.tcp_progress();
            data.drain.observe(UploadTotals {
                at_s: (now - data.opened).as_secs_f64(),
                accepted_bytes,
                busy_s: busy.as_secs_f64(),
            });
            if let Some(grant) = data.drain.next_grant() {
                data.grants.send_replace(grant);
                let delivered = DeliveryReport {
                    bytes: accepted_bytes,
                    waited_us: busy.as_micros() as u64,
                };
                messages.push(match self.version {
                    Version::V5 => FarMessage::Delivered(transfer, delivered),
                    Version::V6 => FarMessage::Granted(transfer, grant),
                });
            }
        }
        for message in messages {
            self.send_to_near(&message).await?;
        }
        Ok(())
    }

    /// Returns the base round-trip time of the link. The value is zero before the first
    /// measurement.
    fn rtt(&self) -> Duration {
        let peers = self.shared.link.snapshot().peers;
        let peer = peers.get(self.peer.0);
        peer.and_then(|peer| peer.base_rtt).unwrap_or_default()
    }
}

/// Interval at which the far gateway reports the bottleneck of each transfer to the near gateway.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
