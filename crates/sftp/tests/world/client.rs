//! An SFTP client that performs jobs, with the request patterns of several programs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sftp::{
    Rope,
    packet::{
        Attrs, ExtendedRequest, Greeting, GreetingSource, OpenFlags, PacketSplitter, Request,
        Response, Status, StatusCode, Times,
    },
};

use crate::{
    rng::{Rng, content},
    server::{entry, text},
};

/// Pattern in which a client sends READs or WRITEs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestPattern {
    /// Bytes of a request.
    pub(crate) size: u64,
    /// Maximum number of outstanding requests.
    pub(crate) window: usize,
    /// Whether the number of outstanding requests begins at one, and grows with each answer.
    pub(crate) grows: bool,
    /// Whether the client waits for the answers of a whole window (curl's upload).
    pub(crate) waits_for_all: bool,
    /// Number of requests within which the order is arbitrary.
    pub(crate) reordered: u64,
}

impl RequestPattern {
    pub(crate) const fn new(size: u64, window: usize) -> Self {
        Self {
            size,
            window,
            grows: false,
            waits_for_all: false,
            reordered: 1,
        }
    }

    /// Manners of programs, as measured.
    pub(crate) const PROGRAMS: [Self; 8] = [
        // OpenSSH, up and down.
        Self::new(255 * 1024, 64),
        Self {
            grows: true,
            ..Self::new(255 * 1024, 64)
        },
        // sshfs, up and down.
        Self::new(32 * 1024, usize::MAX),
        Self::new(32 * 1024, 3),
        // lftp, curl, psftp.
        Self::new(32 * 1024, 16),
        Self {
            waits_for_all: true,
            ..Self::new(32 * 1024, 2)
        },
        Self::new(4 * 1024, 1579),
        // A client with some disorder.
        Self {
            reordered: 8,
            ..Self::new(32 * 1024, 64)
        },
    ];

    pub(crate) fn any(rng: &mut Rng) -> Self {
        if rng.one_in(4) {
            return Self {
                reordered: rng.between(1, 12),
                ..Self::new(rng.between(1, 90_000), rng.between(1, 64) as usize)
            };
        }
        rng.pick(&Self::PROGRAMS)
    }
}

/// Job of a client.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    Upload {
        path: Bytes,
        seed: u64,
        size: u64,
        has_fsync: bool,
        has_set_stat: bool,
        /// Whether the client sends CLOSE before the answer to the last WRITE.
        closes_at_once: bool,
        /// Whether the client compares the size in the middle of the upload.
        checks_size: bool,
        renames: bool,
    },
    Download {
        path: Bytes,
        seed: u64,
        size: u64,
        /// Offset at which the download begins.
        start: u64,
        /// Number of answers after which the client closes the file, with READs outstanding.
        closes_after: Option<u64>,
    },
    /// READs at any offsets.
    Random {
        path: Bytes,
        seed: u64,
        size: u64,
        count: u64,
        /// Whether several READs in sequence follow some seeks.
        seeks: bool,
    },
    List {
        entries: usize,
    },
    /// Requests without a file.
    Odd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sent {
    Open,
    Data {
        offset: u64,
        length: u64,
    },
    Fsync,
    SetStat,
    Close,
    /// Comparison of the size with the bytes that are confirmed.
    Size {
        confirmed: u64,
    },
    Rename,
    Folder,
    Odd(Option<StatusCode>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Open,
    Data,
    Fsync,
    SetStat,
    Close,
    Rename,
    Done,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) task: Task,
    pattern: RequestPattern,
    step: Step,
    handle: Bytes,
    outstanding: usize,
    window: usize,
    /// Offsets and lengths of requests to send.
    queue: VecDeque<(u64, u64)>,
    bytes: Vec<u8>,
    received: BTreeMap<u64, u64>,
    answers: u64,
    end: Option<u64>,
    /// Ranges (offset and end) of the confirmed WRITEs.
    confirmed: BTreeSet<(u64, u64)>,
    names: usize,
    has_checked: bool,
    /// Whether a WRITE or another request failed.
    pub(crate) write_failed: bool,
    pub(crate) failed: bool,
    pub(crate) close_failed: bool,
}

impl Job {
    pub(crate) fn new(task: Task, pattern: RequestPattern, rng: &mut Rng) -> Self {
        let mut queue = VecDeque::new();
        let mut bytes = Vec::new();
        match &task {
            Task::Upload { seed, size, .. } => {
                bytes = content(*seed, *size as usize);
                queue = in_pieces(0, *size, pattern, rng);
            }
            Task::Download {
                seed, size, start, ..
            } => {
                bytes = content(*seed, *size as usize);
                // The client does not know the size, and reads beyond the end.
                let beyond = pattern.size * rng.between(1, 3);
                queue = in_pieces(*start, size + beyond, pattern, rng);
            }
            Task::Random {
                seed,
                size,
                count,
                seeks,
                ..
            } => {
                bytes = content(*seed, *size as usize);
                for _ in 0..*count {
                    let mut offset = rng.below(size + 10);
                    let length = rng.between(1, 70_000);
                    // Some media players read several times in sequence after each seek.
                    let reads = if *seeks && rng.one_in(3) {
                        rng.between(4, 30)
                    } else {
                        1
                    };
                    for _ in 0..reads {
                        queue.push_back((offset, length));
                        offset += length;
                    }
                }
            }
            Task::List { .. } | Task::Odd => {}
        }
        Self {
            task,
            pattern,
            step: Step::Open,
            handle: Bytes::new(),
            outstanding: 0,
            window: if pattern.grows { 1 } else { pattern.window },
            queue,
            bytes,
            received: BTreeMap::new(),
            answers: 0,
            end: None,
            confirmed: BTreeSet::new(),
            names: 0,
            has_checked: false,
            write_failed: false,
            failed: false,
            close_failed: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.step == Step::Done && self.outstanding == 0
    }

    fn has_failed(&self) -> bool {
        self.failed || self.write_failed
    }

    /// Returns the number of confirmed bytes at the start of the file, up to the first gap.
    fn confirmed_end(&self) -> u64 {
        let mut end = 0;
        for &(offset, piece_end) in &self.confirmed {
            if offset > end {
                break;
            }
            end = end.max(piece_end);
        }
        end
    }
}

/// Cuts a range into requests.
fn in_pieces(start: u64, end: u64, pattern: RequestPattern, rng: &mut Rng) -> VecDeque<(u64, u64)> {
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    let mut offset = start;
    while offset < end {
        let length = pattern.size.min(end - offset);
        pieces.push((offset, length));
        offset += length;
    }
    for block in pieces.chunks_mut(pattern.reordered as usize) {
        for at in 1..block.len() {
            block.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    pieces.into()
}

pub(crate) struct Client {
    pub(crate) jobs: Vec<Job>,
    /// Number of jobs at the same time.
    parallel: usize,
    splitter: PacketSplitter,
    is_greeted: bool,
    /// Whether the client begins by `limits@openssh.com`, as OpenSSH's programs do.
    begins_with_limits: bool,
    sent: BTreeMap<u32, (usize, Sent)>,
    next_id: u32,
    pub(crate) output: VecDeque<Bytes>,
    pub(crate) output_bytes: usize,
    /// Fault that the client has detected in the gateways.
    pub(crate) fault: Option<String>,
}

impl Client {
    pub(crate) fn new(jobs: Vec<Job>, parallel: usize) -> Self {
        let init = Greeting {
            version: 3,
            extensions: Vec::new(),
        };
        let mut client = Self {
            jobs,
            parallel,
            splitter: PacketSplitter::default(),
            is_greeted: false,
            begins_with_limits: false,
            sent: BTreeMap::new(),
            next_id: 0,
            output: VecDeque::new(),
            output_bytes: 0,
            fault: None,
        };
        client.write(init.encode(GreetingSource::Client));
        client
    }

    /// Lets the client begin as OpenSSH's programs do.
    pub(crate) fn like_openssh(mut self) -> Self {
        self.begins_with_limits = true;
        self
    }

    pub(crate) fn is_done(&self) -> bool {
        self.jobs.iter().all(Job::is_done)
    }

    pub(crate) fn outstanding(&self) -> String {
        let jobs = self.jobs.iter().filter(|job| !job.is_done());
        let jobs: Vec<_> = jobs
            .map(|job| format!("{:?} {:?} {:?}", job.task, job.pattern, job.step))
            .collect();
        let sent: Vec<_> = self.sent.iter().take(5).collect();
        format!("{sent:?} {} {jobs:?}", self.output_bytes)
    }

    fn write(&mut self, packet: Rope) {
        self.output_bytes += packet.len();
        self.output.extend(packet);
    }

    fn request(&mut self, job: usize, sent: Sent, request: &Request) {
        let id = self.next_id;
        // Some clients count in steps, and some begin near the maximum.
        self.next_id = self.next_id.wrapping_add(1);
        self.sent.insert(id, (job, sent));
        self.jobs[job].outstanding += 1;
        self.write(request.encode(id));
    }

    /// Sends the requests that are due. Returns whether there were any.
    pub(crate) fn run(&mut self) -> bool {
        if !self.is_greeted {
            return false;
        }
        let mut has_worked = std::mem::take(&mut self.begins_with_limits);
        if has_worked {
            let request = Request::Extended(ExtendedRequest::Limits);
            self.request(0, Sent::Odd(None), &request);
        }
        let active: Vec<usize> = (0..self.jobs.len())
            .filter(|job| !self.jobs[*job].is_done())
            .take(self.parallel)
            .collect();
        for job in active {
            // The channel of the client has a window.
            while self.output_bytes < OUTPUT_MAX && self.advance(job) {
                has_worked = true;
            }
        }
        has_worked
    }

    fn advance(&mut self, number: usize) -> bool {
        let job = &mut self.jobs[number];
        let handle = job.handle.clone();
        match (job.step, &job.task) {
            (Step::Open, _) if job.outstanding > 0 => false,
            (Step::Open, task) => {
                let attrs = Attrs::default();
                let request = match task {
                    Task::Upload { path, .. } => Request::Open {
                        path: path.clone(),
                        flags: OpenFlags::WRITE
                            .union(OpenFlags::CREATE)
                            .union(OpenFlags::TRUNCATE),
                        attrs,
                    },
                    Task::Download { path, .. } | Task::Random { path, .. } => Request::Open {
                        path: path.clone(),
                        flags: OpenFlags::READ,
                        attrs,
                    },
                    Task::List { .. } => Request::OpenDir {
                        path: text("folder"),
                    },
                    Task::Odd => {
                        self.send_odd(number);
                        self.jobs[number].step = Step::Done;
                        return true;
                    }
                };
                self.request(number, Sent::Open, &request);
                true
            }
            (Step::Data, Task::List { .. }) => {
                if job.outstanding > 0 {
                    return false;
                }
                self.request(number, Sent::Folder, &Request::ReadDir { handle });
                true
            }
            (Step::Data, Task::Upload { .. }) => self.advance_upload(number),
            (Step::Data, _) => self.advance_download(number),
            (Step::Fsync, _) if job.outstanding == 0 => {
                job.step = Step::SetStat;
                let Task::Upload { has_fsync, .. } = job.task else {
                    return true;
                };
                if has_fsync {
                    let request = Request::Extended(ExtendedRequest::Fsync { handle });
                    self.request(number, Sent::Fsync, &request);
                }
                true
            }
            (Step::SetStat, Task::Upload { has_set_stat, .. }) if job.outstanding == 0 => {
                let has_set_stat = *has_set_stat;
                job.step = Step::Close;
                if has_set_stat {
                    let times = Times {
                        accessed_s: 1,
                        modified_s: 2,
                    };
                    let attrs = Attrs {
                        times: Some(times),
                        ..Attrs::default()
                    };
                    self.request(number, Sent::SetStat, &Request::FsetStat { handle, attrs });
                }
                true
            }
            (Step::Close, task) => {
                let is_abrupt = matches!(
                    task,
                    Task::Upload {
                        closes_at_once: true,
                        ..
                    } | Task::Download {
                        closes_after: Some(_),
                        ..
                    }
                );
                if job.outstanding > 0 && !is_abrupt {
                    return false;
                }
                job.step = Step::Rename;
                self.request(number, Sent::Close, &Request::Close { handle });
                true
            }
            (Step::Rename, task) if job.outstanding == 0 => {
                let rename = match task {
                    Task::Upload {
                        path,
                        renames: true,
                        ..
                    } if !job.has_failed() => Some(path.clone()),
                    _ => None,
                };
                job.step = Step::Done;
                if let Some(from) = rename {
                    let to = renamed(&from);
                    self.request(number, Sent::Rename, &Request::Rename { from, to });
                }
                true
            }
            _ => false,
        }
    }

    /// Returns whether the pattern permits a further request.
    fn has_room(job: &Job, is_waiting: bool) -> bool {
        job.outstanding < job.window && !(job.pattern.waits_for_all && is_waiting)
    }

    fn advance_upload(&mut self, number: usize) -> bool {
        let job = &mut self.jobs[number];
        let Task::Upload {
            ref path,
            closes_at_once,
            checks_size,
            ..
        } = job.task
        else {
            unreachable!("the job is an upload");
        };
        if job.queue.is_empty() || job.write_failed {
            if closes_at_once {
                job.step = Step::Close;
                return true;
            }
            job.step = Step::Fsync;
            return true;
        }
        if checks_size && !job.has_checked && job.answers > 3 {
            job.has_checked = true;
            let confirmed = job.confirmed_end();
            let path = path.clone();
            self.request(number, Sent::Size { confirmed }, &Request::Stat { path });
            return true;
        }
        let is_waiting = job.pattern.waits_for_all && job.outstanding >= job.window;
        if !Self::has_room(job, is_waiting) {
            return false;
        }
        let (offset, length) = job.queue.pop_front().expect("the queue is not empty");
        let data = Bytes::copy_from_slice(&job.bytes[offset as usize..(offset + length) as usize]);
        let handle = job.handle.clone();
        let request = Request::Write {
            handle,
            offset,
            data: data.into(),
        };
        self.request(number, Sent::Data { offset, length }, &request);
        true
    }

    fn advance_download(&mut self, number: usize) -> bool {
        let job = &mut self.jobs[number];
        if let Task::Download {
            closes_after: Some(count),
            ..
        } = job.task
            && job.answers >= count
        {
            job.queue.clear();
            job.step = Step::Close;
            return true;
        }
        if job.failed {
            job.queue.clear();
        }
        let Some(&(offset, length)) = job.queue.front() else {
            if job.outstanding > 0 {
                return false;
            }
            job.step = Step::Close;
            return true;
        };
        if !Self::has_room(job, false) {
            return false;
        }
        job.queue.pop_front();
        let request = Request::Read {
            handle: job.handle.clone(),
            offset,
            length: length as u32,
        };
        self.request(number, Sent::Data { offset, length }, &request);
        true
    }

    fn send_odd(&mut self, number: usize) {
        let sent = Sent::Odd(Some(StatusCode::NO_SUCH_FILE));
        let path = text("missing");
        let attrs = Attrs::default();
        self.request(number, sent.clone(), &Request::Stat { path: path.clone() });
        let flags = OpenFlags::READ;
        self.request(number, sent, &Request::Open { path, flags, attrs });
        let path = text("/");
        self.request(number, Sent::Odd(None), &Request::RealPath { path });
        self.request(
            number,
            Sent::Odd(Some(StatusCode::FAILURE)),
            &Request::Close {
                handle: text("no handle"),
            },
        );
        self.request(
            number,
            Sent::Odd(None),
            &Request::Extended(ExtendedRequest::Limits),
        );
        let unknown = ExtendedRequest::Unknown {
            name: text("x@y"),
            body: vec![1, 2, 3].into(),
        };
        let sent = Sent::Odd(Some(StatusCode::OP_UNSUPPORTED));
        self.request(number, sent, &Request::Extended(unknown));
        for (kind, body, code) in [
            (77, &[1u8, 2][..], StatusCode::OP_UNSUPPORTED),
            (5, &[0, 0, 0, 9, 1], StatusCode::BAD_MESSAGE),
            (6, &[0, 0, 0, 1, 1, 0], StatusCode::BAD_MESSAGE),
        ] {
            let id = self.next_id;
            self.next_id = self.next_id.wrapping_add(1);
            self.sent.insert(id, (number, Sent::Odd(Some(code))));
            self.jobs[number].outstanding += 1;
            let mut packet = (5 + body.len() as u32).to_be_bytes().to_vec();
            packet.push(kind);
            packet.extend_from_slice(&id.to_be_bytes());
            packet.extend_from_slice(body);
            self.write(packet.into());
        }
    }

    pub(crate) fn receive(&mut self, bytes: Bytes) {
        self.splitter.push(bytes);
        while let Some(packet) = self.splitter.next_packet().expect("packets are short") {
            if !self.is_greeted {
                let greeting = Greeting::decode(GreetingSource::Server, packet);
                assert_eq!(greeting.expect("VERSION is first").version, 3);
                self.is_greeted = true;
                continue;
            }
            let (id, response) = Response::decode(packet).expect("answers are well formed");
            let Some((job, sent)) = self.sent.remove(&id) else {
                self.fault = Some(format!("an answer to no request: {response:.100?}"));
                return;
            };
            self.jobs[job].outstanding -= 1;
            if let Err(fault) = self.answered(job, &sent, response) {
                self.fault = Some(format!("job {job}, {sent:?}: {fault}"));
            }
        }
    }

    fn answered(&mut self, number: usize, sent: &Sent, response: Response) -> Result<(), String> {
        let job = &mut self.jobs[number];
        let unexpected = |response: &Response| Err(format!("the answer is {response:.100?}"));
        match (sent, response) {
            (Sent::Open, Response::Handle(handle)) => {
                job.handle = handle;
                job.step = Step::Data;
            }
            (Sent::Open, Response::Status(_)) => {
                job.failed = true;
                job.step = Step::Done;
            }
            (Sent::Data { offset, length }, response) => {
                job.answers += 1;
                if job.pattern.grows && job.window < job.pattern.window {
                    job.window += 1;
                }
                match &job.task {
                    Task::Upload { .. } => match response {
                        Response::Status(status) if status.is_ok() => {
                            job.confirmed.insert((*offset, offset + length));
                        }
                        Response::Status(_) => job.write_failed = true,
                        response => return unexpected(&response),
                    },
                    _ => return job.received(*offset, *length, response),
                }
            }
            (Sent::Fsync | Sent::SetStat | Sent::Rename, Response::Status(status)) => {
                job.failed |= !status.is_ok();
            }
            (Sent::Close, Response::Status(status)) => {
                job.failed |= !status.is_ok();
                job.close_failed = !status.is_ok();
            }
            (Sent::Size { confirmed }, Response::Attrs(attrs)) => {
                if attrs.size.unwrap_or_default() < *confirmed && !job.has_failed() {
                    let size = attrs.size.unwrap_or_default();
                    return Err(format!("size is {size}, but {confirmed} are confirmed"));
                }
            }
            (Sent::Folder, Response::Names(names)) => {
                for name in names {
                    if name != entry(job.names) {
                        return Err(format!("entry {} is {name:?}", job.names));
                    }
                    job.names += 1;
                }
            }
            (Sent::Folder, Response::Status(status)) => {
                job.step = Step::Close;
                if status.code != StatusCode::EOF {
                    job.failed = true;
                } else if let Task::List { entries } = job.task
                    && entries != job.names
                {
                    return Err(format!("{} entries of {entries}", job.names));
                }
            }
            (Sent::Odd(expected), response) => match (expected, &response) {
                (Some(code), Response::Status(Status { code: got, .. })) if code == got => {}
                (None, Response::Names(_) | Response::Extended(_)) => {}
                _ => return unexpected(&response),
            },
            (_, response) => return unexpected(&response),
        }
        Ok(())
    }
}

impl Job {
    fn received(&mut self, offset: u64, length: u64, response: Response) -> Result<(), String> {
        match response {
            Response::Data(data) => {
                let data = data.into_bytes();
                let end = offset + data.len() as u64;
                if data.is_empty() || data.len() as u64 > length {
                    return Err(format!("{} bytes", data.len()));
                }
                if self.bytes.get(offset as usize..end as usize) != Some(&data[..]) {
                    return Err("wrong bytes".to_owned());
                }
                self.received.insert(offset, end);
                if (data.len() as u64) < length && self.step == Step::Data {
                    self.queue.push_front((end, offset + length - end));
                }
            }
            Response::Status(status) if status.code == StatusCode::EOF => {
                if offset < self.bytes.len() as u64 {
                    return Err("the end is early".to_owned());
                }
                self.end = Some(offset);
            }
            Response::Status(_) => self.failed = true,
            response => return Err(format!("the answer is {response:.100?}")),
        }
        Ok(())
    }

    /// Returns a fault of a download that has ended without a failure.
    pub(crate) fn check_download(&self) -> Result<(), String> {
        let Task::Download {
            size,
            start,
            closes_after: None,
            ..
        } = self.task
        else {
            return Ok(());
        };
        let mut covered = start;
        for (&offset, &end) in &self.received {
            if offset > covered {
                break;
            }
            covered = covered.max(end);
        }
        if covered < size {
            return Err(format!("{covered} of {size} bytes have arrived"));
        }
        match self.end {
            Some(_) => Ok(()),
            None => Err("the end has not arrived".to_owned()),
        }
    }
}

/// Returns the name of a file after its upload.
pub(crate) fn renamed(path: &[u8]) -> Bytes {
    [path, b".renamed"].concat().into()
}

/// Bytes that the client writes before the gateway takes them: OpenSSH's window.
const OUTPUT_MAX: usize = 2 << 20;
