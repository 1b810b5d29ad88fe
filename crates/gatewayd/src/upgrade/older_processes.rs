//! Communication with older processes, which still serve their last sessions. The serving process
//! informs them of removed peers. The older processes report their sessions.
//!
//! ```text
//! serving process                                older process
//!   keys of its peers, in parts       ------->   dismisses all other peers and keys
//!                                     <-------   pid, version, sessions, transfers: once a second
//! ```
//!
//! The serving process has one socket to each older process. The socket preserves message
//! boundaries (SOCK_SEQPACKET). At an upgrade, the old process passes these sockets to the new
//! process. The old process adds one socket that leads to itself.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixDatagram as StdDatagram,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use link::PublicKey;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use tokio::{net::UnixDatagram, sync::watch, task::JoinSet, time::interval};
use tracing::{debug, warn};

use crate::config::{Config, PeerOrigin};
use relay::status::OlderProcess;

/// The serving process's sockets to older processes, and the latest reports of the older processes.
#[derive(Debug, Default)]
pub(crate) struct OlderProcesses {
    sockets: Mutex<BTreeMap<usize, Arc<UnixDatagram>>>,
    reports: Mutex<BTreeMap<usize, OlderProcess>>,
}

/// An older process's socket to the serving process.
#[derive(Debug)]
pub(crate) struct SuccessorOrders {
    socket: UnixDatagram,
    /// Received keys of an incomplete list. The last part of the list has not arrived.
    parts: Vec<PublicKey>,
}

/// A part of the list of all peers' keys. One socket message has room for only [`KEYS_IN_PART`]
/// keys.
#[derive(Debug, Serialize, Deserialize)]
struct KeysPart {
    is_first: bool,
    is_last: bool,
    keys: Vec<String>,
}

impl OlderProcesses {
    /// Creates the state from the sockets that the old process has passed on.
    pub(crate) fn new(sockets: Vec<OwnedFd>) -> io::Result<Arc<Self>> {
        let sockets = sockets.into_iter().map(tokio_socket).enumerate();
        let sockets = sockets.map(|(number, socket)| Ok((number, Arc::new(socket?))));
        Ok(Arc::new(Self {
            sockets: Mutex::new(sockets.collect::<io::Result<_>>()?),
            reports: Mutex::default(),
        }))
    }

    /// Sends the keys of all peers to each older process, at the start and at each change. Stores
    /// the reports that the older processes send.
    pub(crate) async fn follow<T: Send + Sync + 'static>(
        self: Arc<Self>,
        current: watch::Receiver<Arc<T>>,
        config_of: fn(&T) -> &Config,
    ) {
        let sockets: Vec<_> = {
            let sockets = lock(&self.sockets);
            let copies = sockets.iter();
            copies.map(|(at, it)| (*at, it.clone())).collect()
        };
        let mut followed = JoinSet::new();
        for (number, socket) in sockets {
            let (this, current) = (self.clone(), current.clone());
            followed.spawn(async move {
                if let Err(error) = this.follow_one(number, &socket, current, config_of).await {
                    debug!(%error, "an older process cannot be reached");
                }
                lock(&this.sockets).remove(&number);
                lock(&this.reports).remove(&number);
            });
        }
        while followed.join_next().await.is_some() {}
    }

    async fn follow_one<T>(
        &self,
        number: usize,
        socket: &UnixDatagram,
        mut current: watch::Receiver<Arc<T>>,
        config_of: fn(&T) -> &Config,
    ) -> io::Result<()> {
        let mut sent_keys = None;
        let mut buffer = vec![0; REPORT_BYTES_MAX];
        loop {
            let keys = keys_of(config_of(&current.borrow_and_update()));
            if sent_keys.as_ref() != Some(&keys) {
                for part in split_keys(&keys) {
                    socket.send(&part).await?;
                }
                sent_keys = Some(keys);
            }
            tokio::select! {
                changed = current.changed() => if changed.is_err() {
                    return Ok(());
                },
                received = socket.recv(&mut buffer) => {
                    let report = match received? {
                        0 => return Ok(()),
                        length => serde_json::from_slice(&buffer[..length])?,
                    };
                    lock(&self.reports).insert(number, report);
                }
            }
        }
    }

    /// Returns the latest report of each older process.
    pub(crate) fn reports(&self) -> Vec<OlderProcess> {
        lock(&self.reports).values().cloned().collect()
    }

    /// Returns the sockets to older processes. An upgrade passes them to the next process.
    pub(super) fn sockets(&self) -> Vec<Arc<UnixDatagram>> {
        lock(&self.sockets).values().cloned().collect()
    }
}

impl SuccessorOrders {
    /// Creates a pair of connected sockets: one for this process, and one for the process that
    /// replaces it.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let orders = Self {
            socket: tokio_socket(ours)?,
            parts: Vec::new(),
        };
        Ok((orders, theirs))
    }

    /// Sends the result of `report` once a second. Calls `keep` with the keys of the present peers
    /// whenever the serving process has sent them. Returns when no process can send keys any
    /// longer.
    pub(crate) async fn run(
        mut self,
        report: impl Fn() -> OlderProcess,
        mut keep: impl FnMut(&HashSet<PublicKey>),
    ) {
        let mut ticks = interval(REPORT_INTERVAL);
        let mut buffer = vec![0; KEYS_BYTES_MAX];
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let report = serde_json::to_vec(&report()).unwrap_or_default();
                    // If the reader is slow, this report is dropped. The reader then receives the
                    // next report.
                    let _ = self.socket.try_send(&report);
                }
                received = self.socket.recv(&mut buffer) => match received {
                    Ok(0) | Err(_) => {
                        warn!("the process that has replaced this one has ended");
                        return;
                    }
                    Ok(length) => if let Some(keys) = self.add_part(&buffer[..length]) {
                        keep(&keys);
                    },
                }
            }
        }
    }

    /// Adds a part of the list of keys. Returns all keys once the last part has arrived.
    fn add_part(&mut self, message: &[u8]) -> Option<HashSet<PublicKey>> {
        let part: KeysPart = serde_json::from_slice(message).ok()?;
        if part.is_first {
            self.parts.clear();
        }
        let keys = part.keys.iter();
        self.parts
            .extend(keys.filter_map(|key| key.parse::<PublicKey>().ok()));
        part.is_last
            .then(|| std::mem::take(&mut self.parts).into_iter().collect())
    }
}

/// Returns the name that a socket to an older process has in a handover.
pub(super) fn older_name(number: usize) -> String {
    format!("{OLDER_NAME}{number}")
}

/// Whether a socket with this name in a handover leads to an older process.
pub(super) fn is_older_name(name: &str) -> bool {
    name.starts_with(OLDER_NAME)
}

/// Returns the sockets to older processes with their names. The last entry is the new socket `own`.
pub(super) fn name_sockets<'a>(
    older: &'a [Arc<UnixDatagram>],
    own: &'a OwnedFd,
) -> Vec<(String, BorrowedFd<'a>)> {
    let sockets = older.iter().map(|socket| socket.as_fd());
    let sockets = sockets.chain([own.as_fd()]).enumerate();
    sockets
        .map(|(number, socket)| (older_name(number), socket))
        .collect()
}

/// Returns the public keys of all peers, without removed peers.
pub(super) fn keys_of(config: &Config) -> Vec<PublicKey> {
    let peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    // The configuration also contains removed peers, so that the gateway can inform them.
    let peers = peers.filter(|(peer, _)| peer.origin != PeerOrigin::Dismissed);
    peers
        .flat_map(|(_, of_link)| of_link.public_keys.iter().copied())
        .collect()
}

fn split_keys(keys: &[PublicKey]) -> Vec<Vec<u8>> {
    let mut chunks: Vec<_> = keys.chunks(KEYS_IN_PART).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let count = chunks.len();
    let parts = chunks.into_iter().enumerate().map(|(at, keys)| KeysPart {
        is_first: at == 0,
        is_last: at + 1 == count,
        keys: keys.iter().map(ToString::to_string).collect(),
    });
    let texts = parts.map(|part| serde_json::to_vec(&part));
    texts.map(|text| text.expect("texts are JSON")).collect()
}

/// Converts a socket to Tokio's datagram type. This type preserves message boundaries for
/// SOCK_DGRAM and SOCK_SEQPACKET. SOCK_SEQPACKET also signals when the other process closes its
/// socket.
fn tokio_socket(socket: OwnedFd) -> io::Result<UnixDatagram> {
    let socket = StdDatagram::from(socket);
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// Locks the mutex. The sockets and reports remain valid if a thread panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const OLDER_NAME: &str = "to older process ";

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum length of a report in bytes. A report contains a few numbers and a version.
const REPORT_BYTES_MAX: usize = 4096;

/// Maximum number of keys in one part. The text of a key has 47 bytes. With the usual kernel
/// limits, a socket message may have 200 KB.
const KEYS_IN_PART: usize = 512;
const KEYS_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use link::Identity;

    use super::*;

    #[tokio::test]
    async fn all_keys_arrive_in_parts_and_an_end_is_noticed() {
        let keys: Vec<_> = (0..4096_u32)
            .map(|seed| {
                let mut bytes = [0; 32];
                bytes[..4].copy_from_slice(&seed.to_be_bytes());
                PublicKey(bytes)
            })
            .collect();
        let (mut orders, theirs) = SuccessorOrders::pair().expect("sockets can be made");
        let theirs = tokio_socket(theirs).expect("a socket");
        assert_eq!(split_keys(&keys).len(), 8);
        let mut buffer = vec![0; KEYS_BYTES_MAX];
        let mut came = None;
        for part in split_keys(&keys) {
            assert_eq!(came, None, "not all parts have come");
            theirs.send(&part).await.expect("the other end is there");
            let length = orders.socket.recv(&mut buffer).await.expect("it came");
            came = orders.add_part(&buffer[..length]);
        }
        assert_eq!(came, Some(keys.into_iter().collect()));
        assert_eq!(orders.add_part(b"nonsense"), None);
        assert_eq!(orders.add_part(&split_keys(&[])[0]), Some(HashSet::new()));
        drop(theirs);
        let end = tokio::time::timeout(Duration::from_secs(10), async {
            let report = OlderProcess::default;
            orders.run(report, |_| panic!("nothing was said")).await;
        });
        end.await.expect("the end is noticed");
    }

    #[tokio::test]
    async fn a_report_arrives() {
        let (orders, theirs) = SuccessorOrders::pair().expect("sockets can be made");
        let older = OlderProcesses::new(vec![theirs]).expect("a socket");
        let socket = older.sockets().pop().expect("there is one");
        let own = Identity::from_seed([1; 32]).public_key();
        let report = || OlderProcess {
            sessions_open: 2,
            ..OlderProcess::default()
        };
        let (sent, mut seen) = watch::channel(HashSet::new());
        let task = tokio::spawn(orders.run(report, move |keys| {
            sent.send_replace(keys.clone());
        }));
        let mut buffer = vec![0; REPORT_BYTES_MAX];
        let length = socket.recv(&mut buffer).await.expect("a report");
        let came: OlderProcess = serde_json::from_slice(&buffer[..length]).expect("JSON");
        assert_eq!(came.sessions_open, 2);
        for part in split_keys(&[own]) {
            socket.send(&part).await.expect("the other end is there");
        }
        let kept = seen.wait_for(|keys| keys.contains(&own)).await;
        assert!(kept.is_ok());
        task.abort();
    }
}
