//! The far gateway's half of an FTP session. The module runs the state machine
//! [`ftp::session::far`] between the server's control connection and a link stream.

mod reconnection;
mod reports;
mod waits;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use ftp::{
    command::Command,
    line::{REPLY_MAX, SplitLine},
    session::{
        MessageToNear, PIPELINED_MAX, TransferId,
        data::{
            DataInput,
            far::{FarData, FarDataEvent, FarDataOrder, FarDataSetup},
        },
        far::{
            FarInput, FarOutput, FarSession, FarSetup, SERVER_TIMEOUT, ServerTlsMode as TlsWay,
            SessionOpening,
        },
    },
    spool::SpoolRequest,
};
use link::{PeerId, RecvStream, SendStream, StreamError};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};
use tracing::{Instrument, debug, info, warn};

use self::{
    reconnection::wait_for_reconnection,
    reports::REPORT_INTERVAL,
    waits::{WaitClock, wait_until},
};
use super::{
    connect,
    data::{self, ServerLeg},
    opened_session::OpenedSession,
};
use crate::{
    control_connection::ControlConnection,
    drain::{self, DrainBudget},
    gateway_context::GatewayContext,
    optimise::{FlushDelay, NegotiatedCoding, ReferenceKey},
    pairing::{DataStream, StreamHalves},
    pump::{self, BoxedFuture, Grants, PumpParts, SecureLeg, StreamSource},
    spool::SpoolPosition,
    status::OpenTransfer,
    truncation::{SessionKey, Truncation},
    wire::{FarMessage, Grant, MessageDecoder, NearMessage, Version, encode, encode_in, reset},
};
use net::{
    socket,
    target::HostPort,
    tls::{self, ConnectionKind, Connector, Leg},
};

/// Serves one session until the server or the client disconnects, or the link is lost.
pub(super) async fn serve(mut opened: OpenedSession, shared: &Arc<GatewayContext>) {
    let (stream, tls) = match connect::connect(&opened, shared).await {
        Ok(connected) => connected,
        Err((code, text)) => {
            shared.registry.count_refusal();
            warn!(text, "not connected");
            let refused = FarMessage::Session(MessageToNear::Refused { code, text });
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
    #[error("near gateway: {0}")]
    Wire(#[from] crate::wire::WireError),
    #[error("near gateway: {0}")]
    Limit(#[from] ftp::session::far::TooManyCommands),
}

struct DataConnection {
    orders: mpsc::UnboundedSender<FarDataOrder>,
    stream: Option<oneshot::Sender<StreamHalves>>,
    server: IpAddr,
    /// Record of the transfer. The data connection owns the record, so this reference is weak. When
    /// the record is dropped, the registry counts the end of the transfer.
    transfer: Weak<OpenTransfer>,
    /// Time at which the gateway started to open the data connection.
    opened: Instant,
    /// Drain budget of an upload (maximum bytes in flight), and the time of the latest observation
    /// of its server.
    drain: DrainBudget,
    observed: Instant,
    grants: watch::Sender<Grant>,
}

struct Session<'a> {
    shared: &'a Arc<GatewayContext>,
    peer: PeerId,
    /// Protocol version of the messages on the session's stream.
    version: Version,
    session: u64,
    target: HostPort,
    server: SocketAddr,
    local: SocketAddr,
    control: ControlConnection,
    /// The next control connection to the server, while it is being opened.
    reconnection: Option<BoxedFuture<io::Result<Leg>>>,
    /// TLS connector for the server. `None` if the server's connections do not use TLS.
    tls: Option<Arc<Connector>>,
    is_tls_implicit: bool,
    /// Coding of the data streams on the link. `None` disables coding.
    coding: Option<NegotiatedCoding>,
    far: FarSession,
    send: SendStream,
    data: BTreeMap<TransferId, DataConnection>,
    /// Streams of data connections whose port the server has not announced yet.
    early: BTreeMap<TransferId, DataStream>,
    /// Position at which the next upload starts to read its bytes from a spool. `None` if the
    /// client has requested no spool.
    spool: Option<SpoolPosition>,
    /// Time limit for the server to accept all bytes in flight after the client's last byte.
    drain_limit: Duration,
    /// Budget of an upload before its first grant, as last reported to the near gateway.
    first_budget_bytes: u64,
    /// Number of the latest data connection.
    latest: TransferId,
    events: mpsc::UnboundedSender<(TransferId, FarDataEvent)>,
    closing: bool,
}

async fn run(
    opened: OpenedSession,
    leg: Leg,
    tls: Option<Arc<Connector>>,
    shared: &Arc<GatewayContext>,
) -> Result<(), SessionError> {
    let connection = leg.connection();
    socket::tune_control(connection, false)?;
    let (server, local) = (connection.peer_addr()?, connection.local_addr()?);
    info!(%server, "connected");
    let opening = match opened.logon {
        None => SessionOpening::RelayGreeting,
        Some((id, line)) => SessionOpening::ConsumeGreeting { id, line },
    };
    let (events, from_data) = mpsc::unbounded_channel();
    let known = shared.known_servers.ftp(&opened.target, Instant::now());
    let mut session = Session {
        shared,
        peer: opened.peer,
        version: opened.version,
        session: opened.session,
        coding: opened.coding,
        is_tls_implicit: opened
            .tls
            .as_ref()
            .is_some_and(|tls| tls.mode == tls::TlsStart::Implicit),
        target: opened.target,
        server,
        local,
        control: ControlConnection::new(leg, REPLY_MAX),
        reconnection: None,
        tls,
        far: FarSession::new(
            opening,
            FarSetup {
                server_is_v6: server.ip().to_canonical().is_ipv6(),
                data: opened.server_data,
                mode: opened.mode,
                tls: match opened.tls.as_ref().map(|tls| tls.mode) {
                    None => TlsWay::Off,
                    Some(tls::TlsStart::Explicit) => TlsWay::Explicit,
                    Some(tls::TlsStart::Implicit) => TlsWay::Implicit,
                },
                known,
            },
        ),
        send: opened.send,
        data: BTreeMap::new(),
        early: BTreeMap::new(),
        spool: None,
        drain_limit: drain::LIMIT,
        first_budget_bytes: drain::first_budget_bytes(drain::LIMIT, Duration::ZERO, None),
        latest: TransferId(0),
        events,
        closing: false,
    };
    let result = session
        .serve(opened.recv, opened.decoder, opened.streams, from_data)
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
        mut decoder: MessageDecoder,
        mut streams: mpsc::Receiver<DataStream>,
        mut from_data: mpsc::UnboundedReceiver<(TransferId, FarDataEvent)>,
    ) -> Result<(), SessionError> {
        let mut client_here = true;
        let mut waits = WaitClock::default();
        let mut ticks = interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.report_first_budget().await?;
        if let Some(cutting) = self.coding.as_ref().and_then(NegotiatedCoding::cutting) {
            self.send_to_near(&FarMessage::Store(cutting)).await?;
        }
        self.handle_near_messages(&mut decoder)?;
        self.drain().await?;
        while !self.closing {
            let next_observation = self.next_observation();
            let is_connected = self.reconnection.is_none();
            tokio::select! {
                read = self.control.read(), if is_connected && self.far.wants_server() => match read {
                    Ok(true) => {
                        if let Some(connection) = self.control.connection() {
                            socket::acknowledge_now(connection);
                        }
                        self.handle_server_input().await?;
                    }
                    Ok(false) | Err(_) => self.far.handle(FarInput::ServerClosed)?,
                },
                read = recv.read(), if client_here => match read? {
                    Some(bytes) => {
                        decoder.push(&bytes);
                        self.handle_near_messages(&mut decoder)?;
                    }
                    None => {
                        client_here = false;
                        self.far.handle(FarInput::ClientGone)?;
                    }
                },
                Some(stream) = streams.recv() => self.pair(stream),
                Some((id, event)) = from_data.recv() => {
                    if event == FarDataEvent::Closed {
                        self.remember_rate(id).await?;
                        self.data.remove(&id);
                    }
                    self.far.handle(FarInput::Data(id, event))?;
                }
                leg = wait_for_reconnection(&mut self.reconnection), if !is_connected => self.on_reconnected(leg)?,
                () = wait_until(waits.until(self.far.wait())) => self.handle_wait_timeout(&mut waits)?,
                () = sleep(SERVER_TIMEOUT), if self.far.waits_only_for_server() => {
                    info!("the server does not answer a session without client");
                    self.far.handle(FarInput::ServerSilent)?;
                }
                _ = ticks.tick(), if !self.data.is_empty() => self.report_limits().await?,
                () = sleep_until(next_observation), if !self.data.is_empty() => {
                    self.observe_uploads().await?;
                }
                () = self.shared.wait_for_abort() => return Err(StreamError::Closed.into()),
            }
            self.drain().await?;
        }
        self.send.finish();
        self.control.shut_down().await;
        Ok(())
    }

    async fn handle_server_input(&mut self) -> Result<(), SessionError> {
        while let Some(line) = self.control.next_line() {
            match line {
                SplitLine::Complete(line) => self.far.handle(FarInput::ServerLine(&line))?,
                SplitLine::TooLong => {
                    let text = "the server sent a reply line above the bound";
                    self.abort_all();
                    return self.refuse(421, text.to_owned()).await;
                }
            }
            // Bytes after the reply to AUTH must not count as received under TLS.
            self.drain().await?;
            if !self.control.is_open() {
                break;
            }
        }
        Ok(())
    }

    async fn begin_tls(&mut self) -> Result<(), SessionError> {
        let Some(tls) = self.tls.clone() else {
            return self.refuse(530, "TLS is not configured".to_owned()).await;
        };
        let name = self.target.host.to_string();
        let handshake = async |tcp| tls.connect(tcp, &name, ConnectionKind::Control).await;
        let begun = match self.control.begin_tls(handshake).await {
            Ok(()) => Ok(()),
            Err(error) => match tls.fallback_for_tls12(&error) {
                Some(tls) => self.restart_with_tls(tls).await,
                None => Err(connect::tls_refusal(&error)),
            },
        };
        match begun {
            Ok(()) => Ok(self.far.handle(FarInput::TlsBegun)?),
            Err((_, why)) if self.far.is_in_relogin() => {
                info!(why, "not logged in again");
                Ok(self.far.handle(FarInput::ServerClosed)?)
            }
            Err((code, text)) => self.refuse(code, text).await,
        }
    }

    /// Refuses the session, and sends the reason to the client.
    async fn refuse(&mut self, code: u16, text: String) -> Result<(), SessionError> {
        self.closing = true;
        self.send_message(MessageToNear::Refused { code, text })
            .await
    }

    async fn send_message(&mut self, message: MessageToNear) -> Result<(), SessionError> {
        if let MessageToNear::Refused { text, .. } = &message {
            self.shared.registry.count_refusal();
            warn!(text, "no session");
        }
        self.send_to_near(&FarMessage::Session(message)).await
    }

    fn handle_near_messages(&mut self, decoder: &mut MessageDecoder) -> Result<(), SessionError> {
        while let Some(message) = decoder.next_message()? {
            match message {
                NearMessage::Session(message) => self.far.handle(FarInput::Received(message))?,
                NearMessage::Waiting(transfer, limit) => {
                    let open = self.data.get(&transfer);
                    if let Some(open) = open.and_then(|it| it.transfer.upgrade()) {
                        open.record_peer_bottleneck(limit);
                    }
                }
            }
        }
        Ok(())
    }

    /// Executes all pending outputs of the state machine.
    async fn drain(&mut self) -> Result<(), SessionError> {
        while let Some(output) = self.far.poll() {
            match output {
                FarOutput::ToServer { line, synch } => self.send_to_server(line, synch).await?,
                FarOutput::Send(message) => self.send_message(message).await?,
                FarOutput::Connect { transfer, port } => {
                    let to = SocketAddr::new(self.server.ip(), port);
                    self.start_data(transfer, ServerLeg::Dial(to));
                }
                FarOutput::Listen(transfer) => {
                    let at = self.listen(transfer);
                    self.far.handle(FarInput::Listening(at))?;
                }
                FarOutput::Spool(request) => {
                    let reply = self.find_spool(&request).await;
                    self.far.handle(FarInput::Spooled(&reply))?;
                }
                FarOutput::Wait(wait) => {
                    self.drain_limit = drain::limit(wait);
                    self.report_first_budget().await?;
                }
                FarOutput::BeginTls => self.begin_tls().await?,
                FarOutput::Order(transfer, order) => self.order(transfer, order),
                FarOutput::Leave => self.control.close().await,
                FarOutput::Reconnect => self.reconnect(),
                FarOutput::Learned(lesson) => {
                    info!(?lesson, "learned of the server");
                    let known = &self.shared.known_servers;
                    known.learn_ftp(&self.target, lesson, Instant::now());
                }
                FarOutput::Close => self.closing = true,
            }
        }
        Ok(())
    }

    async fn send_to_server(&mut self, mut line: Vec<u8>, synch: bool) -> io::Result<()> {
        let command = Command::parse(&line);
        debug!(%command, "to the server");
        if !PRECEDES_DATA.contains(&command.verb()) {
            // The client has requested a spool, but has not started the upload.
            self.spool = None;
        }
        // Urgent data do not exist under TLS.
        let clear = self.control.connection();
        if let Some(connection) = clear.filter(|_| synch && !self.control.is_tls()) {
            socket::send_synch(connection)?;
        }
        line.extend_from_slice(b"\r\n");
        match self.control.write(&line).await {
            // The server has closed the connection, but its last lines are still unread.
            Err(error) if is_gone(&error) => Ok(()),
            result => result,
        }
    }

    async fn send_to_near(&mut self, message: &FarMessage) -> Result<(), SessionError> {
        let Some(bytes) = encode_in(self.version, message) else {
            return Ok(());
        };
        match self.send.write(bytes).await {
            // The client has disconnected and reads no replies. The session still executes the
            // client's commands.
            Err(StreamError::Stopped { .. }) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Listens for the server's data connection. Returns the listening address, or `None` if no
    /// port is free.
    fn listen(&mut self, id: TransferId) -> Option<SocketAddr> {
        let listener = socket::listen(self.local.ip().to_canonical(), 0);
        match listener.and_then(|l| Ok((l.local_addr()?, l))) {
            Ok((at, listener)) => {
                let server = self.server.ip();
                self.start_data(id, ServerLeg::Accept(listener.into(), server));
                Some(at)
            }
            Err(error) => {
                warn!(%error, "no port for a data connection");
                None
            }
        }
    }

    /// Selects the spool from which the next upload reads its bytes. Returns the reply to the
    /// client.
    async fn find_spool(&mut self, request: &SpoolRequest) -> String {
        // If a spool was selected for an upload that never started, that spool loses its reader.
        self.spool = None;
        let Some(spools) = &self.shared.spools else {
            return "502 gateway: there is no spool here".to_owned();
        };
        match spools.open_position(self.peer, request).await {
            Ok((position, answer)) => {
                self.spool = Some(position);
                answer.to_string()
            }
            Err(error) => error.to_string(),
        }
    }

    fn start_data(&mut self, id: TransferId, leg: ServerLeg) {
        let (name, peer) = (self.target.to_string(), self.shared.peer_name(self.peer));
        let transfer = self
            .shared
            .registry
            .transfer("ftp", false, self.session, peer, "", &name);
        let spool = self.spool.take();
        let (server, opened) = (leg.server(), Instant::now());
        let drain = match &spool {
            // No client waits until the server has read the bytes of a spool.
            Some(_) => DrainBudget::unlimited(),
            None => self.new_drain(server),
        };
        let budget_bytes = drain.budget_bytes();
        let (grants, granted) = watch::channel(Grant {
            accepted_bytes: 0,
            budget_bytes,
        });
        let (orders, ordered) = mpsc::unbounded_channel();
        let (sender, stream) = oneshot::channel();
        let open = Arc::downgrade(&transfer);
        let session = SessionKey {
            peer: self.peer,
            is_near: false,
            session: self.session,
        };
        let key = ReferenceKey {
            session,
            transfer: id,
        };
        let stream_coding = self
            .shared
            .stream_coding(self.coding.as_ref(), key, self.send.key());
        let truncation = self.tls.is_some().then(|| {
            let (truncations, link) = (self.shared.truncations.clone(), self.shared.link.clone());
            let beside = self.send.key();
            Arc::new(Truncation::new(truncations, link, session, beside, id))
        });
        let events = self.events.clone();
        let setup = FarDataSetup {
            is_accepted: leg.is_accepted(),
            has_tls: self.tls.is_some(),
            stall_timeout: self.shared.settings.limits.stall_timeout,
        };
        let parts = PumpParts {
            machine: FarData::new(setup),
            stream: StreamSource::Awaited(stream),
            connect: Box::pin(data::connect(leg, self.local.ip())),
            secure: self.tls.clone().map(|tls| self.secure(tls)),
            stream_coding,
            flush_delay: FlushDelay::File,
            spool,
            orders: ordered,
            // The session may have ended. The event is then not needed.
            on_event: Box::new(move |event| {
                let _ = events.send((id, event));
            }),
            truncation,
            transfer: transfer.clone(),
            grants: Grants {
                to_link: None,
                from_link: Some(granted),
            },
        };
        let drain_guard = self.shared.drain_guard.upgrade();
        let run = async move {
            match pump::run(parts).await {
                Ok(()) => {
                    transfer.mark_completed();
                    debug!(transfer = id.0, "data connection complete");
                }
                Err(why) => info!(transfer = id.0, why, "data connection broken"),
            }
            drop((transfer, drain_guard));
        };
        tokio::spawn(run.in_current_span());
        self.latest = self.latest.max(id);
        self.data.insert(
            id,
            DataConnection {
                orders,
                stream: Some(sender),
                server,
                transfer: open,
                opened,
                drain,
                observed: opened,
                grants,
            },
        );
        if let Some(stream) = self.early.remove(&id) {
            self.pair(stream);
        }
    }

    fn secure(&self, tls: Arc<Connector>) -> SecureLeg {
        let name = self.target.host.to_string();
        Box::new(move |tcp| -> BoxedFuture<_> {
            Box::pin(async move {
                let connected = tls.connect(tcp, &name, ConnectionKind::Data).await;
                connected.map_err(|error| DataInput::NotSecured(error.to_string()))
            })
        })
    }

    fn pair(&mut self, data: DataStream) {
        let id = data.transfer;
        let open = self.data.get_mut(&id);
        match open.and_then(|open| open.stream.take()) {
            Some(sender) => {
                let _ = sender.send(data.stream);
            }
            // The data connection is over. Dropping the stream resets it.
            None if id <= self.latest => {}
            None => {
                self.early.insert(id, data);
                // If the server has refused a PASV, the stream for its data connection remains
                // here.
                if self.early.len() > EARLY_MAX {
                    self.early.pop_first();
                }
            }
        }
    }

    /// Resets all open data connections, so that no incomplete transfer appears complete.
    fn abort_all(&self) {
        for data in self.data.values() {
            let _ = data.orders.send(FarDataOrder::Abort { grace: false });
        }
    }

    fn order(&mut self, id: TransferId, order: FarDataOrder) {
        if matches!(order, FarDataOrder::Abort { .. }) {
            self.early.remove(&id);
        }
        if let Some(data) = self.data.get(&id) {
            // A data connection that has ended needs no order.
            let _ = data.orders.send(order);
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Maximum number of streams that wait for their data connection. The limit equals the number of
/// commands that a client may pipeline.
const EARLY_MAX: usize = PIPELINED_MAX;

/// Commands that the server may receive between a request for a spool and the data connection. Any
/// other command cancels the request.
const PRECEDES_DATA: [&str; 6] = ["PASV", "EPSV", "TYPE", "REST", "PBSZ", "PROT"];
