//! Outbound direction of a pump: from the leg (TCP connection or pipe) to the link stream.

use std::{io, time::Instant};

use bytes::{BufMut, BytesMut};
use ftp::session::data::{DataFlow, DataInput};
use link::StreamError;
use optimiser::encoder::EncodeScope;
use tokio::{io::AsyncReadExt, sync::watch, time::sleep};

use crate::{
    drain,
    optimise::{EncodingWriter, FlushDelay},
    status::DirectionMeter,
    wire::Grant,
};
use net::{socket::KernelBuffer, tls::LegReader};

/// State of the outbound direction: bytes read from the leg (TCP connection or pipe) and not yet
/// written to the stream.
pub(super) struct Outbound {
    buffer: BytesMut,
    unread: KernelBuffer,
    /// Bytes of the buffer that must be sent before the next read. `None` if the next step is a
    /// read.
    scope: Option<EncodeScope>,
    /// Number of bytes read from the leg (TCP connection or pipe) so far.
    read_bytes: u64,
    /// Grants that limit the bytes in flight to the server. `None` without a limit.
    grants: Option<watch::Receiver<Grant>>,
}

impl Default for Outbound {
    fn default() -> Self {
        Self {
            buffer: BytesMut::new(),
            unread: KernelBuffer::unread(),
            scope: None,
            read_bytes: 0,
            grants: None,
        }
    }
}

impl Outbound {
    /// Creates the outbound state. `grants` limit the bytes in flight to the server.
    pub(super) fn granted(grants: Option<watch::Receiver<Grant>>) -> Self {
        Self {
            grants,
            ..Self::default()
        }
    }

    /// Sends the bytes in the buffer, and then ends the stream.
    pub(super) fn finish(&mut self, send: &mut EncodingWriter) {
        send.finish(&mut self.buffer);
    }

    /// Moves bytes until an event occurs. Returns the event. Cancel safe.
    pub(super) async fn advance(
        &mut self,
        flow: DataFlow,
        watches_stream: bool,
        leg: Option<&mut LegReader>,
        send: Option<&mut EncodingWriter>,
        flush_delay: FlushDelay,
        meter: &DirectionMeter,
    ) -> DataInput {
        match (flow, leg, send) {
            (_, _, Some(send)) if watches_stream => match send.stream().closed().await {
                Ok(()) => std::future::pending().await,
                Err(_) => DataInput::StreamStopped,
            },
            (DataFlow::Relay, Some(leg), Some(send)) => {
                self.relay(leg, send, flush_delay, meter).await
            }
            (DataFlow::Discard, Some(leg), _) => discard(leg).await,
            _ => std::future::pending().await,
        }
    }

    async fn relay(
        &mut self,
        leg: &mut LegReader,
        send: &mut EncodingWriter,
        flush_delay: FlushDelay,
        meter: &DirectionMeter,
    ) -> DataInput {
        match self.move_to_link(leg, send, flush_delay, meter).await {
            Ok(()) => DataInput::LegEnded {
                is_truncated: leg.leg().closed_without_notify(),
            },
            Err(OutboundError::Leg(error)) => match read_failed(&error) {
                DataInput::ReadFailed(why) if self.read_bytes == 0 => DataInput::BrokenUnused(why),
                input => input,
            },
            Err(OutboundError::Stream(StreamError::Stopped { .. } | StreamError::Reset { .. })) => {
                DataInput::StreamStopped
            }
            Err(OutboundError::Stream(error)) => DataInput::StreamLost(format!("link: {error}")),
        }
    }

    async fn move_to_link(
        &mut self,
        leg: &mut LegReader,
        send: &mut EncodingWriter,
        flush_delay: FlushDelay,
        meter: &DirectionMeter,
    ) -> Result<(), OutboundError> {
        loop {
            meter.start_link_wait();
            if let Some(scope) = self.scope {
                let moved = |bytes| meter.add_bytes(bytes);
                send.write(&mut self.buffer, scope, moved).await?;
                self.scope = None;
                if scope == EncodeScope::Rest {
                    return Ok(());
                }
            }
            if self.buffer.capacity() - self.buffer.len() < READ_MIN_BYTES {
                self.buffer.reserve(READ_BYTES);
            }
            let held = send.flush_delay(&self.buffer, flush_delay);
            let since = Instant::now();
            let room = tokio::select! {
                biased;
                room = self.room() => room,
                Err(error) = send.stream().closed() => return Err(error.into()),
                () = sleep(held.unwrap_or_default()), if held.is_some() => {
                    self.scope = Some(EncodeScope::All);
                    send.add_grant_wait(since.elapsed());
                    continue;
                }
            };
            send.add_grant_wait(since.elapsed());
            if let Some(grants) = &self.grants {
                let bytes = drain::kernel_buffer_bytes(grants.borrow().budget_bytes);
                self.unread.bound_unread(leg.leg().connection(), bytes)?;
            }
            meter.start_tcp_wait();
            let before = self.buffer.len();
            let mut buffer = (&mut self.buffer).limit(room);
            let scope = tokio::select! {
                biased;
                count = leg.read_buf(&mut buffer) => match count? {
                    0 => EncodeScope::Rest,
                    _ => EncodeScope::Blocks,
                },
                // While the leg sends nothing, the pump writes nothing, so no write detects that
                // the peer has stopped reading.
                Err(error) = send.stream().closed() => return Err(error.into()),
                () = sleep(held.unwrap_or_default()), if held.is_some() => EncodeScope::All,
            };
            self.scope = Some(scope);
            self.read_bytes += (self.buffer.len() - before) as u64;
        }
    }

    /// Returns the number of bytes that the pump may read from the leg (TCP connection or pipe).
    /// Waits until the grant permits a read of useful size. Cancel safe.
    async fn room(&mut self) -> usize {
        let Some(grants) = &mut self.grants else {
            return usize::MAX;
        };
        let read_bytes = self.read_bytes;
        let room = |grant: &Grant| {
            let end = grant.accepted_bytes.saturating_add(grant.budget_bytes);
            end.saturating_sub(read_bytes)
        };
        let is_worth_it =
            |grant: &Grant| room(grant) >= ROOM_MIN_BYTES.min(grant.budget_bytes / 4).max(1);
        match grants.wait_for(is_worth_it).await {
            Ok(grant) => usize::try_from(room(&grant)).unwrap_or(usize::MAX),
            // The session has ended, and no client waits for a reply.
            Err(_) => usize::MAX,
        }
    }
}

fn read_failed(error: &io::Error) -> DataInput {
    let tls = error.get_ref().and_then(|cause| cause.downcast_ref());
    match tls {
        Some(rustls::Error::AlertReceived(_)) => DataInput::Alerted(format!("TLS: {error}")),
        _ => DataInput::ReadFailed(format!("data connection: {error}")),
    }
}

/// Reads and discards bytes until the leg (TCP connection or pipe) ends.
async fn discard(leg: &mut LegReader) -> DataInput {
    let mut buffer = vec![0; DISCARD_BYTES];
    loop {
        match leg.read(&mut buffer).await {
            Ok(0) => {
                return DataInput::LegEnded {
                    is_truncated: leg.leg().closed_without_notify(),
                };
            }
            Ok(_) => {}
            Err(error) => return read_failed(&error),
        }
    }
}

/// Error of the leg (TCP connection or pipe) or of the stream.
#[derive(Debug, thiserror::Error)]
enum OutboundError {
    #[error("data connection: {0}")]
    Leg(#[from] io::Error),
    #[error("link: {0}")]
    Stream(#[from] StreamError),
}

/// Maximum number of bytes of one read. The value is large because each read costs a system call
/// and a message to the link's task.
const READ_BYTES: usize = 256 * 1024;

/// Minimum number of granted bytes for a read.
const ROOM_MIN_BYTES: u64 = 16 * 1024;

/// Minimum number of free bytes in the buffer for a read.
const READ_MIN_BYTES: usize = 16 * 1024;

const DISCARD_BYTES: usize = 64 * 1024;
