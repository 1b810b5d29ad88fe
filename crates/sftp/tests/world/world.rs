//! One session: client, near half, link, far half and server.

use std::{collections::VecDeque, time::Duration};

use sftp::{
    EarlyReplies, FarSettings, NearSettings, SftpError, SftpFar, SftpNear, ToFar, ToNear,
    TransferEvent,
};

use crate::{
    client::{Client, Job, RequestPattern, Task, renamed},
    rng::{Rng, content},
    server::{Server, ServerTraits, text},
};

/// Settings of a session.
pub(crate) struct Setup {
    pub(crate) near: NearSettings,
    pub(crate) far: FarSettings,
    pub(crate) delay: u64,
    pub(crate) cut_at: Option<u64>,
    /// Number of bytes that the link can hold before the other gateway receives them.
    pub(crate) link_bytes: usize,
    /// Number of bytes that the client takes in each step.
    pub(crate) client_rate: usize,
}

/// Counters of a session, so that tests can check their situations.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) uploads: u64,
    pub(crate) broken_uploads: u64,
    pub(crate) downloads: u64,
    pub(crate) errors: u64,
    pub(crate) cuts: u64,
    pub(crate) relayed_reads: u64,
    /// Time at which the client had all answers.
    pub(crate) ticks: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.uploads += other.uploads;
        self.broken_uploads += other.broken_uploads;
        self.downloads += other.downloads;
        self.errors += other.errors;
        self.cuts += other.cuts;
        self.relayed_reads += other.relayed_reads;
        self.ticks += other.ticks;
    }
}

pub(crate) struct World {
    rng: Rng,
    now: u64,
    setup: Setup,
    pub(crate) client: Client,
    near: SftpNear,
    far: SftpFar,
    pub(crate) server: Server,
    to_far: Carrier<ToFar>,
    to_near: Carrier<ToNear>,
    has_garbage: bool,
    open_transfers: Vec<u64>,
    outcome: Outcome,
}

/// One direction of the link. Messages arrive in order.
struct Carrier<T> {
    messages: VecDeque<(u64, T, usize)>,
    bytes: usize,
    last_due: u64,
}

impl<T> Carrier<T> {
    fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
            last_due: 0,
        }
    }

    fn send(&mut self, message: T, length: usize, due: u64) {
        self.last_due = self.last_due.max(due);
        self.bytes += length;
        self.messages.push_back((self.last_due, message, length));
    }

    fn take(&mut self, now: u64) -> Option<T> {
        if self.messages.front()?.0 > now {
            return None;
        }
        let (_, message, length) = self.messages.pop_front()?;
        self.bytes -= length;
        Some(message)
    }
}

impl Setup {
    /// Returns the settings of a good link with this delay in one direction.
    pub(crate) fn good(early: EarlyReplies, delay: u64) -> Self {
        Self {
            near: NearSettings {
                early,
                ..NearSettings::default()
            },
            far: FarSettings::default(),
            delay,
            cut_at: None,
            link_bytes: 64 << 20,
            client_rate: 64 << 20,
        }
    }
}

impl World {
    pub(crate) fn new(setup: Setup, client: Client, server: Server, seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            now: 0,
            near: SftpNear::new(setup.near),
            far: SftpFar::new(setup.far),
            client,
            has_garbage: server.traits.garbage_at.is_some(),
            server,
            to_far: Carrier::new(),
            to_near: Carrier::new(),
            setup,
            open_transfers: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// Creates a session in which each party may misbehave.
    pub(crate) fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let early = rng.pick(&[
            EarlyReplies::Held,
            EarlyReplies::Held,
            EarlyReplies::All,
            EarlyReplies::Off,
        ]);
        let near = NearSettings {
            early,
            read_ahead_max: rng.pick(&[0, 2 << 20, 5 << 20, 128 << 20]),
            read_ahead_handle_max: rng.pick(&[1 << 20, 2 << 20, 64 << 20]),
            write_ahead_max: rng.pick(&[0, 100_000, 1 << 20, 64 << 20]),
            is_openssh: rng.one_in(2),
        };
        let far = FarSettings {
            reads_max: rng.pick(&[0, 100_000, 1 << 20, 8 << 20]),
        };
        let setup = Setup {
            near,
            far,
            delay: rng.pick(&[0, 1, 20, 300]),
            cut_at: rng.one_in(8).then(|| rng.below(2000)),
            link_bytes: rng.pick(&[1, 40_000, 4 << 20]),
            client_rate: rng.pick(&[3_000, 60_000, 4 << 20]),
        };
        let mut traits = ServerTraits {
            has_limits: rng.one_in(2),
            read_max: rng.pick(&[32_768, 65_536, 261_120]),
            delay_max: rng.pick(&[0, 0, 3, 30]),
            is_sequential: rng.one_in(2),
            has_short_reads: rng.one_in(4),
            ..ServerTraits::default()
        };
        let size_max = rng.pick(&[0, 300, 40_000, 400_000, 400_000, 3 << 20]);
        match rng.below(16) {
            0 | 1 => traits.failing_write = Some(rng.between(1, 20)),
            2 | 3 => traits.failing_offset = Some(rng.below(size_max.max(1))),
            4 => traits.fails_close = true,
            5 => traits.fails_set_stat = true,
            6 => traits.fails_fsync = true,
            7 => traits.failing_read = Some(rng.below(size_max.max(1))),
            8 => traits.fails_folder = true,
            9 | 10 => traits.failing_open = Some(rng.between(1, 6)),
            11 => traits.garbage_at = Some(rng.below(1500)),
            _ => {}
        }
        // With `EarlyReplies::All`, and for programs of OpenSSH, the client does not see a failure
        // before CLOSE.
        let failing = [
            traits.failing_write,
            traits.failing_offset,
            traits.failing_open,
        ];
        let has_failing = failing.iter().any(Option::is_some);
        let may_check_size = !(early == EarlyReplies::All || near.is_openssh) || !has_failing;
        let mut server = Server::new(traits);
        server.entries = rng.pick(&[0, 1, 100, 101, 5_000, 5_000, 30_000]);
        let mut jobs = Vec::new();
        for number in 0..rng.between(1, if near.is_openssh { 7 } else { 4 }) {
            let mut path = format!("/file-{number}");
            let seed = rng.next();
            let size = rng.between(0, size_max);
            let kind = rng.below(8);
            // A resumed download begins far behind the start.
            let size = if (3..7).contains(&kind) && rng.one_in(16) {
                9 << 20
            } else {
                size
            };
            if (3..7).contains(&kind) {
                path = format!("/source-{number}");
                let bytes = content(seed, size as usize);
                server.files.insert(text(&path), bytes);
            }
            let path = text(&path);
            let task = match kind {
                0..3 => Task::Upload {
                    path,
                    seed,
                    size,
                    has_fsync: rng.one_in(3),
                    has_set_stat: rng.one_in(3),
                    closes_at_once: rng.one_in(4),
                    checks_size: rng.one_in(3) && may_check_size,
                    renames: rng.one_in(3),
                },
                3..=5 => Task::Download {
                    path,
                    seed,
                    size,
                    start: if rng.one_in(4) {
                        rng.below(size + 1)
                    } else {
                        0
                    },
                    closes_after: rng.one_in(6).then(|| rng.below(20)),
                },
                6 if rng.one_in(2) => Task::Random {
                    path,
                    seed,
                    size,
                    count: rng.between(1, 30),
                    seeks: rng.one_in(2),
                },
                6 => Task::Odd,
                _ => Task::List {
                    entries: server.entries,
                },
            };
            let pattern = RequestPattern::any(&mut rng);
            jobs.push(Job::new(task, pattern, &mut rng));
        }
        if rng.one_in(40) {
            // The client opens one file for each range.
            let (path, seed, size) = (text("/ranges"), rng.next(), 9 << 20);
            let bytes = content(seed, size as usize);
            server.files.insert(path.clone(), bytes);
            for _ in 0..rng.between(2, 4) {
                let task = Task::Download {
                    path: path.clone(),
                    seed,
                    size,
                    start: rng.between(4 << 20, size),
                    closes_after: Some(rng.between(1, 60)),
                };
                let pattern = RequestPattern::any(&mut rng);
                jobs.push(Job::new(task, pattern, &mut rng));
            }
        }
        let mut client = Client::new(jobs, rng.between(1, 3) as usize);
        if near.is_openssh {
            client = client.like_openssh();
        }
        Self::new(setup, client, server, rng.next())
    }

    /// Runs the session to its end.
    pub(crate) fn run(&mut self) -> Result<Outcome, String> {
        let result = loop {
            if self.setup.cut_at.is_some_and(|at| at <= self.now) {
                self.outcome.cuts += 1;
                break Ok(());
            }
            let has_worked = match self.step() {
                Ok(has_worked) => has_worked,
                Err(error) if self.has_garbage => {
                    let _ = error;
                    self.outcome.errors += 1;
                    break Ok(());
                }
                Err(error) => break Err(format!("session error: {error}")),
            };
            self.check_memory()?;
            if !self.client.is_done() {
                self.outcome.ticks = self.now;
            }
            if let Some(fault) = self.client.fault.take() {
                if self.has_garbage {
                    break Ok(());
                }
                break Err(format!("{fault}; {}", self.client.outstanding()));
            }
            if has_worked {
                self.now += 1;
            } else if let Some(due) = self.next_due() {
                self.now = due.max(self.now + 1);
            } else if self.client.is_done() || self.has_garbage {
                break Ok(());
            } else {
                break Err(format!("no progress: {}", self.client.outstanding()));
            }
            if self.now > 1_000_000_000 {
                break Err("the session does not end".to_owned());
            }
        };
        let is_whole = self.outcome.cuts + self.outcome.errors == 0 && !self.has_garbage;
        result.and_then(|()| self.check_end(is_whole))?;
        Ok(self.outcome)
    }

    fn next_due(&self) -> Option<u64> {
        let to_far = self.to_far.messages.front().map(|(due, ..)| *due);
        let to_near = self.to_near.messages.front().map(|(due, ..)| *due);
        let near = self.near.next_due().map(|due| due.as_millis() as u64);
        let due = [to_far, to_near, self.server.next_due(), near];
        due.into_iter().flatten().min()
    }

    /// Moves bytes and messages by one step each. Returns whether there were any.
    fn step(&mut self) -> Result<bool, SftpError> {
        self.near.set_time(Duration::from_millis(self.now));
        let mut has_worked = self.client.run();
        // Client to near half, in any cut.
        while self.near.wants_client_bytes() {
            let Some(mut piece) = self.client.output.pop_front() else {
                break;
            };
            let length = self.rng.between(1, 40_000) as usize;
            if length < piece.len() {
                let rest = piece.split_off(length);
                self.client.output.push_front(rest);
            }
            self.client.output_bytes -= piece.len();
            self.near.receive_from_client(piece)?;
            has_worked = true;
        }
        // Near half to far half.
        while self.to_far.bytes < self.setup.link_bytes {
            let Some(message) = self.near.next_far_message() else {
                break;
            };
            if let ToFar::Request { packet, .. } = &message {
                let is_read = packet.pieces().next().is_some_and(|piece| piece[0] == 5);
                self.outcome.relayed_reads += u64::from(is_read);
            }
            let encoded = message.encode();
            let (kind, length) = (encoded.kind, encoded.body_len());
            let message = ToFar::decode(kind, encoded.into_body()).expect("it reads back");
            self.to_far
                .send(message, length, self.now + self.setup.delay);
            has_worked = true;
        }
        while self.far.wants_near_messages() {
            let Some(message) = self.to_far.take(self.now) else {
                break;
            };
            self.far.receive_from_near(message)?;
            has_worked = true;
        }
        // Far half to server, and back.
        while let Some(bytes) = self.far.next_server_bytes() {
            self.server.receive(bytes, self.now, &mut self.rng);
            has_worked = true;
        }
        has_worked |= self.server.run(self.now, &mut self.rng);
        while self.far.wants_server_bytes() {
            let Some(piece) = self.server.output.pop_front() else {
                break;
            };
            self.far.receive_from_server(piece)?;
            has_worked = true;
        }
        // Far half to near half.
        while self.to_near.bytes < self.setup.link_bytes {
            let Some(message) = self.far.next_near_message() else {
                break;
            };
            let encoded = message.encode();
            let (kind, length) = (encoded.kind, encoded.body_len());
            let message = ToNear::decode(kind, encoded.into_body()).expect("it reads back");
            self.to_near
                .send(message, length, self.now + self.setup.delay);
            has_worked = true;
        }
        while self.near.wants_far_messages() {
            let Some(message) = self.to_near.take(self.now) else {
                break;
            };
            self.near.receive_from_far(message)?;
            has_worked = true;
        }
        // Near half to client.
        let mut taken = 0;
        while taken < self.setup.client_rate {
            let Some(bytes) = self.near.next_client_bytes() else {
                break;
            };
            taken += bytes.len();
            self.client.receive(bytes);
            has_worked = true;
        }
        while let Some(event) = self.near.next_event() {
            self.note(&event);
        }
        Ok(has_worked)
    }

    fn note(&mut self, event: &TransferEvent) {
        match event {
            TransferEvent::Started { handle, .. } => self.open_transfers.push(*handle),
            TransferEvent::Bytes { handle, count } => {
                assert!(*count > 0, "events have bytes");
                let _ = handle;
            }
            TransferEvent::Finished { handle, .. } => {
                let before = self.open_transfers.len();
                self.open_transfers.retain(|other| other != handle);
                assert_eq!(self.open_transfers.len() + 1, before, "it had started");
            }
        }
    }

    fn check_memory(&self) -> Result<(), String> {
        // The sum is 11 MiB for queues, 1 MiB for listings, and 3 MiB for requests that the near
        // half sends before the client does.
        let near_max = self.setup.near.read_ahead_max + (15 << 20);
        let near_bytes = self.near.queued_bytes();
        if near_bytes > near_max {
            return Err(format!("the near half holds {near_bytes} bytes"));
        }
        let far_max = 2 * self.setup.far.reads_max + (12 << 20);
        let far_bytes = self.far.queued_bytes() as u64;
        if far_bytes > far_max {
            return Err(format!("the far half holds {far_bytes} bytes"));
        }
        Ok(())
    }

    fn check_end(&mut self, is_whole: bool) -> Result<(), String> {
        self.near.end("the session has ended");
        while let Some(event) = self.near.next_event() {
            self.note(&event);
        }
        if !self.open_transfers.is_empty() {
            return Err("a transfer has no end".to_owned());
        }
        if is_whole && self.server.open_handles() > 0 {
            return Err("the server has open handles".to_owned());
        }
        if self.has_garbage {
            return Ok(());
        }
        for (number, job) in self.client.jobs.iter().enumerate() {
            if !job.is_done() {
                continue;
            }
            let fault = |why: String| format!("job {number}, {:?}: {why}", job.task);
            let is_ok = !job.failed && !job.write_failed;
            match &job.task {
                Task::Upload {
                    path,
                    seed,
                    size,
                    renames,
                    ..
                } => {
                    self.outcome.uploads += 1;
                    let to = renamed(path);
                    let last = if *renames && is_ok { &to } else { path };
                    let file = self.server.files.get(last);
                    let is_right = file.is_some_and(|file| *file == content(*seed, *size as usize));
                    let has_failed_write = self.server.failed_writes.contains(last);
                    let has_failed = has_failed_write || self.server.failed_others.contains(last);
                    self.outcome.broken_uploads += u64::from(has_failed);
                    if is_ok && !is_right {
                        return Err(fault(
                            "the file is broken, but the client saw only OK".into(),
                        ));
                    }
                    if is_ok && has_failed {
                        return Err(fault("a request failed, but the client saw only OK".into()));
                    }
                    // Some clients ignore a failure of CLOSE.
                    let NearSettings {
                        early, is_openssh, ..
                    } = self.setup.near;
                    let is_early = early == EarlyReplies::All || is_openssh;
                    if has_failed_write && !job.write_failed && !is_early {
                        return Err(fault("no WRITE reported the failure".into()));
                    }
                }
                // A server may close the file before it answers the READs.
                Task::Download {
                    closes_after: Some(_),
                    ..
                } => {}
                Task::Download { .. } => {
                    self.outcome.downloads += 1;
                    if is_ok {
                        job.check_download().map_err(fault)?;
                    } else if self.server.traits.failing_read.is_none() {
                        return Err(fault("the download failed".into()));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
