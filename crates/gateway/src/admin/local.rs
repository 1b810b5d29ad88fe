//! The listener of the admin socket: places of its own, for root and the gateway's own user alone.
#![allow(
    clippy::disallowed_methods,
    reason = "drives sockets: accepts orders of programs on this machine"
)]

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tracing::warn;

use crate::{
    admin_socket::{Process, may_order, process_behind},
    dashboard::Client,
};

/// The admin socket with a bound on its connections.
#[derive(Debug)]
pub(super) struct LocalListener {
    listener: UnixListener,
    places: Arc<Semaphore>,
}

/// A connection of a process that may give orders.
#[derive(Debug)]
pub(super) struct LocalConnection {
    stream: UnixStream,
    process: Process,
    _place: OwnedSemaphorePermit,
}

impl LocalListener {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }
}

impl Listener for LocalListener {
    type Io = LocalConnection;
    type Addr = ();

    async fn accept(&mut self) -> (LocalConnection, ()) {
        loop {
            let place = self.places.clone().acquire_owned().await;
            let place = place.expect("nobody closes the semaphore");
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The process is out of descriptors.
                    warn!(%error, "the admin socket accepts nobody");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match process_behind(&stream) {
                Ok(process) if may_order(process) => {
                    let connection = LocalConnection {
                        stream,
                        process,
                        _place: place,
                    };
                    return (connection, ());
                }
                Ok(Process { pid, uid }) => {
                    warn!(target: "audit", uid, pid, "another user is refused at the admin socket");
                }
                Err(error) => warn!(%error, "nobody knows who is at the admin socket"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Connected<IncomingStream<'_, LocalListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, LocalListener>) -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            process: Some(stream.io().process),
            ..Self::new(nowhere, nowhere, false)
        }
    }
}

impl AsyncRead for LocalConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for LocalConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Commands at once; further ones wait in the kernel. Those of other users have no part in it.
const CONNECTIONS_MAX: usize = 64;

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
