//! Sessions with a scripted SFTP server in virtual time: windows, short reads, failures.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use ftp::listing::EntryKind;
use sftp::packet::{
    Attrs, ExtendedRequest, Greeting, GreetingSource, Limits, Name, OpenFlags, PacketSplitter,
    Request, Response, Status, StatusCode,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    SftpSession,
    exchange::{ChannelEnd, Exchange, FromServer, ToServer},
    replies::VERSION,
};
use crate::server::ServerError;

/// Behaviour of a scripted server.
#[derive(Debug, Clone)]
struct Script {
    /// Time between a request and its answer.
    delay: Duration,
    /// Maximum number of bytes in an answer to READ.
    read_max: usize,
    /// Whether the server swaps each pair of successive answers to READ or WRITE.
    swaps_answers: bool,
    /// Limits that the server reports.
    limits: Option<Limits>,
    has_posix_rename: bool,
    /// Whether RENAME replaces an existing file.
    replaces: bool,
    /// Offset from which WRITEs fail.
    write_fails_at: Option<u64>,
    /// Offset of the byte whose first WRITE fails.
    write_fails_once_at: Option<u64>,
    /// Whether FSTAT reports a size.
    reports_size: bool,
    /// Number of requests after which the server answers no further request.
    silent_after: usize,
    /// Names in each answer to READDIR.
    names: Vec<Vec<Bytes>>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(100),
            read_max: usize::MAX,
            swaps_answers: false,
            limits: Some(Limits {
                packet_max_bytes: 256 * 1024,
                read_max_bytes: 255 * 1024,
                write_max_bytes: 255 * 1024,
                handles_max: 100,
            }),
            has_posix_rename: true,
            replaces: false,
            write_fails_at: None,
            write_fails_once_at: None,
            reports_size: true,
            silent_after: usize::MAX,
            names: Vec::new(),
        }
    }
}

/// Files of a scripted server.
type Files = Arc<Mutex<BTreeMap<Vec<u8>, StoredFile>>>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StoredFile {
    bytes: Vec<u8>,
    mode: u32,
    modified_s: u32,
}

/// Measurements of a scripted server.
#[derive(Debug, Default)]
struct Observed {
    requests: Mutex<Vec<Request>>,
    closed: Mutex<usize>,
    opened: Mutex<usize>,
}

struct ScriptedServer {
    script: Script,
    files: Files,
    observed: Arc<Observed>,
    /// Paths of open handles, and the number of READDIRs.
    handles: BTreeMap<Vec<u8>, (Vec<u8>, usize)>,
    next_handle: usize,
}

struct Requests(mpsc::UnboundedSender<Bytes>);

struct Answers(mpsc::UnboundedReceiver<Bytes>);

impl ToServer for Requests {
    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        let sent = self.0.send(bytes);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl FromServer for Answers {
    async fn receive(&mut self) -> Result<Bytes, ChannelEnd> {
        self.0.recv().await.ok_or_else(|| ChannelEnd {
            kind: io::ErrorKind::UnexpectedEof,
            text: "the script has ended".to_owned(),
        })
    }
}

/// Starts a session with a scripted server.
async fn session(script: Script, files: &Files) -> (SftpSession, Arc<Observed>) {
    let observed = Arc::<Observed>::default();
    let session = open(script, files, observed.clone()).await;
    (session.expect("a session"), observed)
}

async fn open(
    script: Script,
    files: &Files,
    observed: Arc<Observed>,
) -> Result<SftpSession, ServerError> {
    let (to_server, requests) = mpsc::unbounded_channel();
    let (answers, from_server) = mpsc::unbounded_channel();
    let server = ScriptedServer {
        script,
        files: files.clone(),
        observed,
        handles: BTreeMap::new(),
        next_handle: 0,
    };
    tokio::spawn(server.run(requests, answers));
    let channel = (Requests(to_server), Answers(from_server));
    let times = (Duration::from_secs(30), Duration::from_secs(30));
    let (exchange, greeting) = Exchange::start(channel, "the script".to_owned(), times).await?;
    SftpSession::start(exchange, &greeting, None).await
}

impl ScriptedServer {
    async fn run(
        mut self,
        mut requests: mpsc::UnboundedReceiver<Bytes>,
        answers: mpsc::UnboundedSender<Bytes>,
    ) {
        let (delayed, mut due) = mpsc::unbounded_channel::<(Instant, Bytes)>();
        tokio::spawn(async move {
            while let Some((at, bytes)) = due.recv().await {
                sleep_until(at).await;
                if answers.send(bytes).is_err() {
                    return;
                }
            }
        });
        let mut splitter = PacketSplitter::default();
        let mut is_greeted = false;
        let mut count = 0;
        let mut swapped: Option<(u32, Response)> = None;
        loop {
            let bytes = match swapped.is_some() {
                // The last answer has no partner.
                true => match tokio::time::timeout(Duration::from_millis(1), requests.recv()).await
                {
                    Ok(bytes) => bytes,
                    Err(_) => {
                        if let Some((id, response)) = swapped.take() {
                            let at = Instant::now() + self.script.delay;
                            let _ = delayed.send((at, response.encode(id).into_bytes()));
                        }
                        continue;
                    }
                },
                false => requests.recv().await,
            };
            let Some(bytes) = bytes else {
                return;
            };
            splitter.push(bytes);
            while let Some(packet) = splitter.next_packet().expect("valid packets") {
                let at = Instant::now() + self.script.delay;
                if !is_greeted {
                    is_greeted = true;
                    let _ = delayed.send((at, self.greeting()));
                    continue;
                }
                count += 1;
                if count > self.script.silent_after {
                    continue;
                }
                let (id, request) = Request::decode(packet).expect("a valid request");
                let is_data = matches!(request, Request::Read { .. } | Request::Write { .. });
                let response = self.answer(&request);
                self.observed
                    .requests
                    .lock()
                    .expect("no panic")
                    .push(request);
                let mut now = vec![(id, response)];
                if self.script.swaps_answers && is_data {
                    match swapped.take() {
                        None => {
                            swapped = now.pop();
                            continue;
                        }
                        Some(earlier) => now.push(earlier),
                    }
                }
                for (id, response) in now {
                    let _ = delayed.send((at, response.encode(id).into_bytes()));
                }
            }
        }
    }

    fn greeting(&self) -> Bytes {
        let one = Bytes::from_static(b"1");
        let mut extensions = Vec::new();
        if self.script.has_posix_rename {
            extensions.push((Bytes::from_static(b"posix-rename@openssh.com"), one.clone()));
        }
        if self.script.limits.is_some() {
            extensions.push((Bytes::from_static(b"limits@openssh.com"), one));
        }
        let greeting = Greeting {
            version: VERSION,
            extensions,
        };
        greeting.encode(GreetingSource::Server).into_bytes()
    }

    fn new_handle(&mut self, path: &[u8]) -> Response {
        let handle = self.next_handle.to_string().into_bytes();
        self.next_handle += 1;
        *self.observed.opened.lock().expect("no panic") += 1;
        self.handles.insert(handle.clone(), (path.to_vec(), 0));
        Response::Handle(handle.into())
    }

    fn answer(&mut self, request: &Request) -> Response {
        let ok = Response::Status(Status::ok());
        let failure = |code| Response::Status(Status::new(code, "no"));
        let missing = failure(StatusCode::NO_SUCH_FILE);
        let files = self.files.clone();
        let mut files = files.lock().expect("no panic");
        let attrs = |file: &StoredFile, has_size: bool| {
            Response::Attrs(Attrs {
                size: has_size.then_some(file.bytes.len() as u64),
                permissions: Some(0o100_000 | file.mode),
                times: Some(sftp::packet::Times {
                    accessed_s: 0,
                    modified_s: file.modified_s,
                }),
                ..Attrs::default()
            })
        };
        match request {
            Request::Open { path, flags, .. } => {
                let is_write = flags.0 & OpenFlags::WRITE.0 != 0;
                if !files.contains_key(&path[..]) {
                    if !is_write {
                        return missing;
                    }
                    files.insert(path.to_vec(), StoredFile::default());
                }
                if flags.0 & OpenFlags::TRUNCATE.0 != 0 {
                    files.get_mut(&path[..]).expect("a file").bytes.clear();
                }
                self.new_handle(path)
            }
            Request::OpenDir { path } => self.new_handle(path),
            Request::ReadDir { handle } => {
                let (_, count) = self.handles.get_mut(&handle[..]).expect("an open folder");
                let names = self.script.names.get(*count).cloned();
                *count += 1;
                match names {
                    None => Response::Status(Status::eof()),
                    Some(names) => {
                        let name = |name| Name {
                            name,
                            long_name: Bytes::new(),
                            attrs: Attrs::default(),
                        };
                        Response::Names(names.into_iter().map(name).collect())
                    }
                }
            }
            Request::Close { handle } => {
                *self.observed.closed.lock().expect("no panic") += 1;
                assert!(self.handles.remove(&handle[..]).is_some(), "closed twice");
                ok
            }
            Request::Read {
                handle,
                offset,
                length,
            } => {
                let Some((path, _)) = self.handles.get(&handle[..]) else {
                    return failure(StatusCode::FAILURE);
                };
                let bytes = &files[path].bytes;
                let begin = (*offset as usize).min(bytes.len());
                let count = (*length as usize)
                    .min(self.script.read_max)
                    .min(bytes.len() - begin);
                match count {
                    0 => Response::Status(Status::eof()),
                    _ => Response::Data(bytes[begin..begin + count].to_vec().into()),
                }
            }
            Request::Write {
                handle,
                offset,
                data,
            } => {
                let end = offset + data.len() as u64;
                if self.script.write_fails_at.is_some_and(|it| end > it) {
                    return failure(StatusCode::FAILURE);
                }
                let fails = |it: &mut u64| (*offset..end).contains(it);
                if self.script.write_fails_once_at.take_if(fails).is_some() {
                    return failure(StatusCode::FAILURE);
                }
                let (path, _) = &self.handles[&handle[..]];
                let bytes = &mut files.get_mut(path).expect("a file").bytes;
                bytes.resize(bytes.len().max(end as usize), 0);
                let data = data.clone().into_bytes();
                bytes[*offset as usize..end as usize].copy_from_slice(&data);
                ok
            }
            Request::Fstat { handle } => {
                let (path, _) = &self.handles[&handle[..]];
                attrs(&files[path], self.script.reports_size)
            }
            Request::Stat { path } => match files.get(&path[..]) {
                Some(file) => attrs(file, true),
                None => missing,
            },
            Request::SetStat { path, attrs } => match files.get_mut(&path[..]) {
                Some(file) => {
                    file.mode = attrs.permissions.unwrap_or(file.mode);
                    file.modified_s = attrs.times.map_or(file.modified_s, |it| it.modified_s);
                    ok
                }
                None => missing,
            },
            Request::FsetStat { handle, attrs } => {
                let (path, _) = &self.handles[&handle[..]];
                let file = files.get_mut(path).expect("a file");
                file.modified_s = attrs.times.map_or(file.modified_s, |it| it.modified_s);
                if let Some(size) = attrs.size {
                    file.bytes.resize(size as usize, 0);
                }
                ok
            }
            Request::Remove { path } => match files.remove(&path[..]) {
                Some(_) => ok,
                None => missing,
            },
            Request::Rename { from, to }
            | Request::Extended(ExtendedRequest::PosixRename { from, to }) => {
                let is_posix = matches!(request, Request::Extended(_));
                if files.contains_key(&to[..]) && !is_posix && !self.script.replaces {
                    return failure(StatusCode::FAILURE);
                }
                match files.remove(&from[..]) {
                    Some(file) => {
                        files.insert(to.to_vec(), file);
                        ok
                    }
                    None => missing,
                }
            }
            Request::Extended(ExtendedRequest::Limits) => match self.script.limits {
                Some(limits) => Response::Extended(limits.encode()),
                None => failure(StatusCode::OP_UNSUPPORTED),
            },
            _ => failure(StatusCode::OP_UNSUPPORTED),
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn files(path: &[u8], bytes: Vec<u8>) -> Files {
    let file = StoredFile {
        bytes,
        mode: 0o640,
        modified_s: 7,
    };
    Arc::new(Mutex::new(BTreeMap::from([(path.to_vec(), file)])))
}

async fn read_all(
    session: &SftpSession,
    range: (u64, Option<u64>),
) -> Result<Vec<u8>, ServerError> {
    let mut reader = session.read_range(b"f", range).await?;
    let mut all = Vec::new();
    let mut bytes = vec![0; 100_000];
    loop {
        let count = reader.read(&mut bytes).await?;
        if count == 0 {
            reader.finish().await?;
            return Ok(all);
        }
        all.extend_from_slice(&bytes[..count]);
    }
}

async fn write_all(session: &SftpSession, bytes: &[u8]) -> Result<(), ServerError> {
    let mut writer = session.write(b"f", 0, false).await?;
    for piece in bytes.chunks(70_000) {
        writer.write(piece).await?;
    }
    writer.set_modified(1_700_000_000);
    let stat = writer.finish().await?.expect("attributes");
    assert_eq!(stat.size_bytes, Some(bytes.len() as u64));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_file_arrives_whole_from_every_kind_of_server() {
    let content = pattern(5_000_123);
    for script in [
        Script::default(),
        Script {
            swaps_answers: true,
            ..Script::default()
        },
        Script {
            read_max: 10_000,
            ..Script::default()
        },
        Script {
            read_max: 10_000,
            swaps_answers: true,
            reports_size: false,
            ..Script::default()
        },
        Script {
            limits: None,
            reports_size: false,
            ..Script::default()
        },
    ] {
        let (session, observed) = session(script.clone(), &files(b"f", content.clone())).await;
        assert!(
            read_all(&session, (0, None)).await.expect("read") == content,
            "{script:?}"
        );
        let range = read_all(&session, (77, Some(1_000_000)))
            .await
            .expect("read");
        assert!(range == content[77..1_000_000], "{script:?}");
        let behind = read_all(&session, (9_000_000, None)).await.expect("read");
        assert!(behind.is_empty());
        // The reader does not wait for the answers to CLOSE.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (opened, closed) = (
            *observed.opened.lock().expect("no panic"),
            *observed.closed.lock().expect("no panic"),
        );
        assert_eq!((opened, closed), (3, 3), "{script:?}");
        assert!(session.is_usable());
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_of_one_request_takes_two_round_trips() {
    let (session, _) = session(Script::default(), &files(b"f", pattern(10_000))).await;
    // The first file also waits for the limits.
    read_all(&session, (0, None)).await.expect("read");
    let start = Instant::now();
    read_all(&session, (0, None)).await.expect("read");
    assert_eq!(start.elapsed().as_millis() / 10, 20);
}

#[tokio::test(start_paused = true)]
async fn a_long_path_is_filled() {
    let content = pattern(200_000_000);
    let (session, _) = session(Script::default(), &files(b"f", content.clone())).await;
    let start = Instant::now();
    assert!(read_all(&session, (0, None)).await.expect("read") == content);
    // The window grows from 1 MB to 64 MB by a factor of up to three for each round trip.
    assert!(
        start.elapsed() < Duration::from_millis(1_500),
        "{:?}",
        start.elapsed()
    );
    let start = Instant::now();
    write_all(&session, &content).await.expect("written");
    assert!(
        start.elapsed() < Duration::from_millis(2_000),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_range_requests_no_byte_behind_it() {
    let (session, observed) = session(Script::default(), &files(b"f", pattern(9_000_000))).await;
    read_all(&session, (100, Some(3_000_000)))
        .await
        .expect("read");
    for request in &*observed.requests.lock().expect("no panic") {
        if let Request::Read { offset, length, .. } = request {
            assert!(offset + u64::from(*length) <= 3_000_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_complete_when_all_writes_are_confirmed() {
    let content = pattern(3_000_001);
    for swaps_answers in [false, true] {
        let stored = files(b"other", Vec::new());
        let script = Script {
            swaps_answers,
            ..Script::default()
        };
        let (session, _) = session(script, &stored).await;
        write_all(&session, &content).await.expect("written");
        let file = stored.lock().expect("no panic")[&b"f"[..]].clone();
        assert!(file.bytes == content);
        assert_eq!(file.modified_s, 1_700_000_000);
        // Another session writes to the middle.
        let mut writer = session.write(b"f", 1_000_000, false).await.expect("open");
        writer.write(b"middle").await.expect("written");
        writer.finish().await.expect("written");
        let file = stored.lock().expect("no panic")[&b"f"[..]].clone();
        assert_eq!(file.bytes.len(), content.len());
        assert_eq!(&file.bytes[1_000_000..1_000_006], b"middle");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_ends_the_upload() {
    let script = Script {
        write_fails_at: Some(1_000_000),
        ..Script::default()
    };
    let (session, _) = session(script, &files(b"other", Vec::new())).await;
    let error = write_all(&session, &pattern(50_000_000))
        .await
        .expect_err("full");
    assert!(
        matches!(&error, ServerError::SftpRefused(it) if it.request == "WRITE"),
        "{error}"
    );
    assert!(session.is_usable());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_once_leaves_no_hole() {
    let script = Script {
        write_fails_once_at: Some(3_000_000),
        ..Script::default()
    };
    let there = files(b"other", Vec::new());
    let (session, _) = session(script, &there).await;
    let error = write_all(&session, &pattern(5_000_000)).await;
    assert!(error.expect_err("a failure").is_refusal());
    assert!(session.is_usable());
    let left = there.lock().expect("no panic")[&b"f"[..]].bytes.len();
    assert_eq!(left, 0, "a later attempt would continue behind the hole");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_other_requests_is_not_silent() {
    let script = Script {
        // Each answer takes a part of the limit of 30 s.
        delay: Duration::from_secs(20),
        ..Script::default()
    };
    let (session, _) = session(script, &files(b"f", pattern(9_000_000))).await;
    let content = read_all(&session, (0, None)).await.expect("answers");
    assert!(content == pattern(9_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_ends_the_session() {
    let script = Script {
        silent_after: 5,
        ..Script::default()
    };
    let (first, _) = session(script.clone(), &files(b"f", pattern(9_000_000))).await;
    let error = read_all(&first, (0, None)).await.expect_err("silent");
    assert!(matches!(error, ServerError::Stalled(_)), "{error}");
    assert!(!first.is_usable());
    first.until_lost().await;
    let (second, _) = session(
        Script {
            silent_after: 1,
            ..script
        },
        &files(b"f", Vec::new()),
    )
    .await;
    let error = second.delete(b"f").await.expect_err("silent");
    assert!(
        matches!(
            error,
            ServerError::Silent {
                command: "REMOVE",
                ..
            }
        ),
        "{error}"
    );
    assert!(second.delete(b"f").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_renamed_file_keeps_the_permissions_of_the_old_one() {
    for (has_posix_rename, replaces) in [(true, false), (false, true), (false, false)] {
        let stored = files(b"f", b"old".to_vec());
        let script = Script {
            has_posix_rename,
            replaces,
            ..Script::default()
        };
        let (session, _) = session(script, &stored).await;
        let mut writer = session.write(b"part", 0, true).await.expect("open");
        writer.write(b"new").await.expect("written");
        writer.finish().await.expect("written");
        let has_time = session
            .name(b"part", b"f", Some(1_600_000_000))
            .await
            .expect("named");
        assert!(has_time);
        let new = StoredFile {
            bytes: b"new".to_vec(),
            mode: 0o640,
            modified_s: 1_600_000_000,
        };
        let stored = stored.lock().expect("no panic").clone();
        assert_eq!(stored, BTreeMap::from([(b"f".to_vec(), new)]));
    }
}

#[tokio::test(start_paused = true)]
async fn queries_take_one_round_trip() {
    let (session, _) = session(Script::default(), &files(b"f", b"123".to_vec())).await;
    let start = Instant::now();
    let found = session
        .look(&[b"f", b"missing", b"f"])
        .await
        .expect("found");
    assert_eq!(start.elapsed().as_millis() / 10, 10);
    let sizes: Vec<_> = found
        .iter()
        .map(|it| it.as_ref().and_then(|it| it.size_bytes))
        .collect();
    assert_eq!(sizes, [Some(3), None, Some(3)]);
    assert_eq!(
        found[0].as_ref().map(|it| it.kind.clone()),
        Some(EntryKind::File)
    );
    assert_eq!(
        session
            .stat(b"missing")
            .await
            .expect("an answer")
            .size_bytes,
        None
    );
    let error = session.read(b"missing", 0).await.expect_err("missing");
    assert!(
        matches!(&error, ServerError::SftpRefused(it) if it.is_absence()),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_listing_ends_and_leads_to_no_other_folder() {
    let names = |names: &[&'static [u8]]| names.iter().map(|it| Bytes::from_static(it)).collect();
    let list = async |all: Vec<Vec<Bytes>>| {
        let script = Script {
            names: all,
            ..Script::default()
        };
        let (session, _) = session(script, &files(b"f", Vec::new())).await;
        let mut listing = session.list(b"").await.expect("a listing");
        let mut found = Vec::new();
        loop {
            let entries = match listing.next().await {
                Ok(entries) => entries,
                Err(error) => return Err((error.to_string(), session.is_usable())),
            };
            if entries.is_empty() {
                listing.finish().await.expect("the end");
                return Ok(found);
            }
            found.extend(entries.into_iter().map(|it| it.name));
        }
    };
    let many = vec![
        names(&[b".", b"..", b"a"]),
        names(&[]),
        names(&[b"b\xff", b"c"]),
    ];
    let found = list(many).await.expect("listed");
    assert_eq!(found, [&b"a"[..], b"b\xff", b"c"]);
    for wrong in [&b"../x"[..], b"", b"a\0"] {
        let (_, is_usable) = list(vec![names(&[wrong])]).await.expect_err("refused");
        assert!(!is_usable);
    }
    let (_, is_usable) = list(vec![names(&[]); 1_000]).await.expect_err("endless");
    assert!(!is_usable);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_protocol_is_refused() {
    let (to_server, _requests) = mpsc::unbounded_channel();
    let (answers, from_server) = mpsc::unbounded_channel();
    answers
        .send(Bytes::from_static(b"This account is closed.\n"))
        .expect("open");
    let channel = (Requests(to_server), Answers(from_server));
    let times = (Duration::from_secs(30), Duration::from_secs(30));
    let error = Exchange::start(channel, "the script".to_owned(), times).await;
    let error = error.map(drop).expect_err("no SFTP");
    assert!(matches!(error, ServerError::Lost { .. }), "{error}");
}
