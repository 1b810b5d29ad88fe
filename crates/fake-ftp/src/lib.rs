//! An FTP server in memory for tests.
//!
//! A test passes a [`Behaviour`], which contains the refusals, delays, aborts and faults of the
//! server. The server listens at a port of the loopback address, and serves each connection in its
//! own thread. Files, commands and connections are in [`State`], which the test reads and changes
//! while the server runs.
//!
//! Tests that need no faults can use a real server, `bench_kit::ftp_server`. A real server shows
//! faults at moments that a test cannot choose.
#![allow(
    clippy::disallowed_methods,
    reason = "owns sockets and waits, for tests only"
)]

mod behaviour;
mod session;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

pub use behaviour::{Behaviour, Overwrites, ReplyScript};
use session::Session;

/// A running FTP server. Clones share its state, and the server runs until the process ends.
#[derive(Debug, Clone)]
pub struct FakeServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    is_gateway: bool,
}

/// Files of the server, and a record of the clients' commands and connections.
#[derive(Debug, Default)]
pub struct State {
    /// Content and modification time of each file, indexed by path.
    pub files: BTreeMap<String, (Vec<u8>, String)>,
    /// Paths of the directories. The root always exists.
    pub directories: BTreeSet<String>,
    /// Verbs of all commands, in the order of arrival.
    pub verbs: Vec<String>,
    /// Verbs of all commands, grouped. The client sent the commands of one group without waiting
    /// for a reply.
    ///
    /// The server records groups if it behaves like a gateway, or if [`Behaviour::records_batches`]
    /// is set.
    pub batches: Vec<Vec<String>>,
    /// Number of transfers during which the client already sent the command for another transfer.
    pub ahead: usize,
    /// Number of connections since the server started.
    pub connections: usize,
    /// Number of connections that are open.
    pub open: usize,
    /// Numbers of the connections that have ended, in the order of their ends. The first connection
    /// has the number 0.
    pub ended: Vec<usize>,
    /// Uploads, in the order of their starts.
    pub uploads: Vec<Upload>,
    /// Ports in `PORT` and `EPRT` commands, in the order of arrival.
    pub ports: Vec<u16>,
    /// Number of downloads since the server started.
    pub downloads: usize,
    /// Number of downloads in progress.
    pub downloading: usize,
    /// Number of downloads that were refused because another download was in progress.
    pub refused: usize,
    /// Number of bytes sent in each download. The key is the number of the download, counted from
    /// 1.
    pub sent: BTreeMap<usize, usize>,
    /// Number of `SIZE` and `MDTM` commands that the server will still refuse temporarily.
    pub refused_questions: usize,
    /// Number of uploads that the server will still refuse.
    pub refused_uploads: usize,
    /// Number of bytes after which the server aborts each of the next uploads.
    pub breaks_after: VecDeque<usize>,
}

impl State {
    /// Creates a directory. Returns false if the directory exists, or if its parent does not exist.
    fn make_directory(&mut self, path: String) -> bool {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        parent.is_none_or(|it| self.directories.contains(it)) && self.directories.insert(path)
    }
}

/// Progress of one upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upload {
    /// Number of bytes that the server has read.
    pub bytes: usize,
    /// End of the data connection: orderly, or with an error. `None` while the upload is in
    /// progress.
    pub end: Option<Result<(), io::ErrorKind>>,
}

impl FakeServer {
    /// Starts a server at a free port of the loopback address.
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Self::start_at(listener, behaviour)
    }

    /// Starts a server that accepts connections from `listener`, in the network namespace of the
    /// calling thread.
    pub fn start_at(listener: TcpListener, behaviour: Behaviour) -> Self {
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State::default()));
        let server = Self {
            address,
            state: state.clone(),
            is_gateway: behaviour.is_gateway,
        };
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let (state, behaviour) = (state.clone(), behaviour.clone());
                let client = client.expect("a connection");
                thread::spawn(move || {
                    let open = client.try_clone().expect("a socket");
                    let close_delay = behaviour.close_delay;
                    let counted = Session::serve(client, state.clone(), behaviour);
                    thread::sleep(close_delay);
                    let mut state = state.lock().expect("whole");
                    state.open -= usize::from(counted);
                    state.ended.push(number);
                    drop(state);
                    // The client detects the end only when the connection no longer counts as open.
                    drop(open);
                });
            }
        });
        server
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the server behaves like the listener of a gateway.
    pub fn is_gateway(&self) -> bool {
        self.is_gateway
    }

    /// Locks and returns the state. All connections wait until the lock is released.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// Waits until `condition` is true, and returns the state.
    ///
    /// # Panics
    /// If `condition` is still false after 30 s.
    #[track_caller]
    pub fn wait_for(
        &self,
        what: &str,
        condition: impl Fn(&State) -> bool,
    ) -> MutexGuard<'_, State> {
        let begun = Instant::now();
        while begun.elapsed() < WAIT_TIMEOUT {
            let state = self.state();
            if condition(&state) {
                return state;
            }
            drop(state);
            thread::sleep(Duration::from_millis(2));
        }
        panic!("{what} in {WAIT_TIMEOUT:?}");
    }

    /// Adds a file, or replaces an existing file.
    pub fn put(&self, path: &str, content: &[u8]) {
        let file = (content.to_vec(), "20260102030405".to_owned());
        self.state().files.insert(path.to_owned(), file);
    }

    /// Returns the content of a file, or `None` if the file does not exist.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.state().files.get(path).map(|it| it.0.clone())
    }
}

/// Longest time for which a test waits for a state. A test that passes never waits this long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpStream,
    };

    use super::*;

    fn connect(server: &FakeServer) -> BufReader<TcpStream> {
        BufReader::new(TcpStream::connect(server.address()).expect("the server listens"))
    }

    fn reply(client: &mut BufReader<TcpStream>) -> String {
        let mut line = String::new();
        client.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    fn ask(client: &mut BufReader<TcpStream>, command: &str) -> String {
        write!(client.get_mut(), "{command}\r\n").expect("the server reads");
        reply(client)
    }

    /// Opens a data connection with `PASV` or `EPSV`.
    fn passive(client: &mut BufReader<TcpStream>, verb: &str) -> TcpStream {
        let reply = ask(client, verb);
        let digits = reply[4..].split(|it: char| !it.is_ascii_digit());
        let numbers: Vec<u16> = digits.flat_map(str::parse).collect();
        let port = match numbers[..] {
            [port] => port,
            [127, 0, 0, 1, high, low] => high << 8 | low,
            _ => panic!("{reply}"),
        };
        TcpStream::connect(("127.0.0.1", port)).expect("the server listens")
    }

    #[test]
    fn fixed_replies_replace_commands_and_leave_the_connection_open() {
        let server = FakeServer::start(Behaviour {
            greeting: Some("220 hello"),
            replies: [("PASS", "530 no"), ("NOOP", ""), ("QUIT", "221 bye")].into(),
            ..Behaviour::default()
        });
        let mut client = connect(&server);
        assert_eq!(reply(&mut client), "220 hello");
        assert_eq!(ask(&mut client, "PASS x"), "530 no");
        client.get_mut().write_all(b"NOOP\r\n").expect("it reads");
        assert_eq!(ask(&mut client, "QUIT"), "221 bye");
        assert_eq!(ask(&mut client, "PWD"), "257 \"/\"");
        assert_eq!(server.state().verbs, ["PASS", "NOOP", "QUIT", "PWD"]);
        assert!(server.state().ended.is_empty());
        drop(client);
        drop(server.wait_for("an end", |it| it.ended == [0]));
    }

    #[test]
    fn a_script_ends_in_a_close_or_in_silence() {
        let script = ["220 a", "550 b"];
        for (script, is_silent) in [
            (ReplyScript::then_close(&script), false),
            (ReplyScript::then_silence(&script), true),
        ] {
            let server = FakeServer::start(Behaviour {
                script: Some(script),
                ..Behaviour::default()
            });
            let mut client = connect(&server);
            assert_eq!(reply(&mut client), "220 a");
            assert_eq!(ask(&mut client, "USER me"), "550 b");
            client.get_mut().write_all(b"QUIT\r\n").expect("it reads");
            if is_silent {
                drop(server.wait_for("the command", |it| it.verbs.len() == 2));
                assert!(server.state().ended.is_empty());
            } else {
                assert_eq!(reply(&mut client), "", "an orderly end");
            }
        }
    }

    #[test]
    fn an_upload_is_recorded_while_it_goes_on_and_when_it_is_reset() {
        for is_reset in [false, true] {
            let server = FakeServer::start(Behaviour {
                upload_reply: Some("226 fine"),
                ..Behaviour::default()
            });
            let mut client = connect(&server);
            reply(&mut client);
            let mut data = passive(&mut client, "PASV");
            assert!(ask(&mut client, "STOR a").starts_with("150"));
            data.write_all(b"half").expect("it reads");
            let begun = |it: &State| it.uploads.first().is_some_and(|it| it.bytes == 4);
            drop(server.wait_for("four bytes", begun));
            assert_eq!(server.state().uploads[0].end, None);
            let end = match is_reset {
                true => {
                    let socket = socket2::SockRef::from(&data);
                    socket.set_linger(Some(Duration::ZERO)).expect("a socket");
                    Err(io::ErrorKind::ConnectionReset)
                }
                false => Ok(()),
            };
            drop(data);
            assert_eq!(reply(&mut client), "226 fine");
            assert_eq!(server.state().uploads[0].end, Some(end));
            assert_eq!(server.content("a"), Some(b"half".to_vec()));
        }
    }

    #[test]
    fn a_download_comes_to_a_passive_port_and_to_a_port_of_the_client() {
        let server = FakeServer::start(Behaviour {
            download_step_bytes: Some(2),
            ..Behaviour::default()
        });
        server.put("a", b"bytes");
        let mut client = connect(&server);
        reply(&mut client);
        for command in ["EPSV", "PASV", "PORT", "EPRT"] {
            let mut data = if command.ends_with('V') {
                let data = passive(&mut client, command);
                assert!(ask(&mut client, "RETR a").starts_with("150"));
                data
            } else {
                let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
                let port = listener.local_addr().expect("bound").port();
                let named = match command {
                    "PORT" => format!("PORT 127,0,0,1,{},{}", port >> 8, port & 255),
                    _ => format!("EPRT |1|127.0.0.1|{port}|"),
                };
                assert!(ask(&mut client, &named).starts_with("200"));
                assert!(ask(&mut client, "RETR a").starts_with("150"));
                listener.accept().expect("the server connects").0
            };
            let mut bytes = Vec::new();
            data.read_to_end(&mut bytes).expect("an orderly end");
            assert_eq!(bytes, b"bytes", "{command}");
            assert_eq!(reply(&mut client), "226 done");
        }
    }
}
