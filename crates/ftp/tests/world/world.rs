//! A client, a pair of gateways and a server in virtual time.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use ftp::session::{
    Mode, Subject, Tag, TransferId,
    data::{
        Input as DataInput, Machine,
        far::{FarData, Setup as FarSetup},
        near::{NearData, Opening, Order, Setup as NearSetup},
    },
    far::{self, FarSession, SERVER_PATIENCE},
    near::{self, ClientTls, FrontDoor, NearSession},
};

use crate::{
    carrier::{Carrier, End},
    channel::{Channel, Rng},
    client::{Client, Conns},
    conn::Conn,
    driver::{Driver, Planted},
    server::{PORT_MIN, Server},
};

#[derive(Debug)]
enum Line {
    Text(Vec<u8>),
    Closed,
}

#[derive(Debug)]
enum ToFar {
    Output(near::Output),
    Abandon(TransferId),
    Gone,
}

#[derive(Debug)]
enum ToNear {
    Reply(Tag, Vec<u8>),
    DataReady(ftp::session::CommandId),
    Taken,
    Prefetched(Subject, Option<Vec<u8>>, bool),
    UploadEnded(TransferId, bool),
    ServerClosed,
}

/// What a session has come to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) steps: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.steps += other.steps;
    }
}

pub(crate) struct World {
    now: Duration,
    rng: Rng,
    planted: Planted,
    delay_ms: u64,
    conns: Conns,
    client: Client,
    server: Server,
    near: NearSession,
    far: FarSession,
    near_closed: bool,
    far_closed: bool,
    from_client: Channel<Line>,
    client_inbox: VecDeque<Line>,
    to_client: Channel<Line>,
    from_server: Channel<Line>,
    to_server: Channel<Line>,
    to_far: Channel<ToFar>,
    to_near: Channel<ToNear>,
    /// When the far half stops waiting for a silent server.
    silent_at: Option<Duration>,
    /// The client's data connections have TLS.
    near_tls: bool,
    /// Successes that the near half has recorded, by data connection.
    recorded: BTreeMap<u32, bool>,
    steps: u64,
    complaint: Option<String>,
    /// Says on the way what is said, as `SIEGE_TRACE` asks.
    has_trace: bool,
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

impl World {
    pub(crate) fn new(seed: u64, planted: Planted) -> Self {
        let mut rng = Rng::new(seed);
        let mode = rng.pick(&[Mode::Fast, Mode::Strict]);
        let data = rng.pick(&[far::DataWay::Passive, far::DataWay::Active]);
        let delay_ms = rng.pick(&[1, 20, 300]);
        let manner = far::Manner {
            server_is_v6: false,
            data,
            mode,
            tls: far::ServerTls::Off,
        };
        let setup = near::Setup {
            front: FrontDoor::Fixed,
            mode,
            tls: ClientTls::Off,
            local: GATEWAY,
            client: CLIENT,
        };
        Self {
            now: Duration::ZERO,
            planted,
            delay_ms,
            conns: BTreeMap::new(),
            client: Client::new(&mut rng),
            server: Server::new(&mut rng),
            near: NearSession::new(setup),
            far: FarSession::new(far::Opening::RelayGreeting, manner),
            near_closed: false,
            far_closed: false,
            from_client: Channel::new(1),
            client_inbox: VecDeque::new(),
            to_client: Channel::new(1),
            from_server: Channel::new(1),
            to_server: Channel::new(1),
            to_far: Channel::new(delay_ms),
            to_near: Channel::new(delay_ms),
            silent_at: None,
            near_tls: rng.chance(30),
            recorded: BTreeMap::new(),
            steps: 0,
            complaint: None,
            has_trace: std::env::var_os("SIEGE_TRACE").is_some(),
            rng,
        }
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Result<Outcome, String> {
        while self.complaint.is_none() {
            while self.step() {
                self.steps += 1;
                if self.steps > STEPS_MAX {
                    return Err(format!("it never rests: {}", self.state()));
                }
            }
            match self.next() {
                Some(at) if at > TIME_MAX => {
                    return Err(format!("it never ends: {}", self.state()));
                }
                Some(at) => self.now = at,
                None => break,
            }
        }
        if let Some(complaint) = self.complaint.take().or(self.client.complaint.take()) {
            return Err(format!("{complaint} at {:?}", self.now));
        }
        self.check_nothing_is_left()?;
        Ok(Outcome {
            completed: self.client.completed,
            failed: self.client.failed,
            steps: self.steps,
        })
    }

    fn state(&self) -> String {
        format!(
            "at {:?}: client {}; server {}; near closed {}, far closed {}; {:#?}",
            self.now,
            self.client.state(),
            self.server.state(),
            self.near_closed,
            self.far_closed,
            self.conns
        )
    }

    fn check_nothing_is_left(&self) -> Result<(), String> {
        if !self.client.is_gone() {
            // Who waits for a server that hangs does so directly, too.
            return if self.server.hangs() {
                Ok(())
            } else {
                Err(format!("the client waits for ever: {}", self.state()))
            };
        }
        for (id, conn) in &self.conns {
            let near = conn.near.as_ref().is_none_or(|d| d.is_done);
            let far = conn.far.as_ref().is_none_or(|d| d.is_done);
            if !near || !far {
                return Err(format!("data connection {id} is left: {conn:#?}"));
            }
        }
        for (id, succeeded) in &self.recorded {
            let Some(conn) = self.conns.get(id).filter(|_| *succeeded) else {
                continue;
            };
            let Some(near) = &conn.near else {
                return Err(format!("transfer {id} succeeded without a data connection"));
            };
            // What was discarded must not count.
            let is_upload = conn.server.read_bytes > 0 || conn.server.written_bytes == 0;
            let is_right = match is_upload {
                true => near.outbound_bytes == conn.server.read_bytes,
                false => near.inbound_bytes == conn.server.written_bytes,
            };
            if !is_right {
                return Err(format!("transfer {id} counts other bytes: {conn:#?}"));
            }
        }
        match self.near_closed && self.far_closed {
            true => Ok(()),
            false => Err(format!("a half is left: {}", self.state())),
        }
    }

    fn next(&self) -> Option<Duration> {
        let channels = [
            self.from_client.next_arrival(self.now),
            self.to_client.next_arrival(self.now),
            self.from_server.next_arrival(self.now),
            self.to_server.next_arrival(self.now),
            self.to_far.next_arrival(self.now),
            self.to_near.next_arrival(self.now),
            self.silent_at,
            self.client.next(self.now),
            self.server.next(self.now),
        ];
        let conns = self.conns.values().filter_map(|conn| conn.next(self.now));
        channels
            .into_iter()
            .flatten()
            .filter(|at| *at > self.now)
            .chain(conns)
            .min()
    }

    fn trace(&self, who: &str, line: &[u8]) {
        if self.has_trace {
            let line = String::from_utf8_lossy(line);
            eprintln!("{:>12.6} {who} {}", self.now.as_secs_f64(), line.trim_end());
        }
    }

    fn complain(&mut self, complaint: String) {
        self.complaint.get_or_insert(complaint);
    }

    /// Lets everybody do one thing. Returns whether anybody did.
    fn step(&mut self) -> bool {
        let mut has_moved = self.step_data();
        has_moved |= self.step_near();
        has_moved |= self.step_far();
        has_moved |= self.step_client();
        has_moved |= self.step_server();
        has_moved && self.complaint.is_none() && self.client.complaint.is_none()
    }

    fn step_client(&mut self) -> bool {
        let mut has_moved = false;
        match self.to_client.pop(self.now) {
            Some(Line::Text(line)) => {
                self.trace("near -> client  ", &line);
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if !self.client.is_gone() {
                    // Two round trips and a second.
                    let max = Duration::from_millis(2 * 3 * self.delay_ms + 1_000);
                    let is_smooth = self.rng.is_smooth() && !self.server.has_been_deaf();
                    self.client.abort_max = is_smooth.then_some(max);
                    self.client.line(self.now, &line, &mut self.conns);
                }
                has_moved = true;
            }
            Some(Line::Closed) => {
                if !self.client.is_gone() {
                    self.client.closed(self.now, &mut self.rng, &mut self.conns);
                }
                has_moved = true;
            }
            None => {}
        }
        has_moved |= self.client.act(self.now, &mut self.rng, &mut self.conns);
        while let Some(line) = self.client.out.pop_front() {
            has_moved = true;
            let line = Line::Text(line.into_bytes());
            self.from_client.push(self.now, &mut self.rng, line);
        }
        if std::mem::take(&mut self.client.has_left) {
            self.from_client.push(self.now, &mut self.rng, Line::Closed);
        }
        has_moved
    }

    fn step_server(&mut self) -> bool {
        let mut has_moved = false;
        let had_left = self.server.has_left;
        match self.to_server.pop(self.now) {
            Some(Line::Text(line)) if !had_left => {
                self.trace("far -> server   ", &line);
                let line = String::from_utf8_lossy(&line).into_owned();
                self.server.lines.push_back(line);
                has_moved = true;
            }
            Some(Line::Closed) if !had_left => {
                self.server.closed(self.now, &mut self.rng, &mut self.conns);
                has_moved = true;
            }
            Some(_) => has_moved = true,
            None => {}
        }
        has_moved |= self.server.act(self.now, &mut self.rng, &mut self.conns);
        while let Some(line) = self.server.out.pop_front() {
            has_moved = true;
            let line = Line::Text(line.into_bytes());
            self.from_server.push(self.now, &mut self.rng, line);
        }
        if self.server.has_left && !had_left {
            self.from_server.push(self.now, &mut self.rng, Line::Closed);
        }
        has_moved
    }

    fn step_data(&mut self) -> bool {
        let mut has_moved = false;
        let (now, rng) = (self.now, &mut self.rng);
        for (&id, conn) in &mut self.conns {
            has_moved |= conn.step(now, rng, self.planted);
            has_moved |= connect_client(now, rng, conn);
            has_moved |= connect_server(now, rng, conn, self.far_closed);
            if let Some(near) = &mut conn.near {
                for event in near.events.drain(..) {
                    has_moved = true;
                    self.near.handle(near::Input::Data(TransferId(id), event));
                }
            }
            if let Some(far) = &mut conn.far {
                for event in far.events.drain(..) {
                    has_moved = true;
                    let input = far::Input::Data(TransferId(id), event);
                    let _ = self.far.handle(input);
                    self.silent_at = None;
                }
            }
            has_moved |= check_ends(id, conn, &mut self.complaint);
        }
        has_moved
    }

    fn step_near(&mut self) -> bool {
        let mut has_moved = self.drain_near();
        if let Some(line) = self.from_client.pop(self.now) {
            self.client_inbox.push_back(line);
            has_moved = true;
        }
        let takes = self.near.wants_client()
            || self.near.is_transferring()
                && matches!(self.client_inbox.front(), Some(Line::Closed));
        if takes && let Some(line) = self.client_inbox.pop_front() {
            match line {
                Line::Text(line) => {
                    self.trace("client -> near  ", &line);
                    self.near.handle(near::Input::ClientLine(&line));
                }
                Line::Closed => self.near.handle(near::Input::ClientClosed),
            }
            self.drain_near();
            return true;
        }
        if self.near.wants_far()
            && let Some(message) = self.to_near.pop(self.now)
        {
            match message {
                ToNear::Reply(tag, line) => {
                    let line = &line;
                    self.near.handle(near::Input::FarReply { tag, line });
                }
                ToNear::DataReady(id) => self.near.handle(near::Input::DataReady(id)),
                ToNear::Taken => self.near.handle(near::Input::Taken),
                ToNear::Prefetched(subject, answer, last) => {
                    self.near.handle(near::Input::Prefetched {
                        subject,
                        answer: answer.as_deref(),
                        last,
                    });
                }
                ToNear::UploadEnded(transfer, is_whole) => self
                    .near
                    .handle(near::Input::UploadEnded { transfer, is_whole }),
                ToNear::ServerClosed => self.near.handle(near::Input::ServerClosed),
            }
            self.drain_near();
            return true;
        }
        has_moved
    }

    fn drain_near(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(output) = self.near.poll() {
            has_moved = true;
            let now = self.now;
            if self.has_trace && !matches!(output, near::Output::ToClient(_)) {
                self.trace("near            ", format!("{output:?}").as_bytes());
            }
            match output {
                near::Output::ToClient(line) => {
                    self.to_client.push(now, &mut self.rng, Line::Text(line));
                }
                near::Output::OpenData { transfer, .. } => {
                    let mut conn = Conn::new();
                    let overtakes = true;
                    conn.stream = Some(Carrier::new(self.delay_ms, 20_000, overtakes));
                    let delay = Duration::from_millis(self.delay_ms);
                    conn.stream_opens_at = Some(now + delay / 2 + self.rng.time(self.delay_ms));
                    self.conns.insert(transfer.0, conn);
                    self.to_far.push(now, &mut self.rng, ToFar::Output(output));
                }
                near::Output::Command { .. } => {
                    self.to_far.push(now, &mut self.rng, ToFar::Output(output));
                }
                near::Output::Listen { transfer, .. } => {
                    self.start_near(transfer, Opening::Accept);
                    let port = (transfer.0 + PORT_MIN) as u16;
                    let at = SocketAddr::new(GATEWAY, port);
                    self.near.handle(near::Input::Listening { transfer, at });
                }
                near::Output::Dial { transfer, .. } => self.start_near(transfer, Opening::Dial),
                near::Output::Order(transfer, order) => self.order_near(transfer, order),
                near::Output::Transferred(record) => {
                    let id = record.transfer.0;
                    if self.recorded.insert(id, record.succeeded).is_some() {
                        self.complain(format!("transfer {id} is recorded twice"));
                    }
                }
                near::Output::LeaveServer => self.to_far.push(now, &mut self.rng, ToFar::Gone),
                near::Output::Close => {
                    self.near_closed = true;
                    for near in self.conns.values_mut().filter_map(|c| c.near.as_mut()) {
                        near.has_no_session = true;
                    }
                    self.to_client.push(now, &mut self.rng, Line::Closed);
                }
                near::Output::Connect { .. }
                | near::Output::BeginTls
                | near::Output::LoginFailed => {}
            }
        }
        has_moved
    }

    fn start_near(&mut self, transfer: TransferId, opening: Opening) {
        let setup = NearSetup {
            opening,
            has_tls: self.near_tls,
            tells_truncation: false,
            stall_timeout: STALL_TIMEOUT,
        };
        if let Some(conn) = self.conns.get_mut(&transfer.0) {
            conn.client_listens = opening == Opening::Dial;
            conn.near = Some(Driver::new(NearData::new(setup), End::B, End::A));
        }
    }

    fn order_near(&mut self, transfer: TransferId, order: Order) {
        let (now, rng) = (self.now, &mut self.rng);
        if let Some(conn) = self.conns.get_mut(&transfer.0) {
            match &mut conn.near {
                // The session waits until it has been carried out.
                Some(near) if order == Order::Kill => {
                    near.machine.order(now, order);
                    conn.step(now, rng, self.planted);
                }
                Some(near) => near.orders.push(now, rng, order),
                None if order == Order::Kill => {
                    if let Some(stream) = &mut conn.stream {
                        stream.reset_lane(now, rng, End::A);
                        stream.stop(now, rng, End::A);
                    }
                }
                None => {}
            }
        }
        if order == Order::Kill {
            self.to_far.push(now, rng, ToFar::Abandon(transfer));
        }
    }

    fn step_far(&mut self) -> bool {
        let mut has_moved = self.drain_far();
        let now = self.now;
        if let Some(message) = self.to_far.pop(now) {
            self.silent_at = None;
            let handled = match message {
                ToFar::Output(near::Output::Command {
                    id,
                    line,
                    synch,
                    answered,
                }) => self.far.handle(far::Input::Command {
                    id,
                    line: &line,
                    synch,
                    answered,
                }),
                ToFar::Output(near::Output::OpenData {
                    id,
                    transfer,
                    answered,
                }) => self.far.handle(far::Input::AskData {
                    id,
                    transfer,
                    answered,
                }),
                ToFar::Output(_) => Ok(()),
                ToFar::Abandon(transfer) => self.far.handle(far::Input::Abandon(transfer)),
                ToFar::Gone => self.far.handle(far::Input::ClientGone),
            };
            if let Err(error) = handled {
                self.complain(error.to_string());
            }
            self.drain_far();
            return true;
        }
        if self.far.wants_server()
            && let Some(line) = self.from_server.pop(now)
        {
            self.silent_at = None;
            let _ = match line {
                Line::Text(line) => {
                    self.trace("server -> far   ", &line);
                    self.far.handle(far::Input::ServerLine(&line))
                }
                Line::Closed => self.far.handle(far::Input::ServerClosed),
            };
            self.drain_far();
            return true;
        }
        match self.silent_at {
            Some(at) if at <= now => {
                self.silent_at = None;
                let _ = self.far.handle(far::Input::ServerSilent);
                has_moved = true;
            }
            None if self.far.waits_only_for_server() => {
                self.silent_at = Some(now + SERVER_PATIENCE);
            }
            _ => {}
        }
        has_moved
    }

    fn drain_far(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(output) = self.far.poll() {
            has_moved = true;
            let (now, rng) = (self.now, &mut self.rng);
            match output {
                far::Output::ToServer { line, .. } => {
                    self.to_server.push(now, rng, Line::Text(line));
                }
                far::Output::Reply { tag, line } => {
                    self.to_near.push(now, rng, ToNear::Reply(tag, line));
                }
                far::Output::DataReady(id) => self.to_near.push(now, rng, ToNear::DataReady(id)),
                far::Output::Taken => self.to_near.push(now, rng, ToNear::Taken),
                far::Output::Prefetched {
                    subject,
                    answer,
                    last,
                } => {
                    let message = ToNear::Prefetched(subject, answer, last);
                    self.to_near.push(now, rng, message);
                }
                far::Output::UploadEnded { transfer, is_whole } => {
                    let message = ToNear::UploadEnded(transfer, is_whole);
                    self.to_near.push(now, rng, message);
                }
                far::Output::Listen(transfer) => {
                    self.start_far(transfer, true);
                    let port = (transfer.0 + PORT_MIN) as u16;
                    let at = SocketAddr::new(GATEWAY, port);
                    let _ = self.far.handle(far::Input::Listening(Some(at)));
                }
                far::Output::Connect { transfer, port } => {
                    let number = u32::from(port) - PORT_MIN;
                    self.server.listeners.insert(number, transfer.0);
                    self.start_far(transfer, false);
                    let delay = self.rng.time(20);
                    let is_refused = self.rng.chance(3);
                    if let Some(conn) = self.conns.get_mut(&transfer.0) {
                        conn.server_connects_at = Some((now + delay, !is_refused));
                    }
                }
                far::Output::Order(transfer, order) => {
                    let conn = self.conns.get_mut(&transfer.0);
                    if let Some(far) = conn.and_then(|conn| conn.far.as_mut()) {
                        far.orders.push(now, rng, order);
                    }
                }
                far::Output::BeginTls | far::Output::Refuse(_) => {}
                far::Output::Close => {
                    self.far_closed = true;
                    for far in self.conns.values_mut().filter_map(|c| c.far.as_mut()) {
                        far.has_no_session = true;
                    }
                    self.to_server.push(now, rng, Line::Closed);
                    self.to_near.push(now, rng, ToNear::ServerClosed);
                }
            }
        }
        has_moved
    }

    fn start_far(&mut self, transfer: TransferId, is_accepted: bool) {
        let setup = FarSetup {
            is_accepted,
            has_tls: false,
            stall_timeout: STALL_TIMEOUT,
        };
        if let Some(conn) = self.conns.get_mut(&transfer.0) {
            conn.far = Some(Driver::new(FarData::new(setup), End::A, End::B));
        }
    }
}

/// Brings the client and the near gateway together.
fn connect_client(now: Duration, rng: &mut Rng, conn: &mut Conn) -> bool {
    let Some(near) = &mut conn.near else {
        return false;
    };
    if !near.is_connecting || near.is_done {
        return false;
    }
    // A client that has asked with PORT listens.
    let is_there = match conn.client_connects_at {
        Some(at) => at <= now,
        None => conn.client_listens,
    };
    if !is_there {
        return false;
    }
    near.is_connecting = false;
    near.has_leg = true;
    conn.client_leg = Some(Carrier::new(1, 10_000, rng.chance(50)));
    near.handle(now, DataInput::Connected);
    true
}

/// Brings the far gateway and the server together, and the stream to the far gateway.
fn connect_server(now: Duration, rng: &mut Rng, conn: &mut Conn, far_closed: bool) -> bool {
    let mut has_moved = false;
    if conn.stream_opens_at.is_some_and(|at| at <= now) {
        match (&mut conn.far, &mut conn.stream) {
            (Some(far), _) => {
                conn.stream_opens_at = None;
                far.handle(now, DataInput::StreamOpened);
                has_moved = true;
            }
            // A stream of no session is reset.
            (None, Some(stream)) if far_closed => {
                conn.stream_opens_at = None;
                stream.reset_lane(now, rng, End::B);
                stream.stop(now, rng, End::B);
                has_moved = true;
            }
            _ => {}
        }
    }
    let Some(far) = &mut conn.far else {
        return has_moved;
    };
    if !far.is_connecting || far.is_done {
        return has_moved;
    }
    let is_taken = match conn.server_connects_at {
        Some((at, is_taken)) if at <= now => is_taken,
        None if conn.server_dials => true,
        _ => return has_moved,
    };
    far.is_connecting = false;
    if is_taken {
        far.has_leg = true;
        conn.server_leg = Some(Carrier::new(1, 10_000, rng.chance(50)));
        far.handle(now, DataInput::Connected);
    } else {
        far.handle(now, DataInput::NotConnected("refused".to_owned()));
    }
    true
}

/// An end that somebody sees is one that the other has written, behind as many bytes.
fn check_ends(id: u32, conn: &Conn, complaint: &mut Option<String>) -> bool {
    let (client, server) = (&conn.client, &conn.server);
    let is_false = |reader: &crate::conn::Seen, writer: &crate::conn::Seen| {
        reader.saw_end && !(writer.has_ended && reader.read_bytes == writer.written_bytes)
    };
    let upload = server.saw_end && client.written_bytes > 0 && is_false(server, client);
    let download = client.saw_end && server.written_bytes > 0 && is_false(client, server);
    if upload || download {
        complaint.get_or_insert(format!(
            "data connection {id} ends as if it were whole: client {client:?}, server {server:?}"
        ));
    }
    upload || download
}

/// Time without a byte after which data connections are reset.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// More than the sum of all bounds that a session may meet.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

const STEPS_MAX: u64 = 1_000_000;
