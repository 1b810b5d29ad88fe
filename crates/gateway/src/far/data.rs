//! The data connection between the far gateway and the server. The gateway dials as soon as the
//! server announces its port, or accepts, and joins the connection with the link stream that the
//! near gateway opened for it.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ftp::{command::Direction, session::TransferId};
use link::{RecvStream, SendStream, StreamError};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};
use tracing::{debug, info};

use super::{DataStream, dial::CONNECT_PATIENCE};
use crate::{
    relay::{self, PumpError},
    socket,
    status::Transfer,
    tls::{Connector, Kind, Leg, Writer},
    truncation::Truncation,
    wire::reset,
};

/// The orders given so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Orders {
    /// The server has been sent the command of a transfer.
    pub(super) commanded: bool,
    /// The sender of the data, if the command determines it.
    pub(super) direction: Option<Direction>,
    /// The transfer has begun: the server awaits TLS.
    pub(super) begun: bool,
    pub(super) abort: Abort,
}

/// An ordered abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Abort {
    #[default]
    No,
    /// A server that has not connected need not any more.
    Unlisten,
    /// The server gets a moment to close by itself.
    Soon,
    Now,
}

/// How the server's data connection comes about.
pub(super) enum ServerLeg {
    /// The server listens at this address.
    Dial(SocketAddr),
    /// The server connects here, from this address.
    Accept(TcpListener, IpAddr),
}

impl ServerLeg {
    /// The server's name as a reader of streams: its address, whatever the port.
    fn reader(&self) -> u64 {
        let server = match self {
            Self::Dial(to) => to.ip(),
            Self::Accept(_, server) => *server,
        };
        let mut hasher = DefaultHasher::new();
        server.hash(&mut hasher);
        hasher.finish()
    }
}

/// The parts of one data connection.
pub(super) struct DataConnection {
    pub(super) id: TransferId,
    pub(super) leg: ServerLeg,
    /// Where the control connection comes from: servers compare.
    pub(super) local: SocketAddr,
    pub(super) streams: oneshot::Receiver<DataStream>,
    /// The TLS connector and the server's name, if the data connection has TLS.
    pub(super) tls: Option<(Arc<Connector>, String)>,
    pub(super) truncation: Option<Truncation>,
    pub(super) orders: watch::Receiver<Orders>,
    /// Told when the server does not accept the connection.
    pub(super) refused: mpsc::Sender<TransferId>,
    pub(super) transfer: Arc<Transfer>,
}

impl DataConnection {
    pub(super) async fn run(mut self) {
        let reader = self.leg.reader();
        let connected = tokio::select! {
            connected = connect(self.leg, self.local, self.orders.clone()) => connected,
            _ = self.orders.wait_for(|o| o.abort != Abort::No) => {
                Err(io::ErrorKind::Interrupted.into())
            }
        };
        if let Err(error) = &connected {
            info!(transfer = self.id.0, %error, "no data connection");
            let _ = self.refused.send(self.id).await;
        }
        let Ok(Ok(streams)) = timeout(STREAM_PATIENCE, self.streams).await else {
            if let Ok(stream) = connected {
                socket::abort(stream);
            }
            return;
        };
        // Which direction it has is not known here; of a download nothing comes this way.
        streams.recv.limit_buffered_time(reader, UPLOAD_TAIL);
        match connected {
            Ok(stream) => match secure(stream, self.tls, &mut self.orders).await {
                Ok(leg) => {
                    join(leg, streams, self.orders, &self.truncation, &self.transfer).await;
                }
                Err(error) => {
                    info!(transfer = self.id.0, %error, "no TLS for data");
                    give_up(streams.send, streams.recv, reset::UNREACHABLE);
                }
            },
            Err(_) => give_up(streams.send, streams.recv, reset::UNREACHABLE),
        }
    }
}

async fn connect(
    leg: ServerLeg,
    local: SocketAddr,
    orders: watch::Receiver<Orders>,
) -> io::Result<TcpStream> {
    let stream = match leg {
        ServerLeg::Dial(to) => socket::connect_from(local.ip(), to, CONNECT_PATIENCE).await?,
        ServerLeg::Accept(listener, server) => tokio::select! {
            stream = socket::accept_from(&listener, server) => stream,
            () = awaited_too_long(orders) => return Err(io::ErrorKind::TimedOut.into()),
        },
    };
    socket::tune_data(&stream)?;
    Ok(stream)
}

/// Resolves when a server that connects has not done so in time: it does once it has been sent the command
/// of a transfer, which the client may put off. After the end of the session no command comes.
async fn awaited_too_long(mut orders: watch::Receiver<Orders>) {
    if orders.wait_for(|o| o.commanded).await.is_ok() {
        sleep(ACCEPT_PATIENCE).await;
    }
}

/// Begins TLS, where there is to be any, once the server awaits it: before its `1yz` reply some
/// servers do not.
async fn secure(
    stream: TcpStream,
    tls: Option<(Arc<Connector>, String)>,
    orders: &mut watch::Receiver<Orders>,
) -> io::Result<Leg> {
    let Some((connector, name)) = tls else {
        return Ok(Leg::plain(stream));
    };
    let ended = || io::Error::from(io::ErrorKind::Interrupted);
    let begun = orders
        .wait_for(|o| o.begun || o.abort != Abort::No)
        .await
        .is_ok_and(|o| o.begun);
    if !begun {
        socket::abort(stream);
        return Err(ended());
    }
    tokio::select! {
        leg = connector.connect(stream, &name, Kind::Data) => leg,
        () = aborted(orders) => Err(ended()),
    }
}

async fn join(
    leg: Leg,
    streams: DataStream,
    mut orders: watch::Receiver<Orders>,
    truncation: &Option<Truncation>,
    transfer: &Transfer,
) {
    let DataStream {
        transfer: id,
        mut send,
        mut recv,
        first,
    } = streams;
    let (mut reader, mut writer) = leg.into_split();
    let (server_end, server_ended) = oneshot::channel();
    let downloaded = downloaded(server_ended, orders.clone());
    let down_orders = orders.clone();
    let ended = {
        let meters = transfer.meters();
        let down = async {
            match relay::to_link(&mut reader, &mut send, &meters.0).await {
                Ok(()) => {
                    let _ = server_end.send(());
                    // To an upload the server's end says nothing.
                    let is_upload = down_orders.borrow().direction == Some(Direction::Upload);
                    if let Some(truncation) = truncation.as_ref().filter(|_| !is_upload) {
                        truncation.tell(&reader).await?;
                    }
                    send.finish();
                    Ok(())
                }
                Err(PumpError::Stream(StreamError::Stopped { code })) => {
                    Err(format!("the client stopped reading (code {code})"))
                }
                Err(error) => Err(error.to_string()),
            }
        };
        let up = async {
            let meter = &meters.1;
            let relay = async {
                relay::write(&mut writer, first, meter).await?;
                relay::from_link(&mut recv, &mut writer, meter).await?;
                match truncation {
                    Some(truncation) => truncation.end(&mut writer).await?,
                    None => socket::end_orderly(&mut writer).await?,
                }
                Ok(())
            };
            let relayed = tokio::select! {
                relayed = relay => relayed,
                () = downloaded => end_download(&mut recv, &mut writer).await,
            };
            match relayed {
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
            () = aborted(&mut orders) => Err("aborted".to_owned()),
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
            if orders.borrow().abort == Abort::Soon {
                sleep(ABORT_GRACE).await;
            }
            socket::mark_abort(writer.leg().tcp());
        }
    }
}

/// Resolves when the server has ended a download. In any other transfer its end says nothing of what
/// the client still sends.
async fn downloaded(server_ended: oneshot::Receiver<()>, mut orders: watch::Receiver<Orders>) {
    if server_ended.await.is_err() || orders.wait_for(is_download).await.is_err() {
        std::future::pending().await
    }
}

fn is_download(orders: &Orders) -> bool {
    orders.direction == Some(Direction::Download)
}

/// Answers the server's end of a download with ours, which some servers await before their final
/// reply: the client's comes a round trip of the WAN later, and is only awaited here.
async fn end_download(recv: &mut RecvStream, writer: &mut Writer) -> Result<(), PumpError> {
    socket::end_orderly(writer).await?;
    if recv.read().await?.is_some() {
        recv.stop(reset::ABORTED);
    }
    Ok(())
}

/// Resolves when an abort is ordered. The end of the session is no order: a server may close its
/// control connection behind its last reply, with data still on the way.
async fn aborted(orders: &mut watch::Receiver<Orders>) {
    let ordered = orders.wait_for(|o| matches!(o.abort, Abort::Soon | Abort::Now));
    if ordered.await.is_err() {
        std::future::pending().await
    }
}

fn give_up(mut send: SendStream, mut recv: RecvStream, code: u32) {
    send.reset(code);
    recv.stop(code);
}

/// Time for a server to connect, from the command of the transfer.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(120);

/// Time in which an upload must drain to the server when the client has sent its last byte: WinSCP waits 15 s
/// for the final reply, FileZilla 20 s.
const UPLOAD_TAIL: Duration = Duration::from_secs(5);

/// Time by which the server's announcement may precede the link stream.
const STREAM_PATIENCE: Duration = Duration::from_secs(30);

/// Time in which a server that heeds ABOR closes by itself.
const ABORT_GRACE: Duration = Duration::from_millis(300);
