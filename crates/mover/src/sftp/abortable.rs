//! Connection that another task can abort, although the SSH library owns it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;
use net::tls::Leg;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Switch that aborts a connection. Dropping the switch also aborts the connection.
#[derive(Debug, Default)]
pub(super) struct AbortSwitch(Arc<AbortState>);

#[derive(Debug, Default)]
struct AbortState {
    is_aborted: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// Connection that its switch can abort.
#[derive(Debug)]
pub(super) struct AbortableLeg {
    leg: Leg,
    state: Arc<AbortState>,
}

impl AbortSwitch {
    /// Returns the connection in a form that this switch can abort.
    pub(super) fn guard(&self, leg: Leg) -> AbortableLeg {
        AbortableLeg {
            leg,
            state: self.0.clone(),
        }
    }

    /// Makes all further reads and writes fail.
    pub(super) fn abort(&self) {
        self.0.is_aborted.store(true, Ordering::Release);
        self.0.reader.wake();
        self.0.writer.wake();
    }
}

impl Drop for AbortSwitch {
    fn drop(&mut self) {
        self.abort();
    }
}

impl AbortState {
    /// Registers the waker, and then fails if the connection is aborted. Because of this order, the
    /// waiting task cannot miss the abort.
    fn check(&self, waker: &AtomicWaker, context: &Context<'_>) -> io::Result<()> {
        waker.register(context.waker());
        match self.is_aborted.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

impl AsyncRead for AbortableLeg {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.state.check(&self.state.reader, context)?;
        Pin::new(&mut self.leg).poll_read(context, buffer)
    }
}

impl AsyncWrite for AbortableLeg {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.state.check(&self.state.writer, context)?;
        Pin::new(&mut self.leg).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.check(&self.state.writer, context)?;
        Pin::new(&mut self.leg).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.leg).poll_shutdown(context)
    }
}
