//! Relays bytes between a TCP connection and a link stream, in two directions that end
//! independently.
//!
//! An orderly end of one connection becomes an orderly end of the other. Any other end becomes a
//! reset. Backpressure works without messages: a pump that cannot write stops reading, and holds
//! one buffer. If the far gateway limits the time in which an upload drains, the pumps and the
//! kernel's buffers hold only what the stream asks for.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use link::{RecvStream, SendStream, StreamError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    socket::{self, PacedBuffer},
    status::Meter,
    tls::{Leg, Reader, Writer},
    wire::reset,
};

/// The broken leg and its error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PumpError {
    /// The TCP connection.
    #[error("TCP connection: {0}")]
    Tcp(#[from] io::Error),
    /// The link stream.
    #[error("link: {0}")]
    Stream(#[from] StreamError),
}

/// Moves bytes from TCP to the link until the TCP end, which is for the caller to pass on.
pub(crate) async fn to_link(
    tcp: &mut Reader,
    send: &mut SendStream,
    meter: &Meter,
) -> Result<(), PumpError> {
    let mut buffer = BytesMut::new();
    let mut unread = PacedBuffer::unread();
    loop {
        meter.waits_for_link();
        if buffer.capacity() < READ_MIN_BYTES {
            buffer.reserve(READ_BYTES);
        }
        let room = send.room().await;
        if let Some(bytes) = send.queue_bound() {
            unread.bound_unread(tcp.leg().tcp(), bytes)?;
        }
        meter.waits_for_tcp();
        let count = tcp.read_buf(&mut (&mut buffer).limit(room)).await?;
        meter.waits_for_link();
        if count == 0 {
            return Ok(());
        }
        send.write(buffer.split().freeze()).await?;
        meter.moved(count);
    }
}

/// Writes bytes from the link to TCP.
pub(crate) async fn write(tcp: &mut Writer, bytes: Bytes, meter: &Meter) -> Result<(), PumpError> {
    meter.waits_for_tcp();
    tcp.write_all(&bytes).await?;
    // TLS keeps the bytes that the socket did not take.
    tcp.flush().await?;
    meter.moved(bytes.len());
    Ok(())
}

/// Moves bytes from the link to TCP until the verified end of the stream, which is for the caller to pass on.
pub(crate) async fn from_link(
    recv: &mut RecvStream,
    tcp: &mut Writer,
    meter: &Meter,
) -> Result<(), PumpError> {
    let mut unsent = PacedBuffer::unsent();
    loop {
        meter.waits_for_link();
        let Some(bytes) = recv.read().await? else {
            return Ok(());
        };
        if let Some(bytes) = recv.queue_bound() {
            unsent.bound_unsent(tcp.leg().tcp(), bytes)?;
        }
        write(tcp, bytes, meter).await?;
    }
}

/// Joins a TCP connection and a stream until both directions have ended, or one has broken.
pub(crate) async fn join(
    leg: Leg,
    mut send: SendStream,
    mut recv: RecvStream,
    meters: &(Meter, Meter),
) -> Result<(), PumpError> {
    let (mut reader, mut writer) = leg.into_split();
    let up = async {
        to_link(&mut reader, &mut send, &meters.0).await?;
        send.finish();
        Ok(())
    };
    let down = async {
        from_link(&mut recv, &mut writer, &meters.1).await?;
        Ok(socket::end_orderly(&mut writer).await?)
    };
    let result = tokio::try_join!(up, down);
    match result {
        Ok(((), ())) => Ok(()),
        Err(error) => {
            send.reset(reset::ABORTED);
            recv.stop(reset::ABORTED);
            socket::mark_abort(writer.leg().tcp());
            Err(error)
        }
    }
}

/// One read: large, since each costs a system call and a hand-over to the link.
const READ_BYTES: usize = 256 * 1024;

/// Room that is not worth a read of its own.
const READ_MIN_BYTES: usize = 16 * 1024;
