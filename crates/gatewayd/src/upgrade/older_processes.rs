//! Older processes, which still serve their sessions. The serving process informs them of removed
//! peers, and they report their sessions to it.
//!
//! ```text
//! serving process                                older process
//!   keys of its peers, in parts       ------->   dismisses all other peers and keys
//!                                     <-------   pid, version, sessions, transfers: once a second
//! ```
//!
//! Each older process has its own socket that keeps messages apart (SOCK_SEQPACKET). At an upgrade
//! the ends of the serving process move to the new process, together with one for the process that
//! hands over.

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

/// The older processes, as the serving one sees them.
#[derive(Debug, Default)]
pub(crate) struct OlderProcesses {
    sockets: Mutex<BTreeMap<usize, Arc<UnixDatagram>>>,
    reports: Mutex<BTreeMap<usize, OlderProcess>>,
}

/// The serving process, as an older one sees it.
#[derive(Debug)]
pub(crate) struct SuccessorOrders {
    socket: UnixDatagram,
    /// Keys of a message whose last part has not arrived.
    parts: Vec<PublicKey>,
}

/// A part of the keys of all peers.
#[derive(Debug, Serialize, Deserialize)]
struct KeysPart {
    is_first: bool,
    is_last: bool,
    keys: Vec<String>,
}

impl OlderProcesses {
    /// Creates the state from the sockets of the process that hands over.
    pub(crate) fn new(sockets: Vec<OwnedFd>) -> io::Result<Arc<Self>> {
        let sockets = sockets.into_iter().map(tokio_socket).enumerate();
        let sockets = sockets.map(|(number, socket)| Ok((number, Arc::new(socket?))));
        Ok(Arc::new(Self {
            sockets: Mutex::new(sockets.collect::<io::Result<_>>()?),
            reports: Mutex::default(),
        }))
    }

    /// Sends all keys of peers to each older process, at the start and at each change. Receives
    /// their reports. Runs until dropped.
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

    /// Returns the latest report of each process.
    pub(crate) fn reports(&self) -> Vec<OlderProcess> {
        lock(&self.reports).values().cloned().collect()
    }

    /// Returns the sockets for the next process.
    pub(super) fn sockets(&self) -> Vec<Arc<UnixDatagram>> {
        lock(&self.sockets).values().cloned().collect()
    }
}

impl SuccessorOrders {
    /// Creates a socket for the successor of this process, and its other end.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let orders = Self {
            socket: tokio_socket(ours)?,
            parts: Vec::new(),
        };
        Ok((orders, theirs))
    }

    /// Reports the result of `report` once a second, and passes on the keys of the present peers.
    /// Returns when no process is left that could send keys.
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
                    // A slow reader gets the next report.
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

    /// Adds a part. Returns all keys after the last part.
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

/// Returns the name of the socket to an older process in a handover.
pub(super) fn older_name(number: usize) -> String {
    format!("{OLDER_NAME}{number}")
}

/// Whether a socket of a handover leads to an older process.
pub(super) fn is_older_name(name: &str) -> bool {
    name.starts_with(OLDER_NAME)
}

/// Returns the sockets with their names.
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

/// Returns the keys of all peers.
pub(super) fn keys_of(config: &Config) -> Vec<PublicKey> {
    let peers = config.relay.peers.iter().zip(&config.relay.link.peers);
    // The configuration contains removed peers, so that they can be informed.
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

/// Converts the socket. Tokio's datagram type keeps messages apart for both SOCK_DGRAM and
/// SOCK_SEQPACKET. SOCK_SEQPACKET also reports the end.
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

/// Longest report: a few numbers and a version.
const REPORT_BYTES_MAX: usize = 4096;

/// Keys in one part. A key takes 47 bytes, and a socket message may have 200 KB with the usual
/// limits.
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
