//! From the leg to the stream.

use std::io;

use bytes::{BufMut, BytesMut};
use ftp::session::data::{Flow, Input};
use link::StreamError;
use optimiser::encoder::Take;
use tokio::{io::AsyncReadExt, time::sleep};

use crate::{
    optimise::{Hold, Outlet},
    socket::PacedBuffer,
    status::Meter,
    tls::Reader,
};

/// What has been read of the leg.
pub(super) struct Outbound {
    buffer: BytesMut,
    unread: PacedBuffer,
    /// The buffer goes as far as this says, before more is read.
    take: Option<Take>,
    /// The leg has sent a byte.
    has_read: bool,
}

impl Default for Outbound {
    fn default() -> Self {
        Self {
            buffer: BytesMut::new(),
            unread: PacedBuffer::unread(),
            take: None,
            has_read: false,
        }
    }
}

impl Outbound {
    /// Ends the stream behind what has been read.
    pub(super) fn finish(&mut self, send: &mut Outlet) {
        send.finish(&mut self.buffer);
    }

    /// Moves bytes until something happens. Cancelled, it loses none.
    pub(super) async fn advance(
        &mut self,
        flow: Flow,
        watches_stream: bool,
        leg: Option<&mut Reader>,
        send: Option<&mut Outlet>,
        hold: Hold,
        meter: &Meter,
    ) -> Input {
        match (flow, leg, send) {
            (_, _, Some(send)) if watches_stream => match send.stream().closed().await {
                Ok(()) => std::future::pending().await,
                Err(_) => Input::StreamStopped,
            },
            (Flow::Relay, Some(leg), Some(send)) => self.relay(leg, send, hold, meter).await,
            (Flow::Discard, Some(leg), _) => discard(leg).await,
            _ => std::future::pending().await,
        }
    }

    async fn relay(
        &mut self,
        leg: &mut Reader,
        send: &mut Outlet,
        hold: Hold,
        meter: &Meter,
    ) -> Input {
        match self.move_to_link(leg, send, hold, meter).await {
            Ok(()) => Input::LegEnded {
                is_truncated: leg.leg().closed_without_notify(),
            },
            Err(Broken::Leg(error)) => match read_failed(&error) {
                Input::ReadFailed(why) if !self.has_read => Input::BrokenUnused(why),
                input => input,
            },
            Err(Broken::Stream(StreamError::Stopped { .. } | StreamError::Reset { .. })) => {
                Input::StreamStopped
            }
            Err(Broken::Stream(error)) => Input::StreamLost(format!("link: {error}")),
        }
    }

    async fn move_to_link(
        &mut self,
        leg: &mut Reader,
        send: &mut Outlet,
        hold: Hold,
        meter: &Meter,
    ) -> Result<(), Broken> {
        loop {
            meter.waits_for_link();
            if let Some(take) = self.take {
                let moved = |bytes| meter.moved(bytes);
                send.write(&mut self.buffer, take, moved).await?;
                self.take = None;
                if take == Take::Rest {
                    return Ok(());
                }
            }
            if self.buffer.capacity() - self.buffer.len() < READ_MIN_BYTES {
                self.buffer.reserve(READ_BYTES);
            }
            let held = send.hold(&self.buffer, hold);
            let is_slow = send.is_slow();
            let room = send.room().await;
            if let Some(bytes) = send.queue_bound() {
                self.unread.bound_unread(leg.leg().tcp(), bytes)?;
            }
            meter.waits_for_tcp();
            let mut buffer = (&mut self.buffer).limit(room);
            let take = tokio::select! {
                biased;
                count = leg.read_buf(&mut buffer) => match count? {
                    0 => Take::Rest,
                    // A block would be a large part of what may wait.
                    _ if is_slow => Take::All,
                    _ => Take::Blocks,
                },
                // A leg that is silent would never tell that nobody listens any more.
                Err(error) = send.stream().closed() => return Err(error.into()),
                () = sleep(held.unwrap_or_default()), if held.is_some() => Take::All,
            };
            self.take = Some(take);
            self.has_read |= !self.buffer.is_empty();
        }
    }
}

fn read_failed(error: &io::Error) -> Input {
    let tls = error.get_ref().and_then(|cause| cause.downcast_ref());
    match tls {
        Some(rustls::Error::AlertReceived(_)) => Input::Alerted(format!("TLS: {error}")),
        _ => Input::ReadFailed(format!("TCP connection: {error}")),
    }
}

/// Reads to the end of the leg, for nobody.
async fn discard(leg: &mut Reader) -> Input {
    let mut buffer = vec![0; DISCARD_BYTES];
    loop {
        match leg.read(&mut buffer).await {
            Ok(0) => {
                return Input::LegEnded {
                    is_truncated: leg.leg().closed_without_notify(),
                };
            }
            Ok(_) => {}
            Err(error) => return read_failed(&error),
        }
    }
}

/// The broken side and its error.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("TCP connection: {0}")]
    Leg(#[from] io::Error),
    #[error("link: {0}")]
    Stream(#[from] StreamError),
}

/// One read: large, since each costs a system call and a hand-over to the link.
const READ_BYTES: usize = 256 * 1024;

/// Room that is not worth a read of its own.
const READ_MIN_BYTES: usize = 16 * 1024;

const DISCARD_BYTES: usize = 64 * 1024;
