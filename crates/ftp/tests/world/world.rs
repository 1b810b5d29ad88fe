//! One simulated session in virtual time: a client, a pair of gateways and a server.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use ftp::session::{
    MessageToFar, MessageToNear, SessionMode, TransferId,
    far::{self, FarSession},
    near::{self, ClientTlsMode, NearSession, ServerSource},
};

use crate::{
    channel::{Channel, Rng},
    client::{Client, Conns},
    conn::Conn,
    driver::Planted,
    gateways,
    quirks::{AtAbort, AtQuestion},
    server::SimulatedServer,
};

#[derive(Debug)]
pub(crate) enum Line {
    Text(Vec<u8>),
    /// The sender has closed its sending direction.
    Ended,
    Closed,
}

/// Counters of one or more simulated sessions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) aborted: u64,
    pub(crate) steps: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.aborted += other.aborted;
        self.steps += other.steps;
    }
}

pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) rng: Rng,
    pub(crate) planted: Planted,
    pub(crate) delay_ms: u64,
    pub(crate) conns: Conns,
    pub(crate) client: Client,
    pub(crate) server: SimulatedServer,
    pub(crate) near: NearSession,
    pub(crate) far: FarSession,
    pub(crate) near_closed: bool,
    pub(crate) far_closed: bool,
    pub(crate) from_client: Channel<Line>,
    pub(crate) client_inbox: VecDeque<Line>,
    pub(crate) to_client: Channel<Line>,
    pub(crate) from_server: Channel<Line>,
    pub(crate) to_server: Channel<Line>,
    /// Messages in flight to the far gateway. `None` marks the end of the stream.
    pub(crate) to_far: Channel<Option<MessageToFar>>,
    pub(crate) to_near: Channel<MessageToNear>,
    /// Time at which the far gateway stops waiting for a silent server.
    pub(crate) silent_at: Option<Duration>,
    /// Time limit of the far gateway's wait for its server, and the start of the wait.
    pub(crate) wait: Option<(far::ServerWait, Duration)>,
    /// Time at which the near gateway stops waiting for replies to a half-closed client.
    pub(crate) half_closed_until: Option<Duration>,
    /// Whether the client neither sends nor reads any more.
    pub(crate) has_ended: bool,
    pub(crate) has_reset: bool,
    /// Whether the server's connections use TLS.
    pub(crate) far_tls: bool,
    /// Whether the client's data connections use TLS.
    pub(crate) near_tls: bool,
    pub(crate) near_dials_early: bool,
    /// For each data connection, whether the near gateway has recorded a successful transfer.
    pub(crate) recorded: BTreeMap<u32, bool>,
    pub(crate) steps: u64,
    pub(crate) complaint: Option<String>,
    /// Whether the simulation prints all lines and messages (variable `SIEGE_TRACE`).
    pub(crate) has_trace: bool,
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
pub(crate) const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

impl World {
    pub(crate) fn new(seed: u64, planted: Planted) -> Self {
        let mut rng = Rng::new(seed);
        let mode = rng.pick(&[SessionMode::Fast, SessionMode::Strict]);
        let data = rng.pick(&[far::DataOpener::Passive, far::DataOpener::Active]);
        let delay_ms = rng.pick(&[1, 20, 300]);
        let far_tls = rng.chance(20);
        let far_setup = far::FarSetup {
            server_is_v6: false,
            data,
            mode,
            tls: match far_tls {
                true => far::ServerTlsMode::Explicit,
                false => far::ServerTlsMode::Off,
            },
            known: far::ServerTraits::default(),
        };
        let setup = near::NearSetup {
            server_source: ServerSource::Fixed,
            mode,
            tls: ClientTlsMode::Off,
            local: GATEWAY,
            client: CLIENT,
        };
        let mut client = Client::new(&mut rng);
        let mut server = SimulatedServer::new(&mut rng, &mut Rng::new(!seed));
        if let (SessionMode::Strict, AtQuestion::Twice(_)) = (mode, server.quirks.at_question) {
            // In strict mode, each reply of the server belongs to the client.
            server.quirks.at_question = AtQuestion::Answers;
        }
        client.quirks = server.quirks;
        Self {
            now: Duration::ZERO,
            planted,
            delay_ms,
            conns: BTreeMap::new(),
            client,
            server,
            near: NearSession::new(setup),
            far: FarSession::new(far::SessionOpening::RelayGreeting, far_setup),
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
            wait: None,
            half_closed_until: None,
            far_tls,
            has_ended: false,
            has_reset: false,
            near_tls: rng.chance(30),
            near_dials_early: mode == SessionMode::Fast,
            recorded: BTreeMap::new(),
            steps: 0,
            complaint: None,
            has_trace: std::env::var_os("SIEGE_TRACE").is_some(),
            rng,
        }
    }

    /// Whether the server has a deviation that once made simulated sessions fail.
    pub(crate) fn has_quirk(&self) -> bool {
        let quirks = &self.server.quirks;
        quirks.at_question != AtQuestion::Answers
            || quirks.abort != AtAbort::Answers
            || quirks.greets_twice
            || quirks.has_odd_codes
    }

    /// Runs the simulated session to its end. Returns the counters, or the violation of an
    /// invariant.
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
        let complaint = self.complaint.take().or(self.client.complaint.take());
        if let Some(complaint) = complaint.or(self.server.complaint.take()) {
            return Err(format!("{complaint} at {:?}", self.now));
        }
        self.check_nothing_is_left()?;
        Ok(Outcome {
            completed: self.client.completed,
            failed: self.client.failed,
            aborted: self.client.aborted,
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
            return Err(format!("the client waits for ever: {}", self.state()));
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
            // Discarded bytes must not count.
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
            self.wait.map(|(wait, since)| since + wait.time),
            self.half_closed_until,
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

    pub(crate) fn trace(&self, who: &str, line: &[u8]) {
        if self.has_trace {
            let line = String::from_utf8_lossy(line);
            eprintln!("{:>12.6} {who} {}", self.now.as_secs_f64(), line.trim_end());
        }
    }

    pub(crate) fn complain(&mut self, complaint: String) {
        self.complaint.get_or_insert(complaint);
    }

    /// Performs one pending action of each participant. Returns whether any action was performed.
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
                    // The limit is two round trips and one second, because a line in doubt delays
                    // the following lines.
                    let max = Duration::from_millis(2 * 3 * self.delay_ms + 1_000);
                    let is_smooth = self.rng.is_smooth()
                        && !self.server.has_refused
                        && !self.server.quirks.ends_with_other_code
                        && self.server.quirks.abort == AtAbort::Answers
                        && self.server.quirks.at_question == AtQuestion::Answers
                        && !self.server.quirks.is_silent
                        && self.server.quirks.work.is_none()
                        && self.server.quirks.odd_answer.is_none();
                    self.client.abort_max = is_smooth.then_some(max);
                    self.client.line(self.now, &line, &mut self.conns);
                } else if !self.has_reset {
                    // The client does not read the line any more.
                    self.has_reset = true;
                    self.from_client.push(self.now, &mut self.rng, Line::Closed);
                }
                has_moved = true;
            }
            Some(Line::Closed | Line::Ended) => {
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
        let has_ended = std::mem::take(&mut self.client.has_ended);
        if std::mem::take(&mut self.client.has_left) && !self.has_ended || has_ended {
            self.has_ended = true;
            self.from_client.push(self.now, &mut self.rng, Line::Ended);
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
            Some(Line::Closed | Line::Ended) if !had_left => {
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
            has_moved |= gateways::connect_client(now, rng, conn);
            has_moved |= gateways::connect_server(now, rng, conn, self.far_closed);
            if let Some(near) = &mut conn.near {
                for event in near.events.drain(..) {
                    has_moved = true;
                    self.near
                        .handle(near::NearInput::Data(TransferId(id), event));
                }
            }
            if let Some(far) = &mut conn.far {
                for event in far.events.drain(..) {
                    has_moved = true;
                    let input = far::FarInput::Data(TransferId(id), event);
                    let _ = self.far.handle(input);
                    self.silent_at = None;
                }
            }
            has_moved |= check_ends(id, conn, &mut self.complaint);
        }
        has_moved
    }
}

/// Checks each end of file that the client or server has read. The opposite host must have sent
/// that end of file, after the same number of bytes.
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

/// Maximum length of a session in virtual time. The value exceeds the sum of all time limits within
/// a session.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

const STEPS_MAX: u64 = 1_000_000;
