//! A simulated server. The server behaves mostly like real servers, but sometimes misbehaves.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    carrier::End,
    channel::Rng,
    client::Conns,
    quirks::{AtAbort, AtQuestion, PassiveAnswer, Quirks},
};

/// Method by which the server ends a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Good,
    /// The server sends the final reply before it has sent the end of file.
    EarlyReply,
    /// The server ends the transfer after `at` bytes, with or without a reset, and reports a
    /// failure.
    Breaks {
        at: u64,
        reset: bool,
    },
    /// The server ends the transfer after `at` bytes, and reports a success.
    Lies {
        at: u64,
        reset: bool,
    },
    /// The server disconnects after `at` bytes without a reply.
    Vanishes {
        at: u64,
    },
    /// The server never ends the transfer.
    Hangs,
    /// The server does not close the data connection of a finished upload.
    KeepsOpen,
    /// The server has no bytes to send. It resets the data connection and reports success.
    Skips,
}

#[derive(Debug)]
struct Busy {
    number: String,
    port: Port,
    is_upload: bool,
    size_bytes: u64,
    ending: Ending,
    has_begun: bool,
    has_replied: bool,
    since: Duration,
}

/// One simulated server with one control connection.
#[derive(Debug)]
pub(crate) struct SimulatedServer {
    /// Whether the server reads its control connection only between transfers.
    is_serial: bool,
    pub(crate) quirks: Quirks,
    is_logged_in: bool,
    /// Whether the gateway may still send prefetched commands, which the client has not sent.
    is_asked_ahead: bool,
    /// Description of the invariant violation that the server has detected.
    pub(crate) complaint: Option<String>,
    /// Whether the server sends no reply to a transfer that is aborted before its data connection
    /// opens.
    is_forgetful: bool,
    /// Lines that have arrived and are still unread.
    pub(crate) lines: VecDeque<String>,
    pub(crate) out: VecDeque<String>,
    pub(crate) has_left: bool,
    /// Whether a data port of the server has refused a connection of the far gateway. The server
    /// still waits for that connection.
    pub(crate) has_refused: bool,
    /// Port of the data connection for the next transfer.
    prepared: Option<Port>,
    busy: Option<Busy>,
    wake: Option<Duration>,
    /// Late replies that the server will send, and their times.
    late: VecDeque<(Duration, String)>,
    /// Time before which the server reads no commands.
    busy_until: Option<Duration>,
    /// Time at which the server stops waiting for the data connection.
    times_out_at: Option<Duration>,
    numbered: u32,
    /// Number of commands received. Transfers, `SYST`, `FEAT` and `PWD` are not counted.
    worked: u32,
    /// Time for which a closed connection still counts as open. During this time, the server
    /// refuses another connection of the same user.
    keeps_user_for: Duration,
    full_until: Option<Duration>,
    /// Whether the server refuses a second connection of the same user in its greeting, before the
    /// log-in.
    greets_with_421: bool,
    /// Data connections opened to the server's ports: port, and number of the data connection.
    pub(crate) listeners: BTreeMap<u32, u32>,
}

/// Method by which a data connection of the server is opened.
#[derive(Debug, Clone, Copy)]
enum Port {
    /// The gateway connects to this port.
    Passive(u32),
    /// The server connects. The value is the number of the data connection.
    Active(u32),
}

impl SimulatedServer {
    /// Creates a server with random behaviour. The generator `others` chooses the behaviour at
    /// further connections.
    pub(crate) fn new(rng: &mut Rng, others: &mut Rng) -> Self {
        let is_serial = rng.chance(50);
        let is_forgetful = rng.chance(20);
        let mut quirks = Quirks::new(rng);
        if (is_serial || quirks.skips_empty) && quirks.abort == AtAbort::Unknown {
            // With these properties, the server would read the ABOR a minute later. Its refusal of
            // the ABOR would then look like a refusal of the next command.
            quirks.abort = AtAbort::Answers;
        }
        let keeps_user_for = Duration::from_secs(others.pick(&[0, 0, 2, 10, 40]));
        let greets_with_421 = others.chance(50);
        quirks.draw_more(others);
        Self {
            is_serial,
            is_forgetful,
            quirks,
            is_logged_in: false,
            is_asked_ahead: true,
            complaint: None,
            lines: VecDeque::new(),
            out: VecDeque::from(["220 ready".to_owned()]),
            has_left: false,
            has_refused: false,
            prepared: None,
            busy: None,
            wake: None,
            late: VecDeque::new(),
            busy_until: None,
            times_out_at: None,
            numbered: 0,
            worked: 0,
            keeps_user_for,
            full_until: None,
            greets_with_421,
            listeners: BTreeMap::new(),
        }
    }

    pub(crate) fn next(&self, now: Duration) -> Option<Duration> {
        let times_out_at = self.times_out_at.filter(|_| self.busy.is_some());
        let late = self.late.iter().map(|(at, _)| *at);
        let times = [self.wake, times_out_at, self.busy_until]
            .into_iter()
            .flatten()
            .chain(late);
        times.filter(|at| *at > now).min()
    }

    pub(crate) fn state(&self) -> String {
        format!("{:?} {:?}", self.busy, self.lines)
    }

    /// Handles the case that the gateway closes the control connection. The gateway will connect
    /// again.
    pub(crate) fn left(&mut self, now: Duration) {
        self.lines.clear();
        self.out.clear();
        self.has_left = true;
        self.is_logged_in = false;
        self.wake = None;
        self.late.clear();
        self.busy_until = None;
        self.full_until.get_or_insert(now + self.keeps_user_for);
    }

    /// Handles a new control connection from the gateway.
    pub(crate) fn again(&mut self, now: Duration) {
        let is_full = self.full_until.is_some_and(|at| at > now);
        self.has_left = false;
        let greeting = match is_full && self.greets_with_421 {
            true => "421 too many connections",
            false => "220 ready",
        };
        self.out = VecDeque::from([greeting.to_owned()]);
    }

    /// Records that the gateway sends no further prefetched commands. From this moment, each reply
    /// belongs to a command of the client.
    pub(crate) fn asked_no_more(&mut self) {
        self.is_asked_ahead = false;
    }

    fn conn(&self, port: Port) -> Option<u32> {
        match port {
            Port::Passive(number) => self.listeners.get(&number).copied(),
            Port::Active(conn) => Some(conn),
        }
    }

    fn say(&mut self, line: impl Into<String>) {
        self.out.push_back(line.into());
    }

    /// Handles the final end of the control connection.
    pub(crate) fn closed(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) {
        self.has_left = true;
        self.wake = None;
        for conn in conns.values_mut() {
            conn.close(now, rng, false, true);
        }
        self.busy = None;
    }

    /// Performs the server's next action. Returns whether the server had an action to perform.
    pub(crate) fn act(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) -> bool {
        if self.has_left {
            return false;
        }
        if self.wake.is_some_and(|at| at <= now) {
            self.wake = None;
        }
        if let Some((_, line)) = self.late.pop_front_if(|(at, _)| *at <= now) {
            self.say(line);
            return true;
        }
        if self.busy_until.is_some_and(|at| at <= now) {
            self.busy_until = None;
        }
        if self.move_data(now, rng, conns) {
            return true;
        }
        let is_skipping = self
            .busy
            .as_ref()
            .is_some_and(|b| b.ending == Ending::Skips);
        let is_free = self.busy.is_none() || !self.is_serial && !is_skipping;
        let may_read = self.wake.is_none() && self.busy_until.is_none() && is_free;
        if !may_read || self.lines.is_empty() {
            return false;
        }
        let is_transfer = |line: &str| line.starts_with("RETR") || line.starts_with("STOR");
        if self.busy.is_some() && self.lines.front().is_some_and(|line| is_transfer(line)) {
            return false;
        }
        let Some(line) = self.lines.pop_front() else {
            return false;
        };
        self.command(now, rng, conns, &line);
        self.wake = Some(now + rng.time(5));
        true
    }

    fn command(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns, line: &str) {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let number = words.next().unwrap_or_default().to_owned();
        if line.contains(['\r', '\0']) || matches!(verb, "" | "MODE" | "DELE") {
            self.complaint = Some(format!("the server gets {line:?}"));
        }
        match self.quirks.at_question {
            AtQuestion::Silent(subject) if subject == verb => return,
            AtQuestion::Twice(subject) if subject == verb && self.is_asked_ahead => {
                self.say(self.quirks.answer(verb).unwrap_or_default());
            }
            AtQuestion::Late(subject, delay) | AtQuestion::LateAside(subject, delay)
                if subject == verb =>
            {
                let is_aside = matches!(self.quirks.at_question, AtQuestion::LateAside(..));
                self.busy_until = (!is_aside).then_some(now + delay);
                let answer = self.quirks.answer(verb).unwrap_or_default();
                return self.late.push_back((now + delay, answer.to_owned()));
            }
            AtQuestion::Leaves(subject, farewell) if subject == verb => {
                self.out.extend(farewell.map(str::to_owned));
                self.has_left = true;
                return;
            }
            _ => {}
        }
        match verb {
            "PASV" | "EPSV" | "PORT" => self.prepare(rng, verb, &number),
            "XYZZY" if self.quirks.is_silent => {}
            "NOOP" if self.quirks.ends_with_other_code => {
                self.say("214-this is");
                self.say(format!("200 {number} ok"));
            }
            "ABOR" if self.quirks.abort == AtAbort::Unknown => self.say("502 abor"),
            "ABOR" if self.quirks.abort == AtAbort::Single => {
                if let Some(busy) = self.busy.take() {
                    let conn = self.conn(busy.port);
                    if let Some(conn) = conn.and_then(|id| conns.get_mut(&id)) {
                        conn.close(now, rng, false, true);
                    }
                    if !busy.has_replied {
                        self.say(format!("426 {} aborted", busy.number));
                    }
                }
            }
            "AUTH" => self.say("234 go on"),
            "PBSZ" | "PROT" if self.quirks.prot_needs_login && !self.is_logged_in => {
                self.say("530 log in");
            }
            "RETR" | "STOR" => {
                let size_bytes = words.next().and_then(|size| size.parse().ok()).unwrap_or(0);
                self.begin(now, rng, number, verb == "STOR", size_bytes);
            }
            "ABOR" => match self.busy.take() {
                // The server forgets the transfer, as pyftpdlib does.
                Some(busy)
                    if self.is_forgetful
                        && self.conn(busy.port).is_none_or(|id| {
                            conns.get(&id).is_none_or(|conn| conn.server_leg.is_none())
                        }) =>
                {
                    self.say("225 abor")
                }
                Some(busy) => {
                    let conn = self.conn(busy.port);
                    if let Some(conn) = conn.and_then(|id| conns.get_mut(&id)) {
                        conn.close(now, rng, false, true);
                    }
                    if !busy.has_replied {
                        self.say(format!("426 {} aborted", busy.number));
                    }
                    self.say("226 abor");
                }
                None => self.say("225 abor"),
            },
            "STAT" => self.say(format!("550 {} none", number.replace("missing", ""))),
            "QUIT" => {
                self.say(format!("221 {number} bye"));
                self.has_left = true;
                for conn in conns.values_mut() {
                    conn.close(now, rng, false, false);
                }
            }
            "USER" if self.full_until.is_some_and(|at| at > now) => {
                self.say(format!("530 {number} too many connections"));
            }
            "USER" => {
                self.is_logged_in = true;
                // Both lines are sent in one segment.
                let again = if self.quirks.greets_twice {
                    "\n230 stray"
                } else {
                    ""
                };
                self.say(format!("230 {number} in{again}"));
            }
            _ => match self.quirks.answer(verb) {
                Some(answer) => self.say(answer),
                None => self.plain(now, &number),
            },
        }
    }

    /// Replies to a command that is neither a transfer nor `SYST`, `FEAT` or `PWD`.
    fn plain(&mut self, now: Duration, number: &str) {
        let code = if self.quirks.has_odd_codes { 211 } else { 200 };
        let line = format!("{code} {number} ok");
        self.worked += 1;
        match self.quirks.work {
            Some(work) if self.worked.is_multiple_of(3) && self.busy.is_none() => {
                self.busy_until = Some(now + work);
                self.late.push_back((now + work, line));
            }
            _ => self.say(line),
        }
    }

    fn prepare(&mut self, rng: &mut Rng, verb: &str, argument: &str) {
        let passive = self.quirks.passive;
        let is_passive = verb != "PORT";
        if is_passive && passive == PassiveAnswer::None
            || verb == "PASV" && passive == PassiveAnswer::OnlyEpsv
        {
            return self.say("502 no such data connection here");
        }
        if rng.chance(2) {
            return self.say("425 no data connection here");
        }
        if is_passive {
            self.numbered += 1;
            self.prepared = Some(Port::Passive(self.numbered));
            let port = self.numbered + PORT_MIN;
            let (high, low) = (port / 256, port % 256);
            return self.say(match passive {
                PassiveAnswer::Blanks => format!("227 go ( 10, 0, 0, 1, {high}, {low})"),
                PassiveAnswer::Extended => format!("229 go (|||{port}|)"),
                _ => format!("227 go (10,0,0,1,{high},{low})"),
            });
        }
        let parts: Vec<u32> = argument.split(',').filter_map(|p| p.parse().ok()).collect();
        if let [.., high, low] = parts.as_slice() {
            self.prepared = Some(Port::Active(high * 256 + low - PORT_MIN));
        }
        self.say("200 data port taken");
    }

    fn begin(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        number: String,
        is_upload: bool,
        size_bytes: u64,
    ) {
        let Some(port) = self.prepared.take() else {
            return self.say(format!("425 {number} no PASV"));
        };
        if rng.chance(6) {
            return self.say(format!("550 {number} refused"));
        }
        if rng.chance(1) {
            return self.say(format!("331 {number} what"));
        }
        let at = rng.below(size_bytes + 1);
        let reset = rng.chance(50);
        let ending = match rng.below(100) {
            _ if self.quirks.skips_empty && size_bytes == 0 && !is_upload => Ending::Skips,
            0..8 => Ending::Breaks { at, reset },
            8..14 => Ending::Lies { at, reset: true },
            14..17 => Ending::Vanishes { at },
            17..18 => Ending::Hangs,
            18..28 => Ending::EarlyReply,
            28..36 => Ending::KeepsOpen,
            _ => Ending::Good,
        };
        self.busy = Some(Busy {
            number,
            port,
            is_upload,
            size_bytes,
            ending,
            has_begun: false,
            has_replied: false,
            since: now,
        });
    }

    /// Reads or writes data of the running transfer. Returns whether any bytes were moved.
    fn move_data(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) -> bool {
        let Some(port) = self.busy.as_ref().map(|busy| busy.port) else {
            return false;
        };
        let conn = self.conn(port).and_then(|id| conns.get_mut(&id));
        let Some(busy) = &mut self.busy else {
            return false;
        };
        let has_leg = conn.as_ref().is_some_and(|conn| conn.server_leg.is_some());
        if busy.ending == Ending::Skips && (has_leg || matches!(port, Port::Active(_))) {
            let line = format!("226 {} nothing", busy.number);
            if let Some(conn) = conn.filter(|_| has_leg) {
                conn.is_skipped = true;
                conn.close(now, rng, false, true);
            }
            self.busy = None;
            self.say(line);
            return true;
        }
        if busy.ending != Ending::Skips
            && !busy.has_begun
            && (has_leg || !self.is_serial || matches!(port, Port::Active(_)))
        {
            busy.has_begun = true;
            self.out.push_back("150 go".to_owned());
            return true;
        }
        let Some(conn) = conn else {
            return self.time_out(now);
        };
        if !has_leg {
            if matches!(port, Port::Active(_)) && busy.has_begun {
                conn.server_dials = true;
            }
            return self.time_out(now);
        }
        let is_reset = conn.server.saw_reset
            || conn
                .server_leg
                .as_ref()
                .is_some_and(|leg| leg.is_reset_for(now, End::B));
        if is_reset && !busy.has_replied && !conn.server.is_closed {
            let line = format!("426 {} broken", busy.number);
            conn.close(now, rng, false, true);
            self.busy = None;
            self.say(line);
            return true;
        }
        let number = busy.number.clone();
        let moved = match busy.is_upload {
            true => conn.server.read_bytes,
            false => conn.server.written_bytes,
        };
        match busy.ending {
            Ending::Hangs => return false,
            Ending::Breaks { at, reset } if moved >= at => {
                conn.close(now, rng, false, reset);
                self.busy = None;
                self.say(format!("451 {number} broken off"));
                return true;
            }
            Ending::Lies { at, reset } if moved >= at => {
                let was_closed = conn.server.is_closed;
                conn.close(now, rng, false, reset);
                // The server reports the false success only after the far gateway has received the
                // end. Earlier, the gateway could not detect the break.
                let is_known = conn
                    .server_leg
                    .as_ref()
                    .is_some_and(|leg| leg.is_acknowledged(now, End::B));
                if is_known {
                    self.busy = None;
                    self.say(format!("226 {number} done"));
                }
                return is_known || !was_closed;
            }
            Ending::Vanishes { at } if moved >= at => {
                self.closed(now, rng, conns);
                return true;
            }
            _ => {}
        }
        let has_moved = match busy.is_upload {
            true => conn.read(now, false),
            false => conn.write(now, rng, false, busy.limit()),
        };
        if has_moved {
            return true;
        }
        let is_over = match busy.is_upload {
            true => conn.server.saw_end,
            false => conn.server.written_bytes >= busy.size_bytes,
        };
        if !is_over {
            return false;
        }
        if busy.ending == Ending::EarlyReply && !busy.is_upload && !busy.has_replied {
            busy.has_replied = true;
            self.wake = Some(now + rng.time(50));
            self.say(format!("226 {number} done"));
            return true;
        }
        if self.wake.is_some() {
            return false;
        }
        let has_replied = busy.has_replied;
        if busy.ending != Ending::KeepsOpen || !busy.is_upload {
            conn.end(now, rng, false);
            conn.close(now, rng, false, false);
        }
        self.busy = None;
        if !has_replied && self.quirks.ends_with_other_code {
            self.say("226-closing");
            self.say(format!("250 {number} done"));
        } else if !has_replied {
            self.say(format!("226 {number} done"));
        }
        true
    }

    /// Ends a transfer whose data connection has not opened in time. Returns whether the time limit
    /// has expired.
    fn time_out(&mut self, now: Duration) -> bool {
        let Some(busy) = &self.busy else {
            return false;
        };
        let at = busy.since + CONNECT_TIMEOUT;
        if at > now {
            self.times_out_at = Some(at);
            return false;
        }
        let line = format!("425 {} no data connection came", busy.number);
        self.busy = None;
        self.say(line);
        true
    }
}

impl Busy {
    /// Returns the number of bytes that the server writes in a download.
    fn limit(&self) -> u64 {
        match self.ending {
            Ending::Breaks { at, .. } | Ending::Lies { at, .. } | Ending::Vanishes { at } => at,
            _ => self.size_bytes,
        }
    }
}

/// Time limit for a data connection to open. vsftpd has the same limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Port numbers in the simulation are greater than this number.
pub(crate) const PORT_MIN: u32 = 2000;
