//! The server's data connection: connected as soon as the server announces its port, joined with
//! the link stream that the near side opened for it.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use ftp::session::TransferId;
use link::{RecvStream, SendStream, StreamError};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};
use tracing::{debug, info};

use super::dial::CONNECT_PATIENCE;
use crate::{
    relay::{self, PumpError},
    socket,
    status::Transfer,
    wire::reset,
};

/// An abort that was ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abort {
    No,
    /// The server gets a moment to close by itself.
    Soon,
    Now,
}

/// Everything that one data connection needs.
pub(super) struct DataConnection {
    pub(super) id: TransferId,
    pub(super) server: SocketAddr,
    /// Where the control connection comes from: servers compare.
    pub(super) local: SocketAddr,
    pub(super) streams: oneshot::Receiver<(SendStream, RecvStream)>,
    pub(super) abort: watch::Receiver<Abort>,
    /// Told when the server does not accept the connection.
    pub(super) refused: mpsc::Sender<TransferId>,
    pub(super) transfer: Arc<Transfer>,
}

impl DataConnection {
    pub(super) async fn run(mut self) {
        let connected = tokio::select! {
            connected = connect(self.server, self.local) => connected,
            _ = self.abort.wait_for(|a| *a != Abort::No) => Err(io::ErrorKind::Interrupted.into()),
        };
        if let Err(error) = &connected {
            info!(transfer = self.id.0, server = %self.server, %error, "no data connection");
            let _ = self.refused.send(self.id).await;
        }
        let Ok(Ok((send, recv))) = timeout(STREAM_PATIENCE, self.streams).await else {
            if let Ok(stream) = connected {
                socket::abort(stream);
            }
            return;
        };
        // Which direction it has is not known here; of a download nothing comes this way.
        recv.limit_buffered_time(UPLOAD_TAIL);
        match connected {
            Ok(stream) => join(stream, send, recv, self.abort, &self.transfer, self.id).await,
            Err(_) => give_up(send, recv, reset::UNREACHABLE),
        }
    }
}

async fn connect(server: SocketAddr, local: SocketAddr) -> io::Result<TcpStream> {
    let socket = if server.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.bind(SocketAddr::new(local.ip(), 0))?;
    let stream = timeout(CONNECT_PATIENCE, socket.connect(server))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    socket::tune_data(&stream)?;
    Ok(stream)
}

async fn join(
    mut stream: TcpStream,
    mut send: SendStream,
    mut recv: RecvStream,
    mut abort: watch::Receiver<Abort>,
    transfer: &Transfer,
    id: TransferId,
) {
    let ended = {
        let (mut reader, mut writer) = stream.split();
        let meters = transfer.meters();
        let down = async {
            match relay::to_link(&mut reader, &mut send, &meters.0).await {
                Err(PumpError::Stream(StreamError::Stopped { code })) => {
                    Err(format!("the client stopped reading (code {code})"))
                }
                other => other.map_err(|error| error.to_string()),
            }
        };
        let up = async {
            match relay::from_link(&mut recv, &mut writer, &meters.1).await {
                // The server takes no more; it may still send, and its reply says why.
                Err(PumpError::Tcp(_)) => {
                    recv.stop(reset::ABORTED);
                    Ok(())
                }
                other => other.map_err(|error| error.to_string()),
            }
        };
        tokio::select! {
            result = async { tokio::try_join!(down, up) } => result.map(|_| ()),
            () = aborted(&mut abort) => Err("aborted".to_owned()),
        }
    };
    match ended {
        Ok(()) => {
            transfer.completed();
            debug!(transfer = id.0, "data connection complete");
        }
        Err(why) => {
            info!(transfer = id.0, why, "data connection broken");
            give_up(send, recv, reset::ABORTED);
            if *abort.borrow() == Abort::Soon {
                sleep(ABORT_GRACE).await;
            }
            socket::abort(stream);
        }
    }
}

/// Resolves when an abort is ordered. The end of the session is no order: a server may close its
/// control connection behind its last reply, with data still on the way.
async fn aborted(abort: &mut watch::Receiver<Abort>) {
    if abort.wait_for(|a| *a != Abort::No).await.is_err() {
        std::future::pending().await
    }
}

fn give_up(mut send: SendStream, mut recv: RecvStream, code: u32) {
    send.reset(code);
    recv.stop(code);
}

/// Time in which an upload must drain to the server when the client has sent its last byte: WinSCP waits 15 s
/// for the final reply, FileZilla 20 s.
const UPLOAD_TAIL: Duration = Duration::from_secs(5);

/// Time by which the server's announcement may precede the link stream.
const STREAM_PATIENCE: Duration = Duration::from_secs(30);

/// Time in which a server that heeds ABOR closes by itself.
const ABORT_GRACE: Duration = Duration::from_millis(300);
