//! The two gateways of a simulated session. The gateways pass the events of each data connection to
//! its driver.

use std::{net::SocketAddr, time::Duration};

use ftp::session::{
    TransferId,
    data::{
        DataInput, DataMachine,
        far::{FarData, FarDataSetup},
        near::{DataOpening, NearData, NearDataOrder, NearDataSetup},
    },
    far::{self, SERVER_TIMEOUT},
    near::{self, HALF_CLOSED_TIMEOUT},
};

use crate::{
    carrier::{Carrier, End},
    channel::Rng,
    conn::Conn,
    driver::Driver,
    server::PORT_MIN,
    world::{GATEWAY, Line, World},
};

impl World {
    pub(crate) fn step_near(&mut self) -> bool {
        let mut has_moved = self.drain_near();
        match self.half_closed_until {
            _ if !self.near.is_half_closed() => self.half_closed_until = None,
            None => self.half_closed_until = Some(self.now + HALF_CLOSED_TIMEOUT),
            Some(at) if at <= self.now => {
                self.near.handle(near::NearInput::LimitReached("no answer"));
                has_moved = true;
            }
            Some(_) => {}
        }
        if let Some(line) = self.from_client.pop(self.now) {
            self.client_inbox.push_back(line);
            has_moved = true;
        }
        let takes = self.near.wants_client()
            || self.near.is_transferring()
                && matches!(self.client_inbox.front(), Some(Line::Ended))
            || matches!(self.client_inbox.front(), Some(Line::Closed));
        if takes && let Some(line) = self.client_inbox.pop_front() {
            match line {
                Line::Text(line) => {
                    self.trace("client -> near  ", &line);
                    self.near.handle(near::NearInput::ClientLine(&line));
                }
                Line::Ended => self.near.handle(near::NearInput::ClientEnded),
                Line::Closed => self.near.handle(near::NearInput::ClientClosed),
            }
            self.drain_near();
            return true;
        }
        if self.near.wants_far()
            && let Some(message) = self.to_near.pop(self.now)
        {
            self.near.handle(near::NearInput::Received(message));
            self.drain_near();
            return true;
        }
        has_moved
    }

    pub(crate) fn drain_near(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(output) = self.near.poll() {
            has_moved = true;
            let now = self.now;
            if self.has_trace && !matches!(output, near::NearOutput::ToClient(_)) {
                self.trace("near            ", format!("{output:?}").as_bytes());
            }
            match output {
                near::NearOutput::ToClient(line) => {
                    self.to_client.push(now, &mut self.rng, Line::Text(line));
                }
                near::NearOutput::OpenData { transfer, request } => {
                    let mut conn = Conn::new();
                    let overtakes = true;
                    conn.stream = Some(Carrier::new(self.delay_ms, 20_000, overtakes));
                    let delay = Duration::from_millis(self.delay_ms);
                    conn.stream_opens_at = Some(now + delay / 2 + self.rng.time(self.delay_ms));
                    self.conns.insert(transfer.0, conn);
                    self.to_far.push(now, &mut self.rng, Some(request));
                }
                near::NearOutput::Send(message) => {
                    self.to_far.push(now, &mut self.rng, Some(message));
                }
                near::NearOutput::Listen { transfer, .. } => {
                    self.start_near(transfer, DataOpening::Accept);
                    let port = (transfer.0 + PORT_MIN) as u16;
                    let at = SocketAddr::new(GATEWAY, port);
                    self.near
                        .handle(near::NearInput::Listening { transfer, at });
                }
                near::NearOutput::Dial { transfer, .. } => {
                    self.start_near(transfer, DataOpening::Dial)
                }
                near::NearOutput::Order(transfer, order) => self.order_near(transfer, order),
                near::NearOutput::Transferred(record) => {
                    let id = record.transfer.0;
                    if self.recorded.insert(id, record.succeeded).is_some() {
                        self.complain(format!("transfer {id} is recorded twice"));
                    }
                }
                near::NearOutput::LeaveServer => self.to_far.push(now, &mut self.rng, None),
                near::NearOutput::Close => {
                    self.near_closed = true;
                    for near in self.conns.values_mut().filter_map(|c| c.near.as_mut()) {
                        near.has_no_session = true;
                    }
                    self.to_client.push(now, &mut self.rng, Line::Closed);
                }
                near::NearOutput::Connect { .. }
                | near::NearOutput::BeginTls
                | near::NearOutput::LoginFailed => {}
            }
        }
        has_moved
    }

    pub(crate) fn start_near(&mut self, transfer: TransferId, opening: DataOpening) {
        let setup = NearDataSetup {
            opening,
            dials_early: self.near_dials_early,
            has_tls: self.near_tls,
            reports_truncation: false,
            stall_timeout: STALL_TIMEOUT,
        };
        if let Some(conn) = self.conns.get_mut(&transfer.0) {
            conn.client_listens = opening == DataOpening::Dial;
            conn.near = Some(Driver::new(NearData::new(setup), End::B, End::A));
        }
    }

    pub(crate) fn order_near(&mut self, transfer: TransferId, order: NearDataOrder) {
        let (now, rng) = (self.now, &mut self.rng);
        if let Some(conn) = self.conns.get_mut(&transfer.0) {
            match &mut conn.near {
                // The session waits until the order has been carried out.
                Some(near) if order == NearDataOrder::Kill => {
                    near.machine.order(now, order);
                    conn.step(now, rng, self.planted);
                }
                Some(near) => near.orders.push(now, rng, order),
                None if order == NearDataOrder::Kill => {
                    if let Some(stream) = &mut conn.stream {
                        stream.reset_lane(now, rng, End::A);
                        stream.stop(now, rng, End::A);
                    }
                }
                None => {}
            }
        }
    }

    pub(crate) fn step_far(&mut self) -> bool {
        let mut has_moved = self.drain_far();
        let now = self.now;
        if let Some(message) = self.to_far.pop(now) {
            self.silent_at = None;
            let handled = match message {
                Some(message) => self.far.handle(far::FarInput::Received(message)),
                None => self.far.handle(far::FarInput::ClientGone),
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
            match line {
                Line::Text(lines) => {
                    for line in lines.split(|b| *b == b'\n') {
                        self.trace("server -> far   ", line);
                        let _ = self.far.handle(far::FarInput::ServerLine(line));
                        self.drain_far();
                    }
                }
                Line::Ended | Line::Closed => {
                    let _ = self.far.handle(far::FarInput::ServerClosed);
                }
            }
            self.drain_far();
            return true;
        }
        has_moved |= self.wait_for_server();
        match self.silent_at {
            Some(at) if at <= now => {
                self.silent_at = None;
                let _ = self.far.handle(far::FarInput::ServerSilent);
                has_moved = true;
            }
            None if self.far.waits_only_for_server() => {
                self.silent_at = Some(now + SERVER_TIMEOUT);
            }
            _ => {}
        }
        has_moved
    }

    fn wait_for_server(&mut self) -> bool {
        let now = self.now;
        self.wait = self.far.wait().map(|wait| match self.wait {
            Some((before, since)) if before.number == wait.number => (wait, since),
            _ => (wait, now),
        });
        let is_over = self
            .wait
            .is_some_and(|(wait, since)| since + wait.time <= now);
        if is_over {
            self.trace("far waits in vain", b"");
            let _ = self.far.handle(far::FarInput::WaitTimedOut);
        }
        is_over
    }

    /// Closes the control connection to the server. The session continues.
    fn leave_server(&mut self) {
        self.from_server.clear();
        self.to_server.clear();
        self.server.left(self.now);
    }

    /// Opens another control connection to the server.
    fn reconnect(&mut self) {
        self.server.again(self.now);
        let _ = self.far.handle(far::FarInput::Reconnected);
    }

    pub(crate) fn drain_far(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(output) = self.far.poll() {
            has_moved = true;
            let (now, rng) = (self.now, &mut self.rng);
            match output {
                far::FarOutput::ToServer { line, .. } => {
                    self.to_server.push(now, rng, Line::Text(line));
                }
                far::FarOutput::Send(message) => self.to_near.push(now, rng, message),
                far::FarOutput::Listen(transfer) => {
                    self.start_far(transfer, true);
                    let port = (transfer.0 + PORT_MIN) as u16;
                    let at = SocketAddr::new(GATEWAY, port);
                    let _ = self.far.handle(far::FarInput::Listening(Some(at)));
                }
                far::FarOutput::Connect { transfer, port } => {
                    let number = u32::from(port) - PORT_MIN;
                    self.server.listeners.insert(number, transfer.0);
                    self.start_far(transfer, false);
                    let delay = self.rng.time(20);
                    let is_refused = self.rng.chance(3);
                    self.server.has_refused |= is_refused;
                    if let Some(conn) = self.conns.get_mut(&transfer.0) {
                        conn.server_connects_at = Some((now + delay, !is_refused));
                    }
                }
                far::FarOutput::Order(transfer, order) => {
                    let conn = self.conns.get_mut(&transfer.0);
                    if let Some(far) = conn.and_then(|conn| conn.far.as_mut()) {
                        far.orders.push(now, rng, order);
                    }
                }
                far::FarOutput::BeginTls => {
                    let _ = self.far.handle(far::FarInput::TlsBegun);
                }
                far::FarOutput::Leave => self.leave_server(),
                far::FarOutput::Reconnect => self.reconnect(),
                far::FarOutput::Learned(far::LearnedTrait::DislikesQuestions) => {
                    self.server.asked_no_more();
                }
                far::FarOutput::Learned(_) | far::FarOutput::Spool(_) | far::FarOutput::Wait(_) => {
                }
                far::FarOutput::Close => {
                    self.far_closed = true;
                    for far in self.conns.values_mut().filter_map(|c| c.far.as_mut()) {
                        far.has_no_session = true;
                    }
                    self.to_server.push(now, rng, Line::Closed);
                }
            }
        }
        has_moved
    }

    pub(crate) fn start_far(&mut self, transfer: TransferId, is_accepted: bool) {
        let setup = FarDataSetup {
            is_accepted,
            has_tls: self.far_tls,
            stall_timeout: STALL_TIMEOUT,
        };
        if let Some(conn) = self.conns.get_mut(&transfer.0) {
            conn.far = Some(Driver::new(FarData::new(setup), End::A, End::B));
        }
    }
}

/// Connects the client with the near gateway. Returns whether an event occurred.
pub(crate) fn connect_client(now: Duration, rng: &mut Rng, conn: &mut Conn) -> bool {
    let Some(near) = &mut conn.near else {
        return false;
    };
    if !near.is_connecting || near.is_done {
        return false;
    }
    // A client that has sent PORT listens.
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

/// Connects the far gateway with the server, and opens the stream at the far gateway.
pub(crate) fn connect_server(
    now: Duration,
    rng: &mut Rng,
    conn: &mut Conn,
    far_closed: bool,
) -> bool {
    let mut has_moved = false;
    if conn.stream_opens_at.is_some_and(|at| at <= now) {
        match (&mut conn.far, &mut conn.stream) {
            (Some(far), _) => {
                conn.stream_opens_at = None;
                far.handle(now, DataInput::StreamOpened);
                has_moved = true;
            }
            // A stream without a session is reset.
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

/// Timeout: the gateways reset a data connection if no byte moves for this time.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);
