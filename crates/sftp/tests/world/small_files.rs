//! Sessions that use the small files of a folder one by one, while the session itself and other
//! programs change them. The near half requests files and attributes before the client does. It
//! also answers OPENs for uploads before the server does.

use std::collections::BTreeMap;

use bytes::Bytes;
use sftp::{
    EarlyReplies, NearSettings,
    packet::{Attrs, ExtendedRequest, Name, OpenFlags, Request, Response, StatusCode},
};

use crate::{
    number,
    pair::Pair,
    rng::Rng,
    server::{Server, ServerTraits},
};

/// Time in ms after which the client sees the changes of others.
const AGE_MAX: u64 = 2001;

/// Content of a file, or `None` without a file.
type Content = Option<Vec<u8>>;

struct Session {
    pair: Pair,
    /// Contents of each file, with the times from which they were valid.
    history: BTreeMap<Bytes, Vec<(u64, Content)>>,
    /// Time of the client's last change of each file.
    own_changes: BTreeMap<Bytes, u64>,
    next_content: u64,
    /// Number of answers that came without a round trip.
    immediate: u64,
    failed_uploads: u64,
}

fn path(number: u64) -> Bytes {
    format!("/d/file {number:03}").into()
}

fn upload_flags() -> OpenFlags {
    let flags = OpenFlags::WRITE.union(OpenFlags::CREATE);
    flags.union(OpenFlags::TRUNCATE)
}

impl Session {
    /// Creates a session for a folder with `count` files.
    fn new(
        settings: NearSettings,
        traits: ServerTraits,
        delay: u64,
        count: u64,
        seed: u64,
    ) -> Self {
        let mut session = Self {
            pair: Pair::new(settings, Server::new(traits), delay, Rng::new(seed)),
            history: BTreeMap::new(),
            own_changes: BTreeMap::new(),
            next_content: 0,
            immediate: 0,
            failed_uploads: 0,
        };
        for number in 0..count {
            let content = session.content(10_000);
            session.change(number, Some(content));
        }
        session
    }

    fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let early = [EarlyReplies::Held, EarlyReplies::Off, EarlyReplies::All];
        let settings = NearSettings {
            early: rng.pick(&early),
            read_ahead_max: rng.pick(&[0, 2 << 20, 64 << 20, 64 << 20]),
            is_openssh: rng.one_in(2),
            ..NearSettings::default()
        };
        let traits = ServerTraits {
            has_limits: rng.one_in(2),
            read_max: 65_536,
            delay_max: rng.pick(&[0, 3, 30]),
            is_sequential: true,
            has_short_reads: rng.one_in(4),
            failing_open: rng.one_in(2).then(|| rng.between(1, 20)),
            handles_max: rng.pick(&[0, 0, 1, 5]),
            ..ServerTraits::default()
        };
        let delay = rng.pick(&[0, 1, 20, 300, 1100]);
        let count = rng.between(1, 40);
        let mut session = Self::new(settings, traits, delay, count, seed);
        if session.pair.rng.one_in(4) {
            // Programs other than OpenSSH's begin with another request.
            session.call(&Request::RealPath { path: path(0) });
        } else {
            session.begin_like_openssh();
        }
        session
    }

    fn begin_like_openssh(&mut self) {
        self.call(&Request::Extended(ExtendedRequest::Limits));
    }

    /// Returns bytes that no file had before.
    fn content(&mut self, size: u64) -> Vec<u8> {
        self.next_content += 1;
        let mut content = self.next_content.to_be_bytes().to_vec();
        content.resize(content.len().max(size as usize), 7);
        content
    }

    /// Changes a file at the server, as another program does.
    fn change(&mut self, number: u64, content: Content) {
        let server = &mut self.pair.server;
        if let Some(content) = &content {
            server.files.insert(path(number), content.clone());
        } else {
            server.remove(&path(number));
        }
        self.record(path(number), content);
    }

    fn record(&mut self, path: Bytes, content: Content) {
        let now = self.pair.now;
        self.history.entry(path).or_default().push((now, content));
    }

    /// Records a change of the client after the answer to the change has arrived.
    fn record_own(&mut self, path: Bytes) {
        let content = self.pair.server.files.get(&path).cloned();
        self.record(path.clone(), content);
        self.own_changes.insert(path, self.pair.now);
    }

    fn call(&mut self, request: &Request) -> Response {
        let begun = self.pair.now;
        let response = self.pair.call(request);
        self.immediate += u64::from(self.pair.now == begun);
        response
    }

    /// Returns whether a file had such a content at `since` or later, and after the last change of
    /// the client.
    fn was(&self, path: &Bytes, since: u64, suits: impl Fn(&Content) -> bool) -> bool {
        let own = self.own_changes.get(path).copied().unwrap_or(0);
        let Some(history) = self.history.get(path) else {
            return suits(&None);
        };
        let ends = history[1..].iter().map(|(end, _)| *end).chain([u64::MAX]);
        let mut valid = history
            .iter()
            .zip(ends)
            .filter(|(_, end)| *end >= since && *end > own);
        valid.any(|((_, content), _)| suits(content))
    }

    /// Downloads a file.
    fn get(&mut self, number: u64) -> Result<(), String> {
        let path = path(number);
        let begun = self.pair.now;
        let attrs = Attrs::default();
        let flags = OpenFlags::READ;
        let open = Request::Open {
            path: path.clone(),
            flags,
            attrs,
        };
        let handle = match self.call(&open) {
            Response::Handle(handle) => handle,
            Response::Status(status) if status.code == StatusCode::NO_SUCH_FILE => {
                return match self.was(&path, begun, Option::is_none) {
                    true => Ok(()),
                    false => Err(format!("{path:?} is missing")),
                };
            }
            response => return Err(format!("OPEN: {response:.100?}")),
        };
        let mut bytes = Vec::new();
        loop {
            let request = Request::Read {
                handle: handle.clone(),
                offset: bytes.len() as u64,
                length: 261_120,
            };
            match self.call(&request) {
                Response::Data(data) => bytes.extend_from_slice(&data.into_bytes()),
                Response::Status(status) if status.code == StatusCode::EOF => break,
                response => return Err(format!("READ: {response:.100?}")),
            }
        }
        self.call(&Request::Close { handle });
        let since = begun.saturating_sub(AGE_MAX);
        let is_right = |content: &Content| content.as_ref() == Some(&bytes);
        if self.was(&path, since, is_right) {
            return Ok(());
        }
        let content = bytes
            .first_chunk()
            .map(|number| u64::from_be_bytes(*number));
        Err(format!("{path:?} has content {content:?} of a wrong time"))
    }

    /// Reads the attributes of a file.
    fn stat(&mut self, number: u64, is_lstat: bool) -> Result<(), String> {
        let path = path(number);
        let begun = self.pair.now;
        let request = match is_lstat {
            true => Request::Lstat { path: path.clone() },
            false => Request::Stat { path: path.clone() },
        };
        let (size, since) = match self.call(&request) {
            Response::Attrs(attrs) => (attrs.size, begun.saturating_sub(AGE_MAX)),
            Response::Status(status) if status.code == StatusCode::NO_SUCH_FILE => (None, begun),
            response => return Err(format!("STAT: {response:.100?}")),
        };
        let suits = |content: &Content| content.as_ref().map(|it| it.len() as u64) == size;
        match self.was(&path, since, suits) {
            true => Ok(()),
            false => Err(format!("{path:?} has size {size:?} of a wrong time")),
        }
    }

    /// Uploads a file. A failure of the server must reach the client.
    fn put(&mut self, number: u64, preserves: bool) -> Result<(), String> {
        let path = path(number);
        let size = self.pair.rng.pick(&[0, 8, 5000, 300_000]);
        let content = match size {
            0 => Vec::new(),
            size => self.content(size),
        };
        let open = Request::Open {
            path: path.clone(),
            flags: upload_flags(),
            attrs: Attrs::default(),
        };
        let mut has_failed = false;
        match self.call(&open) {
            Response::Handle(handle) => {
                for (at, piece) in content.chunks(100_000).enumerate() {
                    let write = Request::Write {
                        handle: handle.clone(),
                        offset: at as u64 * 100_000,
                        data: Bytes::copy_from_slice(piece).into(),
                    };
                    has_failed |= !is_ok(&self.call(&write));
                }
                if preserves {
                    let fstat = Request::Fstat {
                        handle: handle.clone(),
                    };
                    let size = content.len() as u64;
                    match self.call(&fstat) {
                        Response::Attrs(attrs) if attrs.size == Some(size) => {}
                        Response::Status(_) => has_failed = true,
                        response => return Err(format!("FSTAT: {response:.100?}")),
                    }
                    let handle = handle.clone();
                    let attrs = Attrs::default();
                    has_failed |= !is_ok(&self.call(&Request::FsetStat { handle, attrs }));
                }
                has_failed |= !is_ok(&self.call(&Request::Close { handle }));
            }
            _ => has_failed = true,
        }
        self.failed_uploads += u64::from(has_failed);
        let is_whole = self.pair.server.files.get(&path) == Some(&content);
        self.record_own(path.clone());
        if !has_failed && !is_whole {
            return Err(format!("{path:?} is not whole, but the client saw only OK"));
        }
        Ok(())
    }

    /// Reads the names of the folder.
    fn list(&mut self) -> Vec<Name> {
        let path = Bytes::from("/d");
        let Response::Handle(handle) = self.call(&Request::OpenDir { path }) else {
            panic!("the folder exists");
        };
        let mut names = Vec::new();
        loop {
            let handle = handle.clone();
            match self.call(&Request::ReadDir { handle }) {
                Response::Names(more) => names.extend(more),
                _ => break,
            }
        }
        self.call(&Request::Close { handle });
        names
    }
}

fn is_ok(response: &Response) -> bool {
    matches!(response, Response::Status(status) if status.is_ok())
}

/// Runs random requests and changes.
fn run(seed: u64) -> Result<Session, String> {
    let mut session = Session::random(seed);
    let mut order: Vec<u64> = Vec::new();
    let mut next = 0;
    for _ in 0..40 {
        let any = session.pair.rng.below(42);
        match session.pair.rng.below(12) {
            0 => {
                let names = session.list();
                let is_sorted = session.pair.rng.one_in(2);
                order = numbers(&names);
                if is_sorted {
                    order.sort_unstable();
                }
                next = 0;
            }
            1 => {
                let size = session.pair.rng.pick(&[0, 20, 10_000, 300_000]);
                let content = session.content(size);
                session.change(any, Some(content));
            }
            2 if session.pair.rng.one_in(3) => session.change(any, None),
            3 => {
                let preserves = session.pair.rng.one_in(3);
                for number in any..any + session.pair.rng.between(1, 4) {
                    session.put(number, preserves)?;
                }
            }
            4 if session.pair.rng.one_in(2) => {
                session.call(&Request::Remove { path: path(any) });
                session.record_own(path(any));
            }
            5 if session.pair.rng.one_in(2) => {
                let (from, to) = (path(any), path(any + 1));
                let request = Request::Rename {
                    from: from.clone(),
                    to: to.clone(),
                };
                session.call(&request);
                session.record_own(from);
                session.record_own(to);
            }
            6 => {
                let time = session.pair.rng.pick(&[1, 100, 900, 2500]);
                (0..time).for_each(|_| session.pair.step());
            }
            7 => session.get(any)?,
            _ => {
                // Some clients request the attributes before each file.
                let habit = session.pair.rng.below(3);
                for _ in 0..session.pair.rng.between(1, 12) {
                    let Some(&number) = order.get(next) else {
                        break;
                    };
                    next += 1;
                    if habit > 0 {
                        session.stat(number, habit > 1)?;
                    }
                    session.get(number)?;
                }
            }
        }
    }
    (0..10_000).for_each(|_| session.pair.step());
    match session.pair.server.open_handles() {
        0 => Ok(session),
        count => Err(format!("{count} handles stay open")),
    }
}

#[test]
fn small_files_are_never_older_than_two_seconds_or_a_change_of_the_session() {
    let first = number("SIEGE_SEED", 0);
    let count = number("SIEGE_CASES", 3000).div_ceil(10);
    let (mut immediate, mut failed_uploads) = (0, 0);
    let mut failures = Vec::new();
    for seed in first..first + count {
        match run(seed) {
            Ok(session) => {
                immediate += session.immediate;
                failed_uploads += session.failed_uploads;
            }
            Err(why) => failures.push(format!("seed {seed}: {why}")),
        }
        if failures.len() > 20 {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(immediate > 50 * count, "{immediate} immediate answers");
    assert!(failed_uploads > count / 10, "{failed_uploads} uploads fail");
}

/// Delay of the link in one direction in ms, for the count of round trips.
const DELAY: u64 = 100;

const FILES: u64 = 200;

/// Creates a session of OpenSSH over a good link.
fn openssh(count: u64, early: EarlyReplies) -> Session {
    let settings = NearSettings {
        early,
        is_openssh: true,
        ..NearSettings::default()
    };
    let traits = ServerTraits {
        has_limits: true,
        read_max: 261_120,
        ..ServerTraits::default()
    };
    let mut session = Session::new(settings, traits, DELAY, count, 1);
    session.begin_like_openssh();
    session
}

/// Returns the round trips of some requests.
fn round_trips(session: &mut Session, requests: impl FnOnce(&mut Session)) -> f64 {
    let begun = session.pair.now;
    requests(session);
    (session.pair.now - begun) as f64 / (2 * DELAY) as f64
}

fn numbers(names: &[Name]) -> Vec<u64> {
    let number = |name: &Name| {
        let text = String::from_utf8_lossy(&name.name).into_owned();
        text.trim_start_matches("file ").parse().expect("a number")
    };
    names.iter().map(number).collect()
}

#[test]
fn download_of_a_folder_takes_a_tenth_of_a_round_trip_for_each_file() {
    let mut session = openssh(FILES, EarlyReplies::Held);
    let order = numbers(&session.list());
    assert!(!order.is_sorted(), "the order is that of the server");
    let measured = round_trips(&mut session, |session| {
        for number in order {
            session.get(number).expect("the file is right");
        }
    });
    assert!(measured < 20.0, "{measured} round trips");
}

#[test]
fn download_by_a_pattern_takes_few_round_trips_for_each_file() {
    // `get *` sends LSTAT in the order of the listing, and STAT and OPEN in the order of the names.
    let mut session = openssh(FILES, EarlyReplies::Held);
    let mut order = numbers(&session.list());
    let measured = round_trips(&mut session, |session| {
        for number in &order {
            session.stat(*number, true).expect("it is right");
        }
        order.sort_unstable();
        for number in order {
            session.stat(number, false).expect("it is right");
            session.get(number).expect("the file is right");
        }
    });
    assert!(measured < 60.0, "{measured} round trips");
}

#[test]
fn upload_of_a_folder_takes_a_round_trip_for_each_file() {
    let mut session = openssh(0, EarlyReplies::All);
    let measured = round_trips(&mut session, |session| {
        for number in 0..FILES {
            session.put(number, false).expect("the file is right");
        }
    });
    // The client also waits for the OPEN and the only WRITE of the first file, and for the answer
    // to `limits`.
    let expected = FILES as f64 + 2.0;
    let range = expected - 0.5..expected * 1.05;
    assert!(range.contains(&measured), "{measured} round trips");
}

#[test]
fn failed_open_is_reported_after_its_early_answer() {
    for preserves in [false, true] {
        let mut session = openssh(0, EarlyReplies::All);
        session.pair.server.traits.failing_open = Some(2);
        for (number, failed) in [(0, 0), (1, 1), (2, 1), (3, 1)] {
            session.put(number, preserves).expect("a failure is seen");
            assert_eq!(session.failed_uploads, failed, "file {number}");
        }
        assert_eq!(session.pair.server.files.get(&path(1)), None);
    }
}

#[test]
fn upload_by_another_program_waits_for_open_write_and_close() {
    let settings = NearSettings::default();
    let mut session = Session::new(settings, ServerTraits::default(), DELAY, 0, 1);
    session.begin_like_openssh();
    let measured = round_trips(&mut session, |session| {
        for number in 0..10 {
            session.put(number, false).expect("the file is right");
        }
    });
    assert!(measured > 20.0, "{measured} round trips");
}
