//! An FTP server in memory for tests.
//!
//! A test gives a [`Behaviour`]: what the server refuses, delays, cuts off or gets wrong. The server
//! listens at a port of loopback, one thread for each connection. Files, commands and connections are in
//! [`State`], which the test reads and changes while the server runs. A real server misbehaves at moments
//! that no test can choose; `bench_kit::ftp_server` is one, for tests that need no fault.
#![allow(
    clippy::disallowed_methods,
    reason = "owns sockets and waits, for tests only"
)]

mod behaviour;
mod session;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

pub use behaviour::{Behaviour, Overwrites};
use session::Session;

/// A running server. Clones share its state; it runs until the process ends.
#[derive(Debug, Clone)]
pub struct FakeServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    is_gateway: bool,
}

/// Files of the server, and what its clients have done.
#[derive(Debug, Default)]
pub struct State {
    /// Content and modification time of each file, by its path.
    pub files: BTreeMap<String, (Vec<u8>, String)>,
    /// Paths of the directories. The root is always there.
    pub directories: BTreeSet<String>,
    /// Verbs of all commands, in order of arrival.
    pub verbs: Vec<String>,
    /// The same verbs, grouped: a group was sent without waiting for a reply in between.
    /// Recorded for gateways, and where [`Behaviour::records_batches`] is set.
    pub batches: Vec<Vec<String>>,
    /// Number of transfers during which the client already sent the command of another one.
    pub ahead: usize,
    /// Number of connections since the start.
    pub connections: usize,
    /// Number of connections that have not ended.
    pub open: usize,
    /// Ports of `PORT` commands, in order of arrival.
    pub ports: Vec<u16>,
    /// Number of downloads since the start.
    pub downloads: usize,
    /// Number of downloads that have not ended.
    pub downloading: usize,
    /// Number of downloads refused because of another one.
    pub refused: usize,
    /// Bytes sent in each download, by its number from 1.
    pub sent: BTreeMap<usize, usize>,
    /// Number of further `SIZE` and `MDTM` commands that get a temporary refusal.
    pub refused_questions: usize,
    /// Number of further uploads that are refused.
    pub refused_uploads: usize,
    /// Bytes after which each of the next uploads breaks off.
    pub breaks_after: VecDeque<usize>,
}

impl FakeServer {
    /// Starts a server at a free port of loopback.
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State::default()));
        let server = Self {
            address,
            state: state.clone(),
            is_gateway: behaviour.is_gateway,
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (state, behaviour) = (state.clone(), behaviour.clone());
                let client = client.expect("a connection");
                thread::spawn(move || {
                    let open = client.try_clone().expect("a socket");
                    let close_delay = behaviour.close_delay;
                    Session::serve(client, state.clone(), behaviour);
                    thread::sleep(close_delay);
                    state.lock().expect("whole").open -= 1;
                    // The client sees the end once there is room.
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

    /// Returns whether the server behaves as the listener of a gateway.
    pub fn is_gateway(&self) -> bool {
        self.is_gateway
    }

    /// Locks the state. No connection goes on meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// Adds a file, or replaces it.
    pub fn put(&self, path: &str, content: &[u8]) {
        let file = (content.to_vec(), "20260102030405".to_owned());
        self.state().files.insert(path.to_owned(), file);
    }

    /// Returns the content of a file, if it exists.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.state().files.get(path).map(|it| it.0.clone())
    }
}
