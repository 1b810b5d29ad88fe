//! The control connection with one server: drives [`ftp::session::far`] over a socket and a link
//! stream.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use ftp::{
    line::{Line, REPLY_MAX},
    session::{
        PIPELINED_MAX, TransferId,
        far::{FarSession, Input, Manner, Opening, Output, ServerTls as TlsWay},
    },
};
use link::{PeerId, RecvStream, SendStream, StreamError};
use socket2::SockRef;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval},
};
use tracing::{Instrument, debug, info, warn};

use super::{
    DataStream, connect,
    data::{Abort, DataConnection, Orders, ServerLeg},
    opened::Opened,
};
use crate::{
    control::Control,
    shared::Shared,
    socket,
    status::Transfer,
    target::Endpoint,
    tls::{self, Connector, Kind, Leg},
    truncation::{SessionKey, Truncation},
    wire::{Decoder, FarMessage, NearMessage, encode, reset},
};

/// Serves one session until the server or the client leaves, or the link is lost.
pub(super) async fn serve(mut opened: Opened, shared: &Arc<Shared>) {
    let (stream, tls) = match connect::connect(&opened, shared).await {
        Ok(connected) => connected,
        Err((code, text)) => {
            shared.registry.refused();
            warn!(text, "not connected");
            let refused = FarMessage::Refused { code, text };
            let _ = opened.send.write(encode(&refused)).await;
            return opened.send.finish();
        }
    };
    if let Err(error) = run(opened, stream, tls, shared).await {
        info!(%error, "session broken");
    }
}

#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("server: {0}")]
    Server(#[from] io::Error),
    #[error("link: {0}")]
    Link(#[from] StreamError),
    #[error("near side: {0}")]
    Wire(#[from] crate::wire::WireError),
    #[error("near side: {0}")]
    Limit(#[from] ftp::session::far::TooManyCommands),
}

struct Data {
    orders: watch::Sender<Orders>,
    streams: Option<oneshot::Sender<DataStream>>,
    /// The connection itself keeps it, so that its end counts.
    transfer: Weak<Transfer>,
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    peer: PeerId,
    session: u64,
    target: Endpoint,
    server: SocketAddr,
    local: SocketAddr,
    control: Control,
    /// The TLS connector, if the session has TLS.
    tls: Option<Arc<Connector>>,
    far: FarSession,
    send: SendStream,
    data: BTreeMap<TransferId, Data>,
    /// Streams whose data connection the server has not announced yet.
    early: BTreeMap<TransferId, DataStream>,
    refused: mpsc::Sender<TransferId>,
    closing: bool,
}

async fn run(
    opened: Opened,
    leg: Leg,
    tls: Option<Arc<Connector>>,
    shared: &Arc<Shared>,
) -> Result<(), SessionError> {
    socket::tune_control(leg.tcp(), false)?;
    let (server, local) = (leg.tcp().peer_addr()?, leg.tcp().local_addr()?);
    info!(%server, "connected");
    let opening = match opened.logon {
        None => Opening::RelayGreeting,
        Some((id, line)) => Opening::ConsumeGreeting { id, line },
    };
    let (refused, refusals) = mpsc::channel(REFUSALS_MAX);
    let mut session = Session {
        shared,
        peer: opened.peer,
        session: opened.session,
        target: opened.target,
        server,
        local,
        control: Control::new(leg, REPLY_MAX),
        tls,
        far: FarSession::new(
            opening,
            Manner {
                server_is_v6: server.ip().to_canonical().is_ipv6(),
                data: opened.server_data,
                mode: opened.mode,
                tls: match opened.tls.map(|tls| tls.mode) {
                    None => TlsWay::Off,
                    Some(tls::Mode::Explicit) => TlsWay::Explicit,
                    Some(tls::Mode::Implicit) => TlsWay::Implicit,
                },
            },
        ),
        send: opened.send,
        data: BTreeMap::new(),
        early: BTreeMap::new(),
        refused,
        closing: false,
    };
    let result = session
        .serve(opened.recv, opened.decoder, opened.streams, refusals)
        .await;
    if result.is_err() {
        session.abort_all();
        session.send.reset(reset::SESSION_ENDED);
    }
    result
}

impl Session<'_> {
    async fn serve(
        &mut self,
        mut recv: RecvStream,
        mut decoder: Decoder,
        mut streams: mpsc::Receiver<DataStream>,
        mut refusals: mpsc::Receiver<TransferId>,
    ) -> Result<(), SessionError> {
        let mut client_here = true;
        let mut ticks = interval(TELL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.near_said(&mut decoder)?;
        self.drain().await?;
        while !self.closing {
            tokio::select! {
                read = self.control.read() => match read {
                    Ok(true) => {
                        if let Some(tcp) = self.control.tcp() {
                            socket::acknowledge_now(tcp);
                        }
                        self.server_said().await?;
                    }
                    Ok(false) | Err(_) => self.far.handle(Input::ServerClosed)?,
                },
                read = recv.read(), if client_here => match read? {
                    Some(bytes) => {
                        decoder.push(&bytes);
                        self.near_said(&mut decoder)?;
                    }
                    None => {
                        client_here = false;
                        self.far.handle(Input::ClientGone)?;
                    }
                },
                Some(stream) = streams.recv() => self.pair(stream),
                Some(id) = refusals.recv() => self.far.handle(Input::DataRefused(id))?,
                _ = ticks.tick() => self.tell_limits().await?,
                () = self.shared.cut_short() => return Err(StreamError::Closed.into()),
            }
            self.drain().await?;
        }
        let _ = self.send.write(encode(&FarMessage::ServerClosed)).await;
        self.send.finish();
        self.control.shut_down().await;
        Ok(())
    }

    async fn server_said(&mut self) -> Result<(), SessionError> {
        while let Some(line) = self.control.next_line() {
            match line {
                Line::Complete(line) => self.far.handle(Input::ServerLine(&line))?,
                Line::TooLong => {
                    let text = "the server sent a reply line above the bound";
                    self.abort_all();
                    return self.refuse(421, text.to_owned()).await;
                }
            }
            // Bytes after the reply to AUTH must not count as received under TLS.
            self.drain().await?;
        }
        Ok(())
    }

    async fn begin_tls(&mut self) -> Result<(), SessionError> {
        let Some(tls) = self.tls.clone() else {
            return self.refuse(530, "TLS is not configured".to_owned()).await;
        };
        let name = self.target.host.to_string();
        let handshake = async |tcp| tls.connect(tcp, &name, Kind::Control).await;
        let begun = match self.control.begin_tls(handshake).await {
            Ok(()) => Ok(()),
            Err(error) => match tls.in_place_of_tls12(&error) {
                Some(tls) => self.begin_again(tls).await,
                None => Err(connect::no_tls(&error)),
            },
        };
        match begun {
            Ok(()) => Ok(self.far.handle(Input::TlsBegun)?),
            Err((code, text)) => self.refuse(code, text).await,
        }
    }

    /// Goes on with another connection to the same server, as far as the first had come.
    async fn begin_again(&mut self, tls: Connector) -> Result<(), (u16, String)> {
        info!(server = %self.server, "connecting again: the server does not take TLS 1.2");
        let name = self.target.host.to_string();
        self.control = connect::again(self.server, &tls, &name).await?;
        if let Some(Ok(local)) = self.control.tcp().map(|tcp| tcp.local_addr()) {
            self.local = local;
        }
        if self.control.is_tls13() {
            self.shared.tls13_only.insert(&self.target, Instant::now());
        }
        self.tls = Some(Arc::new(tls));
        Ok(())
    }

    /// There will be no session: tells the client why.
    async fn refuse(&mut self, code: u16, text: String) -> Result<(), SessionError> {
        self.shared.registry.refused();
        warn!(text, "no session");
        self.closing = true;
        self.tell_near(&FarMessage::Refused { code, text }).await
    }

    fn near_said(&mut self, decoder: &mut Decoder) -> Result<(), SessionError> {
        while let Some(message) = decoder.next_message()? {
            match message {
                NearMessage::Command {
                    id,
                    synch,
                    answered,
                    line,
                } => self.far.handle(Input::Command {
                    id,
                    line: &line,
                    synch,
                    answered,
                })?,
                NearMessage::Data {
                    id,
                    transfer,
                    answered,
                } => self.far.handle(Input::Data {
                    id,
                    transfer,
                    answered,
                })?,
                NearMessage::Abandon(transfer) => self.far.handle(Input::Abandon(transfer))?,
            }
        }
        Ok(())
    }

    /// Carries out the orders of the state machine.
    async fn drain(&mut self) -> Result<(), SessionError> {
        while let Some(output) = self.far.poll() {
            match output {
                Output::ToServer { line, synch } => self.tell_server(line, synch).await?,
                Output::Reply { tag, line } => {
                    self.tell_near(&FarMessage::Reply { tag, line }).await?;
                }
                Output::Taken => self.tell_near(&FarMessage::Taken).await?,
                Output::DataReady(id) => self.tell_near(&FarMessage::DataReady(id)).await?,
                Output::Foreseen {
                    subject,
                    answer,
                    last,
                } => {
                    let message = FarMessage::Foreseen {
                        subject,
                        answer,
                        last,
                    };
                    self.tell_near(&message).await?;
                }
                Output::Connect { transfer, port } => {
                    let to = SocketAddr::new(self.server.ip(), port);
                    self.start_data(transfer, ServerLeg::Dial(to));
                }
                Output::Listen(transfer) => {
                    let at = self.listen(transfer);
                    self.far.handle(Input::Listening(at))?;
                }
                Output::BeginTls => self.begin_tls().await?,
                Output::Commanded(transfer, direction) => self.order(transfer, |o| {
                    o.commanded = true;
                    o.direction = Some(direction);
                }),
                Output::Begin(transfer) => self.order(transfer, |o| o.begun = true),
                Output::Refuse(text) => self.refuse(530, text).await?,
                Output::Unlisten(transfer) => self.order(transfer, |o| o.abort = Abort::Unlisten),
                Output::Abort { transfer, grace } => self.abort(transfer, grace),
                Output::Close => self.closing = true,
            }
        }
        Ok(())
    }

    async fn tell_server(&mut self, mut line: Vec<u8>, synch: bool) -> io::Result<()> {
        debug!(command = %ftp::command::Command::parse(&line), "to the server");
        // Under TLS nothing can be urgent.
        let clear = self
            .control
            .tcp()
            .filter(|_| synch && !self.control.is_tls());
        if let Some(tcp) = clear {
            // As tnftp and lftp do it: interrupt process, then the data mark as urgent data.
            let socket = SockRef::from(tcp);
            socket.send(TELNET_INTERRUPT)?;
            socket.send_out_of_band(TELNET_DATA_MARK)?;
        }
        line.extend_from_slice(b"\r\n");
        match self.control.write(&line).await {
            // The server's last lines are still unread.
            Err(error) if is_gone(&error) => Ok(()),
            result => result,
        }
    }

    async fn tell_near(&mut self, message: &FarMessage) -> Result<(), SessionError> {
        match self.send.write(encode(message)).await {
            // The client left without reading on; its commands are still finished.
            Err(StreamError::Stopped { .. }) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Listens for the server's data connection. Returns where.
    fn listen(&mut self, id: TransferId) -> Option<SocketAddr> {
        let listener = socket::listen(self.local.ip().to_canonical(), 0);
        match listener.and_then(|l| Ok((l.local_addr()?, l))) {
            Ok((at, listener)) => {
                let server = self.server.ip();
                self.start_data(id, ServerLeg::Accept(listener, server));
                Some(at)
            }
            Err(error) => {
                warn!(%error, "no port for a data connection");
                None
            }
        }
    }

    fn start_data(&mut self, id: TransferId, leg: ServerLeg) {
        let (name, peer) = (self.target.to_string(), self.shared.peer_name(self.peer));
        let transfer = self
            .shared
            .registry
            .transfer("ftp", false, self.session, peer, "", &name);
        let (orders, ordered) = watch::channel(Orders::default());
        let (sender, streams) = oneshot::channel();
        let open = Arc::downgrade(&transfer);
        let connection = DataConnection {
            id,
            leg,
            local: self.local,
            streams,
            tls: self
                .tls
                .clone()
                .map(|tls| (tls, self.target.host.to_string())),
            truncation: self.tls.is_some().then(|| {
                Truncation::new(
                    self.shared.clone(),
                    SessionKey {
                        peer: self.peer,
                        is_near: false,
                        session: self.session,
                    },
                    id,
                )
            }),
            orders: ordered,
            refused: self.refused.clone(),
            transfer,
        };
        let alive = self.shared.alive.upgrade();
        let run = async move {
            connection.run().await;
            drop(alive);
        };
        tokio::spawn(run.in_current_span());
        self.data.retain(|_, data| !data.orders.is_closed());
        self.data.insert(
            id,
            Data {
                orders,
                streams: Some(sender),
                transfer: open,
            },
        );
        if let Some(stream) = self.early.remove(&id) {
            self.pair(stream);
        }
    }

    fn pair(&mut self, stream: DataStream) {
        let id = stream.transfer;
        match self.data.get_mut(&id).and_then(|data| data.streams.take()) {
            Some(sender) => drop(sender.send(stream)),
            None => {
                self.early.insert(id, stream);
                // Those whose PASV was refused are never asked for again.
                if self.early.len() > EARLY_MAX {
                    self.early.pop_first();
                }
            }
        }
    }

    fn abort(&mut self, id: TransferId, grace: bool) {
        self.early.remove(&id);
        let abort = if grace { Abort::Soon } else { Abort::Now };
        self.order(id, |orders| orders.abort = abort);
    }

    /// Resets open transfers, so that none looks complete.
    fn abort_all(&self) {
        for data in self.data.values() {
            data.orders.send_modify(|orders| orders.abort = Abort::Now);
        }
    }

    fn order(&self, id: TransferId, order: impl FnOnce(&mut Orders)) {
        if let Some(data) = self.data.get(&id) {
            data.orders.send_modify(order);
        }
    }

    /// Reports the bottleneck of each transfer of this session to the near gateway.
    async fn tell_limits(&mut self) -> Result<(), SessionError> {
        let limits: Vec<_> = self
            .data
            .iter()
            .filter(|(_, data)| !data.orders.is_closed())
            .filter_map(|(&id, data)| Some((id, data.transfer.upgrade()?.limit()?)))
            .collect();
        for (id, limit) in limits {
            self.tell_near(&FarMessage::Waiting(id, limit)).await?;
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// RFC 854: IAC IP, and the first byte of IAC DM.
const TELNET_INTERRUPT: &[u8] = &[0xff, 0xf4, 0xff];

/// RFC 854: DM, sent as urgent data to make a Synch.
const TELNET_DATA_MARK: &[u8] = &[0xf2];

/// Streams kept for data connections that the server has not announced: as many as a client may have
/// asked for ahead.
const EARLY_MAX: usize = PIPELINED_MAX;

/// Most refusals that wait for the session.
const REFUSALS_MAX: usize = 8;

/// Interval of reports of a transfer's bottleneck to the near gateway.
const TELL_INTERVAL: Duration = Duration::from_secs(1);
