use std::{collections::BTreeMap, net::TcpListener, thread};

use fake_ftp::{Behaviour, FakeServer};

use super::*;
use crate::FailureKind;

/// Starts a server that sends the first of `replies` as its greeting. It replies to each command
/// with the next reply. After the last reply it closes the connection.
fn server(replies: &[&str]) -> SocketAddr {
    let server = FakeServer::start(Behaviour {
        script: Some(fake_ftp::ReplyScript::then_close(replies)),
        ..Behaviour::default()
    });
    server.address()
}

fn probe(server: SocketAddr, script: &str) -> FtpProbe {
    FtpProbe {
        script: SessionScript::parse(script).expect("a script"),
        timeout: Duration::from_secs(10),
        ..FtpProbe::new(server)
    }
}

fn only(probe: &FtpProbe) -> SessionRecord {
    let mut told = 0;
    let mut sessions = run(probe, |_| told += 1).expect("it runs");
    assert_eq!((told, sessions.len()), (1, 1));
    sessions.pop().expect("one")
}

fn failure(session: &SessionRecord) -> (FailureKind, &str) {
    let failure = session.failure.as_ref().expect("it must fail");
    (failure.kind, &failure.during)
}

#[test]
fn a_session_notes_each_event_in_order() {
    let session = only(&probe(
        server(&[
            "220-hi\r\n x\r\n220 ok",
            "331 pw",
            "230 in",
            "213 5",
            "221 bye",
        ]),
        "USER {user}\nPASS {password}\nSIZE f\nQUIT",
    ));
    assert_eq!(session.failure, None);
    let codes: Vec<_> = session.commands.iter().map(|c| c.code).collect();
    assert_eq!(codes, [Some(331), Some(230), Some(213), Some(221)]);
    let mut last = session.greeted_us.expect("greeted");
    assert!(session.connected_us <= session.greeted_us);
    for command in &session.commands {
        assert!(last <= command.sent_us && Some(command.sent_us) <= command.replied_us);
        last = command.replied_us.expect("replied");
    }
    assert!(session.ended_us >= last);
    let text = serde_json::to_string(&session).expect("JSON");
    let again: SessionRecord = serde_json::from_str(&text).expect("its own JSON");
    assert_eq!(again, session);
}

#[test]
fn failures_are_distinguished() {
    let script = "USER a\nNOOP";
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = closed.local_addr().expect("bound");
    drop(closed);
    for (server, kind, during, complete) in [
        (nobody, FailureKind::Refused, "connecting", 0),
        (server(&["220 a", "230 b"]), FailureKind::Ended, "NOOP", 1),
        (
            server(&["220 a", "530 no"]),
            FailureKind::UnexpectedReply,
            "USER",
            0,
        ),
        (
            server(&["421 full"]),
            FailureKind::UnexpectedReply,
            "greeting",
            0,
        ),
        (
            server(&["hello"]),
            FailureKind::UnexpectedReply,
            "greeting",
            0,
        ),
    ] {
        let session = only(&probe(server, script));
        assert_eq!(failure(&session), (kind, during));
        assert_eq!(session.commands_complete(), complete, "{during}");
        assert_eq!(session.commands_planned, 2);
    }
}

#[test]
fn silence_ends_a_session() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut probe = probe(silent.local_addr().expect("bound"), "NOOP");
    probe.timeout = Duration::from_millis(300);
    let session = only(&probe);
    assert_eq!(failure(&session), (FailureKind::TimedOut, "greeting"));
}

#[test]
fn the_reply_that_a_script_expects_is_success() {
    let answers = ["220 a", "550 no", "250 yes"];
    let session = only(&probe(server(&answers), "550 MDTM x\n5xx DELE x"));
    assert_eq!(failure(&session), (FailureKind::UnexpectedReply, "DELE"));
    assert_eq!(session.commands_complete(), 1);
}

#[test]
fn a_summary_counts_what_was_planned() {
    let good = only(&probe(server(&["220 a", "200 b"]), "NOOP"));
    let bad = only(&probe(server(&["220 a", "500 b"]), "NOOP"));
    let summary = SessionSummary::of([&good, &bad, &good].into_iter());
    assert_eq!((summary.sessions, summary.sessions_complete), (3, 2));
    assert_eq!(
        (summary.commands_planned, summary.commands_complete),
        (3, 2)
    );
    assert_eq!(
        summary.failures,
        BTreeMap::from([(FailureKind::UnexpectedReply, 1)])
    );
}

#[test]
fn the_studys_session_passes_the_embedded_server() {
    for mode in [DataMode::Scripted, DataMode::Active, DataMode::Passive] {
        let served = Served::start();
        let mut probe = FtpProbe::new(served.address);
        probe.data = mode;
        // The server lists a folder before it enters the folder. It fails if a concurrent session
        // removes a file between these two steps.
        probe.arrivals = Arrivals {
            count: 6,
            ..Arrivals::default()
        };
        let through = FtpProbe {
            label: "again".to_owned(),
            ..probe.clone()
        };
        let sessions = run_by_turns(&[&probe, &through], |_| {}).expect("it runs");
        assert_eq!(sessions.len(), 12);
        for session in &sessions {
            assert_eq!(session.failure, None, "{mode:?}: {session:#?}");
            assert_eq!(session.commands.len(), 35);
            assert_eq!(session.transfers_complete().count(), 4);
        }
        assert!(served.is_empty(), "sessions leave nothing behind");
    }
}

/// Waits until a condition is true, for at most 30 s.
#[track_caller]
fn wait_until(condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it does not come about"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// The embedded FTP server, with its own folder.
struct Served {
    address: SocketAddr,
    folder: std::path::PathBuf,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Served {
    fn start() -> Self {
        let folder = bench_kit::scratch::folder("probe").expect("room");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("bound");
        drop(free);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = thread::spawn({
            let folder = folder.clone();
            move || {
                let stopped = async {
                    let _ = stopped.await;
                };
                bench_kit::ftp_server::serve(folder, address, stopped).expect("it serves");
            }
        });
        wait_until(|| std::net::TcpStream::connect(address).is_ok());
        Self {
            address,
            folder,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.folder)
            .expect("it exists")
            .next()
            .is_none()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The tests of this module measure real time. `cargo xtask test` runs them alone.
mod real_time {
    use super::*;

    #[test]
    fn a_transfer_may_last_longer_than_silence() {
        const BYTES: usize = 10;
        let step = Duration::from_millis(150);
        let server = FakeServer::start(Behaviour {
            download_step_bytes: Some(1),
            download_step_delay: step,
            ..Behaviour::default()
        });
        server.put("x", &[b'x'; BYTES]);
        let mut probe = probe(server.address(), "PASV\nRETR x");
        probe.timeout = 5 * step;
        let session = only(&probe);
        assert_eq!(session.failure, None);
        let moved = session.commands[1].data.as_ref().expect("data");
        assert_eq!(moved.bytes, BYTES as u64);
    }

    #[test]
    fn a_file_that_changed_on_the_server_is_noticed() {
        let served = Served::start();
        std::fs::write(served.folder.join("given"), b"first").expect("room");
        let login = "USER {user}\nPASS {password}\nTYPE I\n";
        let store = format!("{login}STOR mine\nSLEEP 300ms\nRETR mine");
        let mut probe = probe(served.address, &store);
        probe.timeout = Duration::from_secs(5);
        let mine = served.folder.join("mine");
        let vandal = thread::spawn({
            let mine = mine.clone();
            move || {
                // Waits until the whole file is stored.
                wait_until(|| std::fs::metadata(&mine).map_or(0, |file| file.len()) >= 100_000);
                let mut bytes = std::fs::read(&mine).expect("stored");
                bytes[77_777] ^= 1;
                std::fs::write(&mine, bytes).expect("room");
            }
        });
        let session = only(&probe);
        vandal.join().expect("no panic");
        assert_eq!(failure(&session), (FailureKind::WrongData, "RETR"));
        assert_eq!(session.transfers_complete().count(), 1);
    }
}
