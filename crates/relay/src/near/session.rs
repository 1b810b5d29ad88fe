//! The near gateway's half of an FTP session. The module runs the state machine
//! [`ftp::session::near`] between the client's control connection and link streams.

mod data_connections;
mod far_half;
mod transfers;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use ftp::{
    command::Command,
    line::{COMMAND_MAX, SplitLine},
    session::{
        TransferId,
        data::near::NearDataEvent,
        near::{
            ClientTlsMode, HALF_CLOSED_TIMEOUT, NearInput, NearOutput, NearSession, NearSetup,
            ServerSource,
        },
    },
};
use link::{PeerId, RecvStream, SendStream};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout},
};
use tracing::{debug, info, warn};

use self::{
    data_connections::DataConnection,
    far_half::{FarHalf, REPORT_INTERVAL, next_message, next_silence_check},
};
use super::{bypass, data::ClientLeg, named_target::without_target};
use crate::{
    control_connection::ControlConnection,
    drain,
    failed_logins::log_failed_login,
    gateway_context::GatewayContext,
    settings::FtpListener,
    transfer_log::TransferType,
    wire::{Grant, NearMessage},
};
use net::{
    Connection,
    pipe::PipeNetwork,
    socket,
    tls::{Acceptor, ConnectionKind, Leg},
};

/// Listener through which the client of a session has connected.
#[derive(Debug)]
pub(super) struct SessionListener {
    pub(super) config: Arc<FtpListener>,
    /// Address of the listener.
    pub(super) address: SocketAddr,
    /// TLS acceptor of the session. `None` if the listener does not use TLS.
    pub(super) tls: Option<Arc<Acceptor>>,
}

/// Serves one client until the client or its server disconnects.
pub(super) async fn serve(
    connection: Connection,
    client: SocketAddr,
    number: u64,
    listener: Arc<SessionListener>,
    shared: Arc<GatewayContext>,
) {
    if let Err(error) = run(connection, client, number, listener, shared).await {
        debug!(%error, "the client's control connection broke");
    }
}

async fn run(
    connection: Connection,
    client: SocketAddr,
    number: u64,
    listener: Arc<SessionListener>,
    shared: Arc<GatewayContext>,
) -> io::Result<()> {
    socket::tune_control(&connection, true)?;
    let local = connection.local_addr()?;
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let network = connection.network().cloned();
    let tls = listener.config.client_tls();
    let leg = match (tls, &listener.tls) {
        (ClientTlsMode::Implicit { .. }, Some(tls)) => {
            let accepted = tls.accept(connection, ConnectionKind::Control).await;
            accepted.inspect_err(|error| info!(%error, "no TLS with the client"))?
        }
        _ => Leg::plain(connection),
    };
    let control = ControlConnection::new(leg, COMMAND_MAX);
    let target = listener.config.target_of(local);
    if listener.config.transparent && target.is_none() {
        info!("a client that was not intercepted");
        control.connection().map(socket::mark_abort);
        return Ok(());
    }
    let server_source = if target.is_some() {
        ServerSource::Fixed
    } else {
        ServerSource::Logon
    };
    let (events, from_data) = mpsc::unbounded_channel();
    let mut session = Session {
        shared,
        client,
        local,
        network,
        number,
        control,
        near: NearSession::new(NearSetup {
            server_source,
            mode: listener.config.mode,
            tls,
            local: local.ip(),
            client: client.ip(),
        }),
        far: None,
        silence_check: None,
        streams: HashMap::new(),
        data: BTreeMap::new(),
        grants: BTreeMap::new(),
        first_budget_bytes: drain::first_budget_bytes(drain::LIMIT, Duration::ZERO, None),
        events,
        logon_since: Instant::now(),
        closing: false,
        has_spoken: false,
        is_passing: false,
        transfer_type: TransferType::default(),
        begins_inside: false,
        listener,
    };
    if let Some(target) = target
        && let Err(error) = session.connect(target, None).await
    {
        session.handle_unreachable(&error);
    }
    session.serve(from_data).await?;
    if session.is_passing
        && let Some(stream) = session.control.into_plain().and_then(Connection::into_tcp)
    {
        tokio::select! {
            () = bypass::relay(stream, local) => {}
            () = session.shared.wait_for_abort() => {}
        }
    }
    Ok(())
}

struct Session {
    shared: Arc<GatewayContext>,
    listener: Arc<SessionListener>,
    client: SocketAddr,
    /// Local address of the client's control connection.
    local: SocketAddr,
    /// Network of in-process pipes to which the client belongs. Data connections use the same
    /// network. `None` for a TCP client.
    network: Option<PipeNetwork>,
    number: u64,
    control: ControlConnection,
    near: NearSession,
    far: Option<FarHalf>,
    /// Timer that checks whether the peer is up, until the first message from the peer arrives.
    silence_check: Option<(PeerId, Interval)>,
    /// Link streams for data connections. The server has not confirmed these data connections yet.
    streams: HashMap<TransferId, (SendStream, RecvStream)>,
    data: BTreeMap<TransferId, DataConnection>,
    /// For each data connection, the sender of the latest grant to its pump. A grant limits the
    /// bytes in flight of an upload.
    grants: BTreeMap<TransferId, watch::Sender<Grant>>,
    /// Budget of an upload before its first grant, in bytes.
    first_budget_bytes: u64,
    events: mpsc::UnboundedSender<(TransferId, NearDataEvent)>,
    /// Start of the time limit for the client's log-in.
    logon_since: Instant,
    closing: bool,
    /// Whether the client has sent any bytes.
    has_spoken: bool,
    /// Whether the gateway relays the client directly to its server, without the link.
    is_passing: bool,
    /// Transfer type that the client has requested last.
    transfer_type: TransferType,
    /// Whether the next transfer starts at an offset other than zero.
    begins_inside: bool,
}

impl Session {
    async fn serve(
        &mut self,
        mut from_data: mpsc::UnboundedReceiver<(TransferId, NearDataEvent)>,
    ) -> io::Result<()> {
        let shared = self.shared.clone();
        let limits = shared.settings.limits;
        let mut active = Instant::now();
        let mut half_closed_at = active;
        let mut ticks = interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.drain().await;
        while !self.closing && !self.is_passing {
            if self.near.wants_client()
                && let Some(line) = self.control.next_line()
            {
                match line {
                    SplitLine::Complete(line) => {
                        let target = || self.listener.config.target_of(self.local);
                        let line = without_target(&line, target);
                        debug!(command = %Command::parse(&line), "client");
                        self.record_command(&Command::parse(&line));
                        self.near.handle(NearInput::ClientLine(&line));
                    }
                    SplitLine::TooLong => self.near.handle(NearInput::ClientLineTooLong),
                }
                self.drain().await;
                continue;
            }
            let (until, why) = match self.near.is_logged_in() {
                true => (active + limits.idle_timeout, "no command for too long"),
                false => (self.logon_since + limits.login_timeout, "no login in time"),
            };
            let is_waiting =
                self.near.is_idle() || !self.near.is_logged_in() && !self.near.is_transferring();
            tokio::select! {
                () = sleep_until(until), if is_waiting => {
                    self.near.handle(NearInput::LimitReached(why));
                    self.drain().await;
                    continue;
                }
                // RFC 959: the end of the control connection aborts a running transfer.
                read = self.control.read_if(
                    self.near.wants_client(),
                    self.near.is_transferring() && !self.near.is_half_closed(),
                ) => {
                    self.has_spoken = true;
                    match read {
                        Ok(true) => {}
                        Ok(false) => {
                            half_closed_at = Instant::now();
                            self.near.handle(NearInput::ClientEnded);
                        }
                        Err(_) => self.near.handle(NearInput::ClientClosed),
                    }
                }
                () = sleep_until(half_closed_at + HALF_CLOSED_TIMEOUT), if self.near.is_half_closed() && !self.near.is_transferring() => {
                    self.near.handle(NearInput::LimitReached("the server has not answered in time"));
                }
                peer = next_silence_check(&mut self.silence_check) => {
                    self.check_silence(peer);
                }
                message = next_message(&mut self.far, &self.shared), if self.near.wants_far() => {
                    self.handle_far_message(message).await;
                }
                Some((id, event)) = from_data.recv() => self.handle_data_event(id, event),
                _ = ticks.tick(), if !self.data.is_empty() => {
                    self.report_limits().await;
                    // A report to the far gateway does not show that the client is active.
                    continue;
                }
                () = shared.wait_for_abort() => {
                    self.near.handle(NearInput::LinkLost("this gateway is shutting down"));
                }
            }
            active = Instant::now();
            self.drain().await;
        }
        if !self.is_passing {
            self.close().await;
        }
        Ok(())
    }

    /// Executes all pending outputs of the state machine.
    async fn drain(&mut self) {
        while let Some(output) = self.near.poll() {
            match output {
                NearOutput::ToClient(line) => {
                    self.record_reply(&line);
                    let written = timeout(REPLY_TIMEOUT, self.control.write(&line)).await;
                    if !matches!(written, Ok(Ok(()))) {
                        debug!(?written, "cannot reply");
                        self.near.handle(NearInput::ClientClosed);
                    }
                }
                NearOutput::Connect { id, logon } => self.log_on(id, logon).await,
                NearOutput::Send(message) => self.send_to_far(&NearMessage::Session(message)).await,
                NearOutput::OpenData { transfer, request } => {
                    if self.open_data(transfer).await {
                        self.send_to_far(&NearMessage::Session(request)).await;
                    } else {
                        self.near.handle(NearInput::NoData(transfer));
                    }
                }
                NearOutput::BeginTls => self.begin_tls().await,
                NearOutput::Listen {
                    transfer,
                    is_private,
                } => self.listen(transfer, is_private),
                NearOutput::Dial {
                    transfer,
                    at,
                    is_private,
                } => self.start_data(transfer, ClientLeg::Dial(at), is_private),
                NearOutput::Order(transfer, order) => self.order(transfer, order).await,
                NearOutput::Transferred(record) => self.transferred(record),
                NearOutput::LoginFailed => {
                    self.shared.registry.count_failed_login();
                    let server = self.far.as_ref().map(|far| far.target.to_string());
                    let user = ftp::command::escape(self.near.user());
                    log_failed_login(self.client, &server.unwrap_or_default(), &user);
                    if let Err(reached) = self.shared.usage.record_failed_login(self.client.ip()) {
                        warn!(%reached, "login refused");
                        self.near
                            .handle(NearInput::LimitReached(&reached.to_string()));
                    }
                }
                NearOutput::LeaveServer => self.leave_server(),
                NearOutput::Close => self.closing = true,
            }
        }
    }

    async fn begin_tls(&mut self) {
        let Some(tls) = self.listener.tls.clone() else {
            return self.near.handle(NearInput::ClientClosed);
        };
        let handshake = async |tcp| tls.accept(tcp, ConnectionKind::Control).await;
        match self.control.begin_tls(handshake).await {
            Ok(()) => self.near.handle(NearInput::TlsBegun),
            Err(error) => {
                info!(%error, "no TLS with the client");
                self.near.handle(NearInput::ClientClosed);
            }
        }
    }

    /// Closes the control connection in such a way that the client can still read the last reply.
    async fn close(&mut self) {
        self.control.shut_down().await;
        let _ = timeout(CLOSE_TIMEOUT, self.control.read_out()).await;
        info!("client gone");
    }
}

/// Time limit for writing a reply. A client that sends commands is expected to read their replies.
const REPLY_TIMEOUT: Duration = Duration::from_secs(300);

/// Time limit for the client to close the connection after the last reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
