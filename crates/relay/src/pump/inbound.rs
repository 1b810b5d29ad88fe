//! Inbound direction of a pump: from the link stream to the leg (TCP connection or pipe).

use std::io;

use bytes::Bytes;
use ftp::session::data::DataInput;
use tokio::{io::AsyncWriteExt, sync::watch};
use tracing::info;

use crate::{
    drain,
    spool::{ByteSource, SourceError},
    status::DirectionMeter,
    truncation::Truncation,
    wire::Grant,
};
use net::{
    socket::{self, KernelBuffer},
    tls::LegWriter,
};

/// Task of the pump at the sending side of the leg (TCP connection or pipe).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegTask {
    Wait,
    Relay,
    Discard,
    End,
    Acknowledge,
}

/// State of the inbound direction: bytes read from the stream and not yet written to the leg (TCP
/// connection or pipe).
pub(super) struct Inbound {
    unsent: KernelBuffer,
    /// Grants that limit the bytes in the kernel's send buffer. `None` without a limit.
    grants: Option<watch::Receiver<Grant>>,
    /// Bytes read from the stream and not yet written to the leg (TCP connection or pipe).
    unwritten: Bytes,
    /// Number of bytes written but possibly not flushed yet. TLS buffers bytes that the socket has
    /// not accepted.
    unflushed_bytes: usize,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            unsent: KernelBuffer::unsent(),
            unwritten: Bytes::new(),
            unflushed_bytes: 0,
            grants: None,
        }
    }
}

impl Inbound {
    /// Creates the inbound state. `grants` limit the bytes in the kernel's send buffer.
    pub(super) fn granted(grants: Option<watch::Receiver<Grant>>) -> Self {
        Self {
            grants,
            ..Self::default()
        }
    }

    /// Performs the task until an event occurs. Returns the event. Cancel safe.
    pub(super) async fn advance(
        &mut self,
        task: LegTask,
        leg: Option<&mut LegWriter>,
        recv: Option<&mut ByteSource>,
        meter: &DirectionMeter,
        truncation: Option<&Truncation>,
    ) -> DataInput {
        match (task, leg, recv) {
            (LegTask::Relay, Some(leg), Some(recv)) => {
                match self.move_to_leg(recv, leg, meter).await {
                    Ok(()) => DataInput::StreamEnded,
                    Err(InboundError::Leg(error)) => {
                        DataInput::WriteFailed(format!("data connection: {error}"))
                    }
                    Err(InboundError::Source(error)) => DataInput::StreamBroken(error.to_string()),
                }
            }
            (LegTask::Discard, _, Some(recv)) => loop {
                match recv.read().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return DataInput::StreamEnded,
                    Err(error) => return DataInput::StreamBroken(error.to_string()),
                }
            },
            (LegTask::End, Some(leg), _) => {
                let ended = match truncation.filter(|truncation| truncation.is_reported()) {
                    Some(_) => socket::end_without_notify(leg),
                    None => socket::end_orderly(leg).await,
                };
                match ended {
                    Ok(()) => DataInput::EndWritten,
                    Err(error) => DataInput::WriteFailed(format!("data connection: {error}")),
                }
            }
            (LegTask::Acknowledge, Some(leg), _) => {
                match socket::wait_for_acknowledgement(leg.leg().connection()).await {
                    Ok(()) => DataInput::Acknowledged,
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                        info!("the client acknowledges nothing; the final reply waits no longer");
                        DataInput::Acknowledged
                    }
                    Err(error) => DataInput::NotAcknowledged(format!("data connection: {error}")),
                }
            }
            _ => std::future::pending().await,
        }
    }

    async fn move_to_leg(
        &mut self,
        recv: &mut ByteSource,
        leg: &mut LegWriter,
        meter: &DirectionMeter,
    ) -> Result<(), InboundError> {
        loop {
            meter.start_tcp_wait();
            while !self.unwritten.is_empty() {
                self.flush(leg, meter).await?;
                let count = leg.write(&self.unwritten).await?;
                let _ = self.unwritten.split_to(count);
                self.unflushed_bytes += count;
            }
            self.flush(leg, meter).await?;
            meter.start_link_wait();
            let Some(bytes) = recv.read().await? else {
                return Ok(());
            };
            self.unwritten = bytes;
            if let Some(grants) = &self.grants {
                let bytes = drain::kernel_buffer_bytes(grants.borrow().budget_bytes);
                self.unsent.bound_unsent(leg.leg().connection(), bytes)?;
            }
        }
    }

    /// Flushes written bytes to the socket, and then counts them.
    async fn flush(&mut self, leg: &mut LegWriter, meter: &DirectionMeter) -> io::Result<()> {
        if self.unflushed_bytes > 0 {
            leg.flush().await?;
            meter.add_bytes(std::mem::take(&mut self.unflushed_bytes));
        }
        Ok(())
    }
}

/// Reason why bytes could not be moved to the leg (TCP connection or pipe).
#[derive(Debug, thiserror::Error)]
enum InboundError {
    #[error("data connection: {0}")]
    Leg(#[from] io::Error),
    #[error(transparent)]
    Source(#[from] SourceError),
}
