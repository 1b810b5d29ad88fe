//! What the far half of a session reports of its transfers to the near one, again and again.

use std::time::Duration;

use super::{SPOOL, Session, SessionError};
use crate::wire::{Delivered, FarMessage};

impl Session<'_> {
    /// Reports the bottleneck of each transfer of this session to the near gateway.
    pub(super) async fn tell_limits(&mut self) -> Result<(), SessionError> {
        let limits: Vec<_> = self
            .data
            .iter()
            .filter_map(|(&id, data)| Some((id, data.transfer.upgrade()?.limit()?)))
            .collect();
        for (id, limit) in limits {
            self.tell_near(&FarMessage::Waiting(id, limit)).await?;
        }
        Ok(())
    }

    /// Tells the near gateway how much of each coded upload has been handed on.
    pub(super) async fn tell_delivered(&mut self) -> Result<(), SessionError> {
        let mut messages = Vec::new();
        for (&transfer, data) in &mut self.data {
            let delivered = data.transfer.upgrade().map(|it| it.tally().delivered());
            let is_news = |it: &Delivered| it.bytes >= data.told_bytes + DELIVERED_LEAST;
            if let Some(mut delivered) = delivered.filter(is_news) {
                data.told_bytes = delivered.bytes;
                if data.reader == SPOOL {
                    // No client waits until a spool has drained.
                    delivered.taking_us = 0;
                }
                messages.push(FarMessage::Delivered(transfer, delivered));
            }
        }
        for message in messages {
            self.tell_near(&message).await?;
        }
        Ok(())
    }
}

/// Interval of reports of a transfer's bottleneck to the near gateway.
pub(super) const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of reports of what has been delivered: what is on its way grows with them.
pub(super) const DELIVERED_INTERVAL: Duration = Duration::from_millis(100);

/// Less is not worth a report.
const DELIVERED_LEAST: u64 = 128 * 1024;
