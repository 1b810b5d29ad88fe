//! A simulated client. The client behaves mostly like real clients, but sometimes misbehaves.

use std::{collections::VecDeque, time::Duration};

use crate::{carrier::End, channel::Rng, conn::Conn, quirks::Quirks, server::PORT_MIN};

/// Kind of a command. The kind determines which replies are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Transfer,
    /// A command to which the server may reply during a transfer.
    Overtaking,
    Abort,
    Plain,
}

#[derive(Debug)]
struct Sent {
    number: u32,
    kind: Kind,
    /// The only valid reply to a `SYST`, `FEAT` or `PWD`. `None` for other commands.
    answer: Option<&'static str>,
}

/// The client's plan for one transfer.
#[derive(Debug, Clone, Copy)]
struct Plan {
    is_passive: bool,
    is_upload: bool,
    size_bytes: u64,
    connects_first: bool,
    waits_for_150: bool,
    /// Time from the transfer command to the client's `ABOR`. `None` if the client sends no `ABOR`.
    aborts_after: Option<Duration>,
    /// Whether the client reads no data between its `ABOR` and the reply.
    aborts_deaf: bool,
    /// Number of bytes after which the client breaks the transfer, and the method: a reset, a
    /// close, or a complete disconnect.
    breaks_at: Option<(u64, Break)>,
    /// Number of commands that the client sends during the transfer.
    chatter: u64,
    has_path_chatter: bool,
    /// Whether the client continues after the transfer without waiting for the reply to its `ABOR`.
    ignores_abort_answer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    Reset,
    Close,
    Vanish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Greeting,
    LogIn,
    Next,
    AskData,
    Transfer,
    Leaving,
    Gone,
}

/// State of the client's present transfer.
#[derive(Debug)]
struct Current {
    plan: Plan,
    conn: Option<u32>,
    number: Option<u32>,
    commanded_at: Duration,
    has_begun: bool,
    final_code: Option<u16>,
    has_aborted: bool,
    aborted_at: Duration,
    /// Whether the reply to the `ABOR` has arrived.
    abort_answered: bool,
    has_broken: bool,
}

/// One simulated client.
#[derive(Debug)]
pub(crate) struct Client {
    step: Step,
    numbered: u32,
    outstanding: VecDeque<Sent>,
    transfers_left: u64,
    /// Time at which the client disconnects without `QUIT`. `None` if the client sends `QUIT`.
    leaves_at: Option<Duration>,
    current: Option<Current>,
    wake: Option<Duration>,
    /// Lines that the client still has to send.
    pub(crate) out: VecDeque<String>,
    pub(crate) has_left: bool,
    /// Whether the client has closed its sending direction. The client still reads.
    pub(crate) has_ended: bool,
    is_half_closed: bool,
    /// Whether the client has received a reply that ends the session.
    has_farewell: bool,
    /// Description of the invariant violation that the client has detected.
    pub(crate) complaint: Option<String>,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// Number of replies to `ABOR`.
    pub(crate) aborted: u64,
    /// Time limit for the reply to an `ABOR`. `None` if items may stall in this session.
    pub(crate) abort_max: Option<Duration>,
    /// Deviations of the client's server from the standards.
    pub(crate) quirks: Quirks,
}

impl Client {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            quirks: Quirks::default(),
            step: Step::Greeting,
            numbered: 0,
            outstanding: VecDeque::new(),
            transfers_left: 1 + rng.below(4),
            leaves_at: rng.chance(15).then(|| rng.time(4_000)),
            current: None,
            wake: None,
            out: VecDeque::new(),
            has_left: false,
            has_ended: false,
            is_half_closed: false,
            has_farewell: false,
            complaint: None,
            completed: 0,
            failed: 0,
            aborted: 0,
            abort_max: None,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.step == Step::Gone
    }

    pub(crate) fn next(&self, now: Duration) -> Option<Duration> {
        let leaves_at = self.leaves_at.filter(|_| !self.is_gone());
        let times = [self.wake, leaves_at].into_iter().flatten();
        times.filter(|at| *at > now).min()
    }

    pub(crate) fn state(&self) -> String {
        format!("{:?} {:?} {:?}", self.step, self.outstanding, self.current)
    }

    fn send(&mut self, kind: Kind, line: &str) -> u32 {
        self.numbered += 1;
        self.out
            .push_back(line.replace('#', &format!("t{}", self.numbered)));
        self.outstanding.push_back(Sent {
            number: self.numbered,
            kind,
            answer: self.quirks.answer(line),
        });
        self.numbered
    }

    /// Handles the end of the client's control connection.
    pub(crate) fn closed(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) {
        if self.is_half_closed && !self.has_farewell && !self.outstanding.is_empty() {
            self.complain(format!(
                "closed before the answers to {:?}",
                self.outstanding
            ));
        }
        self.leave(now, rng, conns);
    }

    fn leave(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) {
        for conn in conns.values_mut() {
            conn.close(now, rng, true, false);
        }
        self.step = Step::Gone;
        self.has_left = true;
        self.wake = None;
    }

    /// Handles a reply line from the gateway.
    pub(crate) fn line(&mut self, now: Duration, line: &str, conns: &mut Conns) {
        if line.contains("stray") || self.has_farewell {
            // Real clients drop unexpected replies, too.
            return;
        }
        let Some(code) = line.get(..3).and_then(|code| code.parse::<u16>().ok()) else {
            return self.complain(format!("no reply: {line}"));
        };
        if line.as_bytes().get(3) == Some(&b'-') {
            return;
        }
        if code < 200 {
            if let Some(current) = &mut self.current {
                current.has_begun = true;
            }
            return;
        }
        if self.step == Step::Greeting && code == 220 {
            self.step = Step::LogIn;
            return;
        }
        if code == 421 {
            self.has_farewell = true;
            self.outstanding.clear();
            return;
        }
        let Some(index) = self.answered(line) else {
            if line.contains("abor") {
                // The client has not waited for this reply.
                return;
            }
            return self.complain(format!("a reply to nothing: {line}"));
        };
        if self.outstanding[index]
            .answer
            .is_some_and(|it| it != line && line != FAREWELL)
        {
            let sent = &self.outstanding[index];
            return self.complain(format!("{sent:?} is answered by {line}"));
        }
        if line.contains("odd")
            && self.outstanding[index].kind == Kind::Plain
            && self.outstanding[index].answer.is_none()
        {
            let sent = &self.outstanding[index];
            return self.complain(format!("{sent:?} gets the answer to a question: {line}"));
        }
        if let Some(complaint) = self.out_of_order(index) {
            return self.complain(format!("{complaint} by {line}"));
        }
        let Some(sent) = self.outstanding.remove(index) else {
            return;
        };
        self.take(now, &sent, code, line, conns);
    }

    /// Returns the index of the command to which a final reply belongs.
    fn answered(&self, line: &str) -> Option<usize> {
        let number = line
            .split(|c: char| !c.is_ascii_alphanumeric())
            .find_map(|word| word.strip_prefix('t')?.parse::<u32>().ok());
        if let Some(number) = number {
            return self.outstanding.iter().position(|s| s.number == number);
        }
        let first = |kind| self.outstanding.iter().position(|s| s.kind == kind);
        let is_own = line.contains("gateway: ");
        if is_own && (line.starts_with("426") || line.contains("no data connection: ")) {
            return first(Kind::Transfer);
        }
        if line.contains("abor") {
            return first(Kind::Abort);
        }
        if line.starts_with("227") || line.contains("data port") || line.contains("data connection")
        {
            return first(Kind::Data).or(first(Kind::Transfer));
        }
        self.outstanding
            .iter()
            .position(|s| s.kind != Kind::Transfer)
    }

    /// Returns a complaint if a reply arrives out of order. When a reply arrives, all earlier
    /// commands must have their replies. As the only exception, certain commands may overtake a
    /// transfer.
    fn out_of_order(&self, index: usize) -> Option<String> {
        let sent = &self.outstanding[index];
        let mut earlier = self.outstanding.iter().take(index);
        let overtakes = matches!(sent.kind, Kind::Overtaking | Kind::Abort);
        let late = earlier.find(|e| e.kind != Kind::Transfer || !overtakes)?;
        Some(format!("{sent:?} is answered before {late:?}"))
    }

    fn take(&mut self, now: Duration, sent: &Sent, code: u16, line: &str, conns: &mut Conns) {
        let Some(current) = &mut self.current else {
            return;
        };
        match sent.kind {
            Kind::Abort => {
                current.abort_answered = true;
                self.aborted += 1;
                let took = now - current.aborted_at;
                if self.abort_max.is_some_and(|max| took > max) {
                    self.complain(format!("the ABOR is answered after {took:?}"));
                }
            }
            Kind::Data if code >= 400 => {
                self.current = None;
                self.step = Step::Next;
            }
            Kind::Data => {
                if let Some(port) = announced(line) {
                    current.conn = Some(port);
                }
                self.step = Step::Transfer;
            }
            Kind::Transfer if Some(sent.number) == current.number => {
                current.final_code = Some(code);
                if let Some(complaint) = judge(now, current, code, conns) {
                    self.complain(complaint);
                }
            }
            Kind::Transfer | Kind::Overtaking | Kind::Plain => {}
        }
    }

    fn complain(&mut self, complaint: String) {
        self.complaint.get_or_insert(complaint);
    }

    /// Performs the client's next action. Returns whether the client had an action to perform.
    pub(crate) fn act(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) -> bool {
        if self.wake.is_some_and(|at| at <= now) {
            self.wake = None;
        }
        if self.leaves_at.is_some_and(|at| at <= now) && self.step != Step::Gone {
            self.leave(now, rng, conns);
            return true;
        }
        match self.step {
            Step::Greeting | Step::Gone => false,
            Step::LogIn if self.wake.is_none() => {
                self.send(Kind::Plain, "USER #");
                self.step = Step::Next;
                true
            }
            Step::Next if self.wake.is_none() && self.outstanding.is_empty() => {
                self.begin(now, rng);
                true
            }
            Step::Transfer => self.transfer(now, rng, conns),
            Step::Leaving if self.wake.is_none() && self.outstanding.is_empty() => {
                self.leave(now, rng, conns);
                true
            }
            Step::LogIn | Step::Next | Step::AskData | Step::Leaving => false,
        }
    }

    fn begin(&mut self, now: Duration, rng: &mut Rng) {
        if self.transfers_left == 0 {
            if rng.chance(70) {
                self.send(Kind::Plain, "QUIT #");
            } else if rng.chance(50) {
                self.send(Kind::Plain, "NOOP #");
                self.send(Kind::Plain, "XYZZY #");
                self.has_ended = true;
                self.is_half_closed = true;
            }
            self.wake = Some(now + rng.time(100));
            self.step = Step::Leaving;
            return;
        }
        self.transfers_left -= 1;
        if rng.chance(20) {
            // An empty line, a line that some servers split, a mode that is not supported, and
            // commands that the gateway prefetches.
            for line in ["", "NOOP x\rDELE #", "MODE B", "SYST", "FEAT", "PWD"] {
                if rng.chance(40) {
                    match line {
                        "" => self.out.push_back(String::new()),
                        line => _ = self.send(Kind::Plain, line),
                    }
                }
            }
        }
        let size_bytes = rng.pick(&[0, 1, 500, 5_000, 50_000]);
        let plan = Plan {
            is_passive: rng.chance(70),
            is_upload: rng.chance(50),
            size_bytes,
            connects_first: rng.chance(60),
            waits_for_150: rng.chance(70),
            aborts_after: rng.chance(25).then(|| rng.time(3_000)),
            aborts_deaf: rng.chance(60),
            breaks_at: rng.chance(12).then(|| {
                let how = rng.pick(&[Break::Reset, Break::Close, Break::Vanish]);
                (rng.below(size_bytes + 1), how)
            }),
            chatter: if rng.chance(25) { rng.below(3) } else { 0 },
            has_path_chatter: rng.chance(30),
            ignores_abort_answer: rng.chance(20),
        };
        self.current = Some(Current {
            plan,
            conn: None,
            number: None,
            commanded_at: now,
            has_begun: false,
            final_code: None,
            has_aborted: false,
            aborted_at: now,
            abort_answered: false,
            has_broken: false,
        });
        self.step = Step::AskData;
        let line = if plan.is_passive {
            "PASV"
        } else {
            "PORT 10,0,0,9,200,1"
        };
        self.send(Kind::Data, line);
    }

    fn transfer(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) -> bool {
        let Some(current) = &mut self.current else {
            return false;
        };
        let plan = current.plan;
        if !plan.is_passive && current.conn.is_none() {
            current.conn = conns.keys().next_back().copied();
        }
        let conn = current.conn.and_then(|id| conns.get_mut(&id));
        if current.number.is_none() {
            if let Some(conn) = conn.filter(|_| plan.is_passive) {
                let delay = if plan.connects_first { 0 } else { 50 };
                conn.client_connects_at = Some(now + Duration::from_millis(delay) + rng.time(20));
            }
            current.commanded_at = now;
            let line = match plan.is_upload {
                true => format!("STOR # {}", plan.size_bytes),
                false => format!("RETR # {}", plan.size_bytes),
            };
            let number = self.send(Kind::Transfer, &line);
            for at in 0..plan.chatter {
                match at == 0 && plan.has_path_chatter {
                    true => self.send(Kind::Plain, "STAT missing#"),
                    false => self.send(Kind::Overtaking, "NOOP #"),
                };
            }
            if let Some(current) = &mut self.current {
                current.number = Some(number);
            }
            return true;
        }
        let has_failed = current.final_code.is_some_and(|code| code >= 300);
        if let Some(after) = plan.aborts_after.filter(|_| !current.has_aborted) {
            let at = current.commanded_at + after;
            if at <= now {
                current.has_aborted = true;
                current.aborted_at = now;
                self.send(Kind::Abort, "ABOR");
                return true;
            }
            self.wake = Some(at);
        }
        let is_deaf = current.has_aborted && plan.aborts_deaf && !current.abort_answered;
        if plan.ignores_abort_answer && current.has_aborted && current.final_code.is_some() {
            current.abort_answered = true;
            self.outstanding.retain(|sent| sent.kind != Kind::Abort);
        }
        let is_over = current.final_code.is_some()
            && (!current.has_aborted || current.abort_answered)
            && (has_failed || conn.as_ref().is_none_or(|c| is_over(c, plan.is_upload)));
        if is_over {
            self.end_transfer(now, rng, conns);
            return true;
        }
        let Some(conn) = conn.filter(|_| !is_deaf) else {
            return false;
        };
        let moved = if plan.is_upload {
            conn.client.written_bytes
        } else {
            conn.client.read_bytes
        };
        if let Some((_, how)) = plan
            .breaks_at
            .filter(|(at, _)| moved >= *at && !current.has_broken && current.has_begun)
        {
            current.has_broken = true;
            match how {
                Break::Reset => conn.close(now, rng, true, true),
                Break::Close => conn.close(now, rng, true, false),
                Break::Vanish => self.leave(now, rng, conns),
            }
            return true;
        }
        if plan.is_upload {
            let may_send = current.has_begun || !plan.waits_for_150;
            let has_written = may_send && conn.write(now, rng, true, plan.size_bytes);
            let has_all = conn.client.written_bytes == plan.size_bytes && conn.client_leg.is_some();
            if may_send && has_all && !conn.client.has_ended && !conn.client.is_closed {
                conn.end(now, rng, true);
                return conn.client.has_ended;
            }
            has_written || conn.read(now, true)
        } else {
            let has_read = conn.read(now, true);
            if conn.client.saw_end || conn.client.saw_reset {
                conn.close(now, rng, true, false);
            }
            has_read
        }
    }

    fn end_transfer(&mut self, now: Duration, rng: &mut Rng, conns: &mut Conns) {
        let Some(current) = self.current.take() else {
            return;
        };
        match current.final_code {
            Some(200..300) => self.completed += 1,
            _ => self.failed += 1,
        }
        if let Some(conn) = current.conn.and_then(|id| conns.get_mut(&id)) {
            conn.close(now, rng, true, current.has_aborted);
        }
        self.step = Step::Next;
        self.wake = Some(now + rng.time(200));
    }
}

/// Data connections of a simulated session, by number.
pub(crate) type Conns = std::collections::BTreeMap<u32, Conn>;

fn is_over(conn: &Conn, is_upload: bool) -> bool {
    let seen = &conn.client;
    seen.is_closed
        || seen.saw_reset
        || conn.client_leg.is_none()
        || if is_upload {
            seen.has_ended
        } else {
            seen.saw_end
        }
}

/// Last line of a server that ends the session because of a prefetched command.
const FAREWELL: &str = "221 bye";

/// Returns a complaint if a successful reply to a transfer is wrong.
fn judge(now: Duration, current: &Current, code: u16, conns: &Conns) -> Option<String> {
    let succeeded = (200..300).contains(&code);
    let conn = conns.get(&current.conn?)?;
    let is_reset = matches!(current.plan.breaks_at, Some((_, Break::Reset)));
    if !succeeded || current.has_broken && !(is_reset && current.plan.is_upload) {
        return None;
    }
    if current.plan.is_upload {
        let is_whole = (conn.server.saw_end || conn.server.is_closed)
            && conn.client.has_ended
            && conn.server.read_bytes == conn.client.written_bytes;
        return (!is_whole).then(|| {
            format!(
                "{code} for an upload that is not whole: client {:?}, server {:?}",
                conn.client, conn.server
            )
        });
    }
    let (waiting, has_end) = match &conn.client_leg {
        Some(leg) => leg.waiting(now, End::A),
        None => (0, false),
    };
    let is_whole = conn.client.read_bytes + waiting == conn.server.written_bytes
        && (conn.client.saw_end || has_end || conn.client.is_closed)
        && (conn.server.has_ended || conn.is_skipped);
    (!is_whole).then(|| {
        format!(
            "{code} for a download that is not whole: client {:?} + {waiting}, server {:?}",
            conn.client, conn.server
        )
    })
}

/// Returns the port in a reply to `PASV`. In the simulation, the port is the number of the data
/// connection.
fn announced(line: &str) -> Option<u32> {
    let start = line.strip_prefix("227")?;
    let inner = start.split(['(', ')']).nth(1)?;
    let parts: Vec<u32> = inner.split(',').filter_map(|p| p.parse().ok()).collect();
    let [.., high, low] = parts.as_slice() else {
        return None;
    };
    Some(high * 256 + low - PORT_MIN)
}
