//! One client's control connection: drives [`ftp::session::near`] over a socket and link streams.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use ftp::{
    command::Command,
    line::{COMMAND_MAX, Line},
    logon::Logon,
    session::{
        CommandId, TransferId,
        near::{ClientTls, DataEvent, FrontDoor, Input, NearSession, Order, Output, Setup},
    },
};
use link::{Class, PeerId, RecvStream, SendStream, StreamError};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, Interval, interval_at, sleep_until, timeout},
};
use tracing::{Instrument, debug, info, warn};

use super::{
    data::{ClientLeg, DataConnection, Event, Orders},
    direct,
};
use crate::{
    config::{DoorTls, FtpDoor},
    control::Control,
    intercept,
    shared::{ReachError, Shared},
    socket,
    status::Transfer,
    target::{Endpoint, Host},
    tls::{Acceptor, Kind, Leg},
    wire::{Decoder, FarMessage, Hello, NearMessage, Service, WireError, encode, reset},
};

/// A front door as its sessions see it.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) config: FtpDoor,
    /// Who takes TLS handshakes, where there is TLS.
    pub(super) tls: Option<Arc<Acceptor>>,
}

/// Serves one client until it or its server leaves.
pub(super) async fn serve(
    stream: TcpStream,
    client: SocketAddr,
    number: u64,
    door: Arc<Door>,
    shared: Arc<Shared>,
) {
    if let Err(error) = run(stream, client, number, door, shared).await {
        debug!(%error, "the client's control connection broke");
    }
}

async fn run(
    stream: TcpStream,
    client: SocketAddr,
    number: u64,
    door: Arc<Door>,
    shared: Arc<Shared>,
) -> io::Result<()> {
    socket::tune_control(&stream, true)?;
    let local = stream.local_addr()?;
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let tls = match &door.config.tls {
        DoorTls::Implicit(_) => ClientTls::Implicit,
        DoorTls::Explicit(_) => ClientTls::Explicit,
        DoorTls::Off => ClientTls::Off,
    };
    let leg = match (tls, &door.tls) {
        (ClientTls::Implicit, Some(tls)) => tls.accept(stream, Kind::Control).await?,
        _ => Leg::plain(stream),
    };
    let control = Control::new(leg, COMMAND_MAX);
    let target = door.config.target_of(local);
    if door.config.transparent && target.is_none() {
        info!("a client that was not intercepted");
        control.tcp().map(socket::mark_abort);
        return Ok(());
    }
    let front = if target.is_some() {
        FrontDoor::Fixed
    } else {
        FrontDoor::Logon
    };
    let (events, from_data) = mpsc::channel(EVENTS_MAX);
    let mut session = Session {
        shared,
        client,
        local,
        number,
        control,
        near: NearSession::new(Setup {
            front,
            mode: door.config.mode,
            tls,
            local: local.ip(),
            client: client.ip(),
        }),
        far: None,
        unheard: None,
        streams: HashMap::new(),
        data: BTreeMap::new(),
        events,
        logon_since: Instant::now(),
        closing: false,
        has_spoken: false,
        is_passing: false,
        door,
    };
    if let Some(target) = target
        && let Err(error) = session.connect(target, None).await
    {
        session.not_reached(&error);
    }
    session.serve(from_data).await?;
    if session.is_passing
        && let Some(stream) = session.control.into_plain()
    {
        tokio::select! {
            () = direct::relay(stream, local) => {}
            () = session.shared.cut_short() => {}
        }
    }
    Ok(())
}

/// The far half of the session.
struct Far {
    peer: PeerId,
    session: u64,
    target: Endpoint,
    send: SendStream,
    recv: RecvStream,
    decoder: Decoder,
}

struct Data {
    orders: watch::Sender<Orders>,
    task: JoinHandle<()>,
    /// The connection itself keeps it, so that its end counts.
    transfer: Weak<Transfer>,
}

struct Session {
    shared: Arc<Shared>,
    door: Arc<Door>,
    client: SocketAddr,
    /// The address that the client connected to.
    local: SocketAddr,
    number: u64,
    control: Control,
    near: NearSession,
    far: Option<Far>,
    /// Ticks for the far half's peer until that has said something.
    unheard: Option<(PeerId, Interval)>,
    /// Link streams of data connections that the server has not announced yet.
    streams: HashMap<TransferId, (SendStream, RecvStream)>,
    data: BTreeMap<TransferId, Data>,
    events: mpsc::Sender<(TransferId, Event)>,
    /// Since when the client may log in.
    logon_since: Instant,
    closing: bool,
    /// The client has sent something.
    has_spoken: bool,
    /// The client goes to its server directly.
    is_passing: bool,
}

/// Why the far half ended.
#[derive(Debug, thiserror::Error)]
enum FarEnd {
    #[error("the link to peer {peer} was lost: {error}")]
    Link { peer: String, error: StreamError },
    #[error("peer {peer} broke the protocol: {error}")]
    Protocol { peer: String, error: WireError },
    #[error("ended")]
    Orderly,
}

impl Session {
    async fn serve(
        &mut self,
        mut from_data: mpsc::Receiver<(TransferId, Event)>,
    ) -> io::Result<()> {
        let shared = self.shared.clone();
        let limits = shared.config.limits;
        let mut active = Instant::now();
        self.drain().await;
        while !self.closing && !self.is_passing {
            if self.near.wants_client()
                && let Some(line) = self.control.next_line()
            {
                match line {
                    Line::Complete(line) => {
                        debug!(command = %Command::parse(&line), "client");
                        self.near.handle(Input::ClientLine(&line));
                    }
                    Line::TooLong => self.near.handle(Input::ClientLineTooLong),
                }
                self.drain().await;
                continue;
            }
            let (until, why) = match self.near.is_logged_in() {
                true => (
                    active + limits.idle_timeout,
                    "nothing was asked for too long",
                ),
                false => (self.logon_since + LOGIN_PATIENCE, "no login in time"),
            };
            let is_waiting =
                self.near.is_idle() || !self.near.is_logged_in() && !self.near.is_transferring();
            tokio::select! {
                () = sleep_until(until), if is_waiting => {
                    self.near.handle(Input::LimitReached(why));
                    self.drain().await;
                    continue;
                }
                read = self.control.read(), if self.near.wants_client() => {
                    self.has_spoken = true;
                    if !matches!(read, Ok(true)) {
                        self.near.handle(Input::ClientClosed);
                    }
                }
                peer = unheard(&mut self.unheard) => {
                    self.check_unheard(peer);
                }
                message = next_message(&mut self.far, &self.shared), if self.near.wants_far() => {
                    self.far_said(message);
                }
                Some((id, event)) = from_data.recv() => self.data_said(id, event),
                () = shared.cut_short() => {
                    self.near.handle(Input::LinkLost("this gateway is shutting down"));
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

    /// A peer that dies may be found out only after a stream to it was opened.
    fn check_unheard(&mut self, peer: PeerId) {
        if let Some(error) = self.shared.silence(peer) {
            self.far = None;
            self.unheard = None;
            self.shared.registry.refused();
            warn!(%error, "the far side says nothing");
            self.not_reached(&error);
        }
    }

    /// The peer is not there. A client that was intercepted may pass if nothing was said yet.
    fn not_reached(&mut self, error: &ReachError) {
        let is_down = matches!(
            error,
            ReachError::PeerDown { .. } | ReachError::NotAtOnce(_)
        );
        if is_down && self.door.config.transparent && !self.has_spoken && !self.control.is_tls() {
            self.is_passing = true;
        } else {
            self.near.handle(Input::Refused {
                code: 421,
                text: &error.to_string(),
            });
        }
    }

    fn far_said(&mut self, message: Result<FarMessage, FarEnd>) {
        self.unheard = None;
        match message {
            Ok(FarMessage::Reply { tag, line }) => {
                self.near.handle(Input::FarReply { tag, line: &line });
            }
            Ok(FarMessage::Taken) => self.near.handle(Input::Taken),
            Ok(FarMessage::DataReady(id)) => self.near.handle(Input::DataReady(id)),
            Ok(FarMessage::Foreseen {
                subject,
                answer,
                last,
            }) => self.near.handle(Input::Foreseen {
                subject,
                answer: answer.as_deref(),
                last,
            }),
            Ok(FarMessage::Refused { code, text }) => {
                self.shared.registry.refused();
                let peer = self.far.take().map(|far| far.peer);
                let peer = peer.map_or("?", |peer| self.shared.peer_name(peer));
                warn!(peer, code, text, "refused");
                let text = format!("{text} (says peer {peer})");
                self.near.handle(Input::Refused { code, text: &text });
            }
            Ok(FarMessage::ServerClosed) | Err(FarEnd::Orderly) => {
                self.leave_server();
                self.near.handle(Input::ServerClosed);
            }
            Ok(FarMessage::Waiting(transfer, limit)) => {
                if let Some(open) = self
                    .data
                    .get(&transfer)
                    .and_then(|data| data.transfer.upgrade())
                {
                    open.told(limit);
                }
            }
            Err(end) => {
                warn!(%end, "session lost");
                self.far = None;
                self.near.handle(Input::LinkLost(&end.to_string()));
            }
        }
    }

    fn data_said(&mut self, id: TransferId, event: Event) {
        let event = match &event {
            Event::ClientEnded => DataEvent::ClientEnded,
            Event::Delivered => DataEvent::Delivered,
            Event::Failed(why) => DataEvent::Failed(why),
            Event::Expired => DataEvent::Expired,
            Event::NotConnected(why) => DataEvent::NotConnected(why),
        };
        self.near.handle(Input::Data(id, event));
    }

    /// Does what the state machine asks for.
    async fn drain(&mut self) {
        while let Some(output) = self.near.poll() {
            match output {
                Output::ToClient(line) => {
                    let written = timeout(REPLY_PATIENCE, self.control.write(&line)).await;
                    if !matches!(written, Ok(Ok(()))) {
                        debug!(?written, "cannot reply");
                        self.near.handle(Input::ClientClosed);
                    }
                }
                Output::Connect { id, logon } => self.log_on(id, logon).await,
                Output::Command {
                    id,
                    line,
                    synch,
                    answered,
                } => {
                    self.tell_far(&NearMessage::Command {
                        id,
                        synch,
                        answered,
                        line,
                    })
                    .await;
                }
                Output::OpenData {
                    id,
                    transfer,
                    answered,
                } => {
                    if self.open_data(transfer).await {
                        self.tell_far(&NearMessage::Data {
                            id,
                            transfer,
                            answered,
                        })
                        .await;
                    } else {
                        self.near.handle(Input::NoData(transfer));
                    }
                }
                Output::BeginTls => self.begin_tls().await,
                Output::Listen {
                    transfer,
                    is_private,
                } => self.listen(transfer, is_private),
                Output::Dial {
                    transfer,
                    at,
                    is_private,
                } => self.start_data(transfer, ClientLeg::Dial(at), is_private),
                Output::Order(transfer, order) => self.order(transfer, order).await,
                Output::LoginFailed => {
                    if let Err(reached) = self.shared.usage.login_failed(self.client.ip()) {
                        warn!(%reached, "login refused");
                        self.near.handle(Input::LimitReached(&reached.to_string()));
                    }
                }
                Output::LeaveServer => self.leave_server(),
                Output::Close => self.closing = true,
            }
        }
    }

    async fn begin_tls(&mut self) {
        let Some(tls) = self.door.tls.clone() else {
            return self.near.handle(Input::ClientClosed);
        };
        let handshake = async |tcp| tls.accept(tcp, Kind::Control).await;
        match self.control.begin_tls(handshake).await {
            Ok(()) => self.near.handle(Input::TlsBegun),
            Err(error) => {
                info!(%error, "no TLS with the client");
                self.near.handle(Input::ClientClosed);
            }
        }
    }

    async fn log_on(&mut self, id: CommandId, logon: Logon) {
        self.leave_server();
        self.logon_since = Instant::now();
        let mut line = b"USER ".to_vec();
        line.extend_from_slice(&logon.user);
        let Ok(host) = Host::parse(&logon.server.host) else {
            self.shared.registry.refused();
            let text = format!(
                "{} is not allowed: neither an address in its standard form nor a name",
                ftp::command::escape(logon.server.host.as_bytes())
            );
            return self.near.handle(Input::Refused {
                code: 530,
                text: &text,
            });
        };
        let target = Endpoint {
            host,
            port: logon.server.port,
        };
        if let Err(error) = self.connect(target, Some((id, line))).await {
            let code = if matches!(error, ReachError::NoPeer(_)) {
                530
            } else {
                421
            };
            self.near.handle(Input::Refused {
                code,
                text: &error.to_string(),
            });
        }
    }

    async fn connect(
        &mut self,
        target: Endpoint,
        logon: Option<(CommandId, Vec<u8>)>,
    ) -> Result<(), ReachError> {
        let session = self.shared.session_number();
        let service = Service::FtpSession {
            session,
            target: target.clone(),
            logon,
            mode: self.door.config.mode,
            server_data: self.door.config.server_data,
            tls: self.door.config.server_tls.clone(),
        };
        let reach = self
            .shared
            .reach(&target.host, self.door.config.via, Class::Control, service);
        let reached = if self.door.config.transparent {
            let late = |_| Err(ReachError::NotAtOnce(target.host.clone()));
            timeout(PASS_PATIENCE, reach).await.unwrap_or_else(late)
        } else {
            reach.await
        };
        let (peer, send, recv) = reached.inspect_err(|error| {
            self.shared.registry.refused();
            warn!(%target, %error, "not reached");
        })?;
        info!(%target, peer = self.shared.peer_name(peer), "client connected");
        let decoder = Decoder::default();
        self.unheard = Some((
            peer,
            if self.door.config.transparent {
                interval_at(Instant::now() + PASS_CHECK, PASS_CHECK)
            } else {
                interval_at(Instant::now() + SILENCE_MIN, SILENCE_CHECK)
            },
        ));
        self.far = Some(Far {
            peer,
            session,
            target,
            send,
            recv,
            decoder,
        });
        Ok(())
    }

    async fn tell_far(&mut self, message: &NearMessage) {
        let Some(far) = &mut self.far else { return };
        if let Err(error) = far.send.write(encode(message)).await {
            // The receiving half reports the same, with the right consequences.
            debug!(%error, "cannot send to the far side");
        }
    }

    async fn open_data(&mut self, transfer: TransferId) -> bool {
        let Some(far) = &self.far else { return false };
        if self.shared.registry.door_transfers_open() >= self.shared.config.limits.transfers_max {
            warn!("too many transfers");
            return false;
        }
        let service = Service::FtpData {
            session: far.session,
            transfer,
        };
        match self.shared.open(far.peer, Class::Bulk).await {
            Ok((mut send, recv)) => {
                let hello = encode(&Hello { service });
                let written = send.write(hello).await.is_ok();
                self.streams.insert(transfer, (send, recv));
                written
            }
            Err(error) => {
                warn!(%error, "no stream for a data connection");
                false
            }
        }
    }

    fn listen(&mut self, id: TransferId, is_private: bool) {
        let bound = bind(self.local.ip(), &self.door.config);
        let (listener, port) = match bound.and_then(|l| Ok((l.local_addr()?.port(), l))) {
            Ok((port, listener)) => (listener, port),
            Err(error) => {
                warn!(%error, "no port for a data connection");
                return self.near.handle(Input::NoData(id));
            }
        };
        self.start_data(id, ClientLeg::Accept(listener), is_private);
        let ip = self.door.config.external_address.unwrap_or(self.local.ip());
        self.near.handle(Input::Listening {
            transfer: id,
            at: SocketAddr::new(ip, port),
        });
    }

    fn start_data(&mut self, id: TransferId, leg: ClientLeg, is_private: bool) {
        let (Some((send, recv)), Some(far)) = (self.streams.remove(&id), &self.far) else {
            return self.near.handle(Input::NoData(id));
        };
        let transfer = self.shared.registry.transfer(
            "ftp",
            true,
            self.number,
            self.shared.peer_name(far.peer),
            &self.client.to_string(),
            &far.target.to_string(),
        );
        let (orders, ordered) = watch::channel(Orders::default());
        let open = Arc::downgrade(&transfer);
        let connection = DataConnection {
            id,
            leg: Some(leg),
            tls: self.door.tls.clone().filter(|_| is_private),
            stall_timeout: self.shared.config.limits.stall_timeout,
            local: self.local.ip(),
            transparent: self.door.config.transparent,
            client: self.client.ip(),
            send,
            recv,
            orders: ordered,
            events: self.events.clone(),
            transfer,
        };
        let alive = self.shared.alive.upgrade();
        let run = async move {
            connection.run().await;
            drop(alive);
        };
        let task = tokio::spawn(run.in_current_span());
        self.data.retain(|_, data| !data.task.is_finished());
        self.data.insert(
            id,
            Data {
                orders,
                task,
                transfer: open,
            },
        );
    }

    async fn order(&mut self, id: TransferId, order: Order) {
        if order == Order::Kill {
            if let Some((mut send, mut recv)) = self.streams.remove(&id) {
                send.reset(reset::ABORTED);
                recv.stop(reset::ABORTED);
            }
            if let Some(data) = self.data.remove(&id) {
                data.orders.send_modify(|orders| orders.add(order));
                // The reset must be out before the reply that tells of it.
                let _ = timeout(KILL_PATIENCE, data.task).await;
            }
            self.tell_far(&NearMessage::Abandon(id)).await;
        } else if let Some(data) = self.data.get(&id) {
            data.orders.send_modify(|orders| orders.add(order));
        }
    }

    /// Ends the far half in an orderly way, and lets what is on its way arrive.
    fn leave_server(&mut self) {
        let Some(mut far) = self.far.take() else {
            return;
        };
        far.send.finish();
        let alive = self.shared.alive.upgrade();
        tokio::spawn(async move {
            let rest = async { while matches!(far.recv.read().await, Ok(Some(_))) {} };
            let _ = timeout(LEAVE_PATIENCE, rest).await;
            drop(alive);
        });
    }

    /// Closes the control connection so that the client can read the last reply.
    async fn close(&mut self) {
        self.control.shut_down().await;
        let _ = timeout(CLOSE_PATIENCE, self.control.read_out()).await;
        info!("client gone");
    }
}

/// Resolves now and then while the far half has not said a word.
async fn unheard(unheard: &mut Option<(PeerId, Interval)>) -> PeerId {
    match unheard {
        Some((peer, ticks)) => {
            ticks.tick().await;
            *peer
        }
        None => std::future::pending().await,
    }
}

/// The next message of the far half; never, if there is none.
async fn next_message(far: &mut Option<Far>, shared: &Shared) -> Result<FarMessage, FarEnd> {
    let Some(far) = far else {
        return std::future::pending().await;
    };
    let peer = || shared.peer_name(far.peer).to_owned();
    loop {
        match far.decoder.next_message() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(error) => {
                return Err(FarEnd::Protocol {
                    peer: peer(),
                    error,
                });
            }
        }
        match far.recv.read().await {
            Ok(Some(bytes)) => far.decoder.push(&bytes),
            Ok(None) if far.decoder.is_empty() => return Err(FarEnd::Orderly),
            Ok(None) => {
                return Err(FarEnd::Protocol {
                    peer: peer(),
                    error: WireError::Truncated,
                });
            }
            Err(error) => {
                return Err(FarEnd::Link {
                    peer: peer(),
                    error,
                });
            }
        }
    }
}

/// A listener for one data connection, on the address that the client knows.
fn bind(ip: IpAddr, door: &FtpDoor) -> io::Result<TcpListener> {
    if door.transparent {
        return intercept::socket::listen_for_data(ip);
    }
    let listen = |port| socket::listen(ip, port);
    match &door.passive_ports {
        None => listen(0),
        Some(ports) => {
            // Starting anywhere keeps the next port from being guessed, and a port in TIME_WAIT
            // from being tried first each time.
            let count = ports.len();
            let start = std::collections::hash_map::RandomState::new();
            let start = std::hash::BuildHasher::hash_one(&start, count) as usize % count;
            let mut last = Err(io::ErrorKind::AddrInUse.into());
            for offset in 0..count {
                let port = ports.start() + ((start + offset) % count) as u16;
                last = listen(port);
                if last.is_ok() {
                    break;
                }
            }
            last
        }
    }
}

/// Time for a client to take a reply. It sends commands, so it should read.
const REPLY_PATIENCE: Duration = Duration::from_secs(300);

/// Time for a client to log in: people type.
const LOGIN_PATIENCE: Duration = Duration::from_secs(300);

/// Time for the far half's first word, after which a peer that is not up counts as down.
const SILENCE_MIN: Duration = Duration::from_secs(3);
const SILENCE_CHECK: Duration = Duration::from_secs(1);

/// A client that may pass does not have to wait for that, nor for a peer that is silent to come back.
const PASS_PATIENCE: Duration = Duration::from_millis(300);
const PASS_CHECK: Duration = Duration::from_millis(50);

/// Events of data connections that wait for the session.
const EVENTS_MAX: usize = 16;

/// A killed data connection resets its socket at once.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// Time for the far half to end after the client has left: a long upload may have to drain.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3600);

/// Time for the client to close after the last reply.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
