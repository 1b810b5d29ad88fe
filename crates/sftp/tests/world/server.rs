//! An SFTP server in memory. It may fail, answer in any order, and send garbage.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sftp::{
    Rope,
    packet::{
        Attrs, ExtendedRequest, Greeting, GreetingSource, Limits, Name, OpenFlags, PacketSplitter,
        Request, Response, Status, StatusCode,
    },
};

use crate::rng::Rng;

/// Behaviour of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerTraits {
    pub(crate) has_limits: bool,
    /// Maximum number of bytes in an answer to READ.
    pub(crate) read_max: usize,
    /// Maximum time between a request and its execution. The server executes requests in any order
    /// if the time is not zero.
    pub(crate) delay_max: u64,
    /// Whether requests are executed one after the other.
    pub(crate) is_sequential: bool,
    /// Number of the WRITE that fails.
    pub(crate) failing_write: Option<u64>,
    /// Offset: a WRITE that contains this byte fails.
    pub(crate) failing_offset: Option<u64>,
    pub(crate) fails_close: bool,
    pub(crate) fails_set_stat: bool,
    pub(crate) fails_fsync: bool,
    /// Offset: a READ that contains this byte fails.
    pub(crate) failing_read: Option<u64>,
    /// Whether some READs return fewer bytes than requested.
    pub(crate) has_short_reads: bool,
    pub(crate) fails_folder: bool,
    /// Number of the OPEN for writing that fails.
    pub(crate) failing_open: Option<u64>,
    /// Maximum number of open handles. Zero means that there is no limit.
    pub(crate) handles_max: usize,
    /// Time at which the server sends a packet that the protocol forbids.
    pub(crate) garbage_at: Option<u64>,
}

#[derive(Debug)]
enum Open {
    File { path: Bytes, may_write: bool },
    Folder { names: Vec<Name>, next: usize },
}

pub(crate) struct Server {
    pub(crate) traits: ServerTraits,
    pub(crate) files: BTreeMap<Bytes, Vec<u8>>,
    pub(crate) entries: usize,
    /// Paths of files for which some WRITE has failed.
    pub(crate) failed_writes: BTreeSet<Bytes>,
    /// Paths of files for which some other request has failed.
    pub(crate) failed_others: BTreeSet<Bytes>,
    pub(crate) reads: u64,
    /// Number of bytes in the answers to READs.
    pub(crate) read_bytes: u64,
    /// Number of OPENs for writing.
    opens: u64,
    /// Number of removed files.
    orphans: u64,
    splitter: PacketSplitter,
    is_greeted: bool,
    open: BTreeMap<u64, Open>,
    next_handle: u64,
    writes: u64,
    waiting: VecDeque<(u64, u32, Request)>,
    /// Bytes for the far half.
    pub(crate) output: VecDeque<Bytes>,
}

impl Server {
    pub(crate) fn new(traits: ServerTraits) -> Self {
        Self {
            traits,
            files: BTreeMap::new(),
            entries: 0,
            failed_writes: BTreeSet::new(),
            failed_others: BTreeSet::new(),
            reads: 0,
            read_bytes: 0,
            opens: 0,
            orphans: 0,
            splitter: PacketSplitter::default(),
            is_greeted: false,
            open: BTreeMap::new(),
            next_handle: 0,
            writes: 0,
            waiting: VecDeque::new(),
            output: VecDeque::new(),
        }
    }

    pub(crate) fn open_handles(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn receive(&mut self, bytes: Bytes, now: u64, rng: &mut Rng) {
        self.splitter.push(bytes);
        while let Some(packet) = self.splitter.next_packet().expect("packets are short") {
            if !self.is_greeted {
                let init = Greeting::decode(GreetingSource::Client, packet).expect("INIT is first");
                assert_eq!(init.version, 3);
                self.is_greeted = true;
                let mut extensions = Vec::new();
                if self.traits.has_limits {
                    extensions.push((text("limits@openssh.com"), text("1")));
                }
                extensions.push((text("fsync@openssh.com"), text("1")));
                let version = 3;
                let greeting = Greeting {
                    version,
                    extensions,
                };
                self.output.extend(greeting.encode(GreetingSource::Server));
                continue;
            }
            let (id, request) = Request::decode(packet).expect("the gateway sends valid requests");
            let delay = rng.below(self.traits.delay_max + 1);
            self.waiting.push_back((now + delay, id, request));
        }
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        if self.traits.is_sequential {
            return self.waiting.front().map(|(due, ..)| *due);
        }
        self.waiting.iter().map(|(due, ..)| *due).min()
    }

    /// Executes the requests that are due. Returns whether there were any.
    pub(crate) fn run(&mut self, now: u64, rng: &mut Rng) -> bool {
        let mut has_worked = false;
        if self.traits.garbage_at.is_some_and(|at| at <= now) && self.is_greeted {
            self.traits.garbage_at = None;
            self.send_garbage(rng);
            has_worked = true;
        }
        while let Some(at) = self.next_executable(now) {
            let (_, id, request) = self.waiting.remove(at).expect("the request waits");
            let response = self.execute(request, rng);
            self.output.extend(response.encode(id));
            has_worked = true;
        }
        has_worked
    }

    /// Returns the position of the next request to execute. A server may execute a CLOSE before an
    /// earlier WRITE, but not before an earlier READ.
    fn next_executable(&self, now: u64) -> Option<usize> {
        let last = if self.traits.is_sequential {
            1
        } else {
            usize::MAX
        };
        let mut waiting = self.waiting.iter().take(last).enumerate();
        let (at, _) = waiting.find(|(at, (due, _, request))| {
            let is_early = |(_, _, other): &(u64, u32, Request)| match (other, request) {
                (
                    Request::Read { handle, .. } | Request::ReadDir { handle },
                    Request::Close { handle: closed },
                ) => handle == closed,
                _ => false,
            };
            *due <= now && !self.waiting.iter().take(*at).any(is_early)
        })?;
        Some(at)
    }

    fn send_garbage(&mut self, rng: &mut Rng) {
        let handle = Response::Handle(text("garbage"));
        let packet = match rng.below(6) {
            0 => Response::Status(Status::ok()).encode(rng.next() as u32),
            1 => Rope::from(vec![0, 0, 0, 0]),
            2 => Rope::from(vec![255, 0, 0, 0, 1]),
            3 => Rope::from(vec![0, 0, 0, 2, 101, 0]),
            4 => match self.waiting.pop_front() {
                Some((_, id, _)) => handle.encode(id),
                None => handle.encode(0),
            },
            _ => match self.waiting.pop_front() {
                Some((_, id, _)) => Response::Data(vec![1; 300_000].into()).encode(id),
                None => Rope::from(vec![0, 0, 0, 1, 9]),
            },
        };
        self.output.extend(packet);
    }

    fn execute(&mut self, request: Request, rng: &mut Rng) -> Response {
        let ok = Response::Status(Status::ok());
        let failure = |text| Response::Status(Status::new(StatusCode::FAILURE, text));
        match request {
            Request::Open { path, flags, .. } => {
                let may_write = flags.contains(OpenFlags::WRITE);
                self.opens += u64::from(may_write);
                if may_write && self.traits.failing_open == Some(self.opens) {
                    self.failed_others.insert(path);
                    let status = Status::new(StatusCode::PERMISSION_DENIED, "no permission");
                    return Response::Status(status);
                }
                if self.traits.handles_max > 0 && self.open.len() >= self.traits.handles_max {
                    return failure("too many open files");
                }
                if flags.contains(OpenFlags::CREATE) {
                    self.files.entry(path.clone()).or_default();
                }
                let Some(file) = self.files.get_mut(&path) else {
                    return Response::Status(Status::new(StatusCode::NO_SUCH_FILE, "no file"));
                };
                if flags.contains(OpenFlags::TRUNCATE) {
                    file.clear();
                }
                self.opened(Open::File { path, may_write })
            }
            Request::OpenDir { path } => {
                let names = self.names(&path);
                self.opened(Open::Folder { names, next: 0 })
            }
            Request::Close { handle } => match self.open.remove(&number(&handle)) {
                Some(Open::File { path, may_write }) if may_write && self.traits.fails_close => {
                    self.failed_others.insert(path);
                    failure("quota exceeded at close")
                }
                Some(_) => ok,
                None => failure("invalid handle"),
            },
            Request::Read {
                handle,
                offset,
                length,
            } => self.read(&handle, offset, length, rng),
            Request::Write {
                handle,
                offset,
                data,
            } => self.write(&handle, offset, &data.into_bytes()),
            Request::Fstat { handle } => match self.path(&handle) {
                Some(path) => self.stat(&path),
                None => failure("invalid handle"),
            },
            Request::Stat { path } | Request::Lstat { path } => self.stat(&path),
            Request::FsetStat { handle, attrs } => match self.path(&handle) {
                Some(path) => self.set_stat(path, &attrs),
                None => failure("invalid handle"),
            },
            Request::SetStat { path, attrs } => self.set_stat(path, &attrs),
            Request::Extended(ExtendedRequest::CopyData {
                from,
                from_offset,
                length,
                to,
                to_offset,
            }) => match self.path(&from).and_then(|path| self.files.get(&path)) {
                Some(source) => {
                    let end = (from_offset + length) as usize;
                    let data = source[from_offset as usize..end].to_vec();
                    self.write(&to, to_offset, &data)
                }
                None => failure("invalid handle"),
            },
            Request::Extended(ExtendedRequest::Fsync { handle }) => match self.path(&handle) {
                Some(path) if self.traits.fails_fsync => {
                    self.failed_others.insert(path);
                    failure("disk error")
                }
                Some(_) => ok,
                None => failure("invalid handle"),
            },
            Request::Extended(ExtendedRequest::Limits) => Response::Extended(
                Limits {
                    packet_max_bytes: 262_144,
                    read_max_bytes: self.traits.read_max as u64,
                    write_max_bytes: 261_120,
                    handles_max: 0,
                }
                .encode(),
            ),
            Request::ReadDir { handle } => {
                let is_failing = self.traits.fails_folder;
                let Some(Open::Folder { names, next }) = self.open.get_mut(&number(&handle)) else {
                    return failure("invalid handle");
                };
                if *next >= names.len() {
                    return Response::Status(Status::eof());
                }
                if is_failing && *next > names.len() / 2 {
                    // OpenSSH's server reports the failure once.
                    *next = names.len();
                    return failure("cannot read the folder");
                }
                let last = (*next + 100).min(names.len());
                let part = names[*next..last].to_vec();
                *next = last;
                Response::Names(part)
            }
            Request::Rename { from, to } => match self.files.get(&from).cloned() {
                Some(file) => {
                    if from != to {
                        self.remove(&to);
                    }
                    self.files.remove(&from);
                    for failed in [&mut self.failed_writes, &mut self.failed_others] {
                        if failed.contains(&from) {
                            failed.insert(to.clone());
                        }
                    }
                    for open in self.open.values_mut() {
                        match open {
                            Open::File { path, .. } if *path == from => *path = to.clone(),
                            _ => {}
                        }
                    }
                    self.files.insert(to, file);
                    ok
                }
                None => Response::Status(Status::new(StatusCode::NO_SUCH_FILE, "no file")),
            },
            Request::Remove { path } => match self.remove(&path) {
                true => ok,
                false => Response::Status(Status::new(StatusCode::NO_SUCH_FILE, "no file")),
            },
            Request::RealPath { path } => Response::Names(vec![Name {
                name: path.clone(),
                long_name: path,
                attrs: Attrs::default(),
            }]),
            _ => Response::Status(Status::new(StatusCode::OP_UNSUPPORTED, "not supported")),
        }
    }

    fn opened(&mut self, open: Open) -> Response {
        // The server uses the lowest free number, as real servers do. A closed handle is therefore
        // soon used again.
        let mut handle = 0;
        while self.open.contains_key(&handle) {
            handle += 1;
        }
        self.next_handle += 1;
        self.open.insert(handle, open);
        Response::Handle(text(&handle.to_string()))
    }

    /// Removes a file. Open handles keep its bytes. Returns whether the file existed.
    pub(crate) fn remove(&mut self, removed: &[u8]) -> bool {
        let Some(file) = self.files.remove(removed) else {
            return false;
        };
        self.orphans += 1;
        let orphan = text(&format!("removed file {}", self.orphans));
        let mut is_open = false;
        for open in self.open.values_mut() {
            match open {
                Open::File { path, .. } if path[..] == *removed => {
                    *path = orphan.clone();
                    is_open = true;
                }
                _ => {}
            }
        }
        if is_open {
            self.files.insert(orphan, file);
        }
        true
    }

    /// Returns the entries of a folder: its files, or `entries` names in a folder without files.
    /// The order is not the order of the names.
    fn names(&self, folder: &[u8]) -> Vec<Name> {
        let prefix = [folder, b"/"].concat();
        let files = self.files.iter().filter_map(|(path, file)| {
            let name = path.strip_prefix(&prefix[..])?;
            Some((name.iter().rev().copied().collect::<Vec<u8>>(), name, file))
        });
        let mut files: Vec<_> = files.collect();
        if files.is_empty() {
            return (0..self.entries).map(entry).collect();
        }
        files.sort();
        let name = |(_, name, file): &(Vec<u8>, &[u8], &Vec<u8>)| Name {
            name: Bytes::copy_from_slice(name),
            long_name: Bytes::copy_from_slice(name),
            attrs: Attrs {
                size: Some(file.len() as u64),
                permissions: Some(0o100_644),
                ..Attrs::default()
            },
        };
        files.iter().map(name).collect()
    }

    fn path(&self, handle: &[u8]) -> Option<Bytes> {
        match self.open.get(&number(handle)) {
            Some(Open::File { path, .. }) => Some(path.clone()),
            _ => None,
        }
    }

    fn stat(&self, path: &[u8]) -> Response {
        match self.files.get(path) {
            Some(file) => Response::Attrs(Attrs {
                size: Some(file.len() as u64),
                ..Attrs::default()
            }),
            None => Response::Status(Status::new(StatusCode::NO_SUCH_FILE, "no file")),
        }
    }

    fn set_stat(&mut self, path: Bytes, attrs: &Attrs) -> Response {
        if self.traits.fails_set_stat {
            self.failed_others.insert(path);
            let text = "no permission to set attributes";
            return Response::Status(Status::new(StatusCode::FAILURE, text));
        }
        if let (Some(size), Some(file)) = (attrs.size, self.files.get_mut(&path)) {
            file.resize(size as usize, 0);
        }
        Response::Status(Status::ok())
    }

    fn read(&mut self, handle: &[u8], offset: u64, length: u32, rng: &mut Rng) -> Response {
        self.reads += 1;
        let Some(path) = self.path(handle) else {
            return Response::Status(Status::new(StatusCode::FAILURE, "invalid handle"));
        };
        let file = &self.files[&path];
        let mut end = offset + u64::from(length).min(self.traits.read_max as u64);
        if let Some(at) = self.traits.failing_read
            && (offset..end).contains(&at)
        {
            if offset == at {
                return Response::Status(Status::new(StatusCode::FAILURE, "read error"));
            }
            end = at;
        }
        if offset >= file.len() as u64 {
            return Response::Status(Status::eof());
        }
        let mut end = end.min(file.len() as u64);
        if self.traits.has_short_reads && rng.one_in(4) {
            end = rng.between(offset + 1, end);
        }
        self.read_bytes += end - offset;
        let data = Bytes::copy_from_slice(&file[offset as usize..end as usize]);
        Response::Data(data.into())
    }

    fn write(&mut self, handle: &[u8], offset: u64, data: &[u8]) -> Response {
        let failure = |text| Response::Status(Status::new(StatusCode::FAILURE, text));
        let path = match self.open.get(&number(handle)) {
            Some(Open::File { path, may_write }) if *may_write => path.clone(),
            _ => return failure("invalid handle"),
        };
        self.writes += 1;
        let end = offset + data.len() as u64;
        let has_byte = |at: &u64| (offset..end).contains(at);
        if self.traits.failing_write == Some(self.writes)
            || self.traits.failing_offset.as_ref().is_some_and(has_byte)
        {
            self.failed_writes.insert(path);
            return failure("no space left on device");
        }
        let file = self.files.entry(path).or_default();
        let length = file.len().max(end as usize);
        file.resize(length, 0);
        file[offset as usize..end as usize].copy_from_slice(data);
        Response::Status(Status::ok())
    }
}

/// Returns an entry of the folder.
pub(crate) fn entry(number: usize) -> Name {
    Name {
        name: text(&format!("file-{number}")),
        long_name: text(&format!("-rw-r--r-- 1 0 0 1 Jan 1 2026 file-{number}")),
        attrs: Attrs::default(),
    }
}

fn number(handle: &[u8]) -> u64 {
    let text = std::str::from_utf8(handle).unwrap_or_default();
    text.parse().unwrap_or(u64::MAX)
}

pub(crate) fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
