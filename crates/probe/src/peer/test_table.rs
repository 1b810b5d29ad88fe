//! Running tests of a peer. Each test has a random number that only the test's client has received.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    net::IpAddr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crate::{
    tcp::{self, StreamEnd},
    udp,
};

/// A running test with its client.
#[derive(Debug)]
pub(super) struct RunningTest {
    pub(super) id: u64,
    /// Address of the client. Connections and datagrams from other addresses do not belong to the
    /// test.
    pub(super) client: IpAddr,
    pub(super) kind: TestKind,
    is_over: AtomicBool,
}

#[derive(Debug)]
pub(super) enum TestKind {
    Ping,
    Tcp {
        task: tcp::TcpTask,
        streams: Mutex<TestStreams>,
        /// Condition variable that is notified when the streams begin.
        begun: Condvar,
    },
    Udp(Box<Mutex<udp::UdpPeerTest>>),
}

/// The streams of a bulk TCP test.
#[derive(Debug, Default)]
pub(super) struct TestStreams {
    /// Results of the streams by number. `Some(None)` means that the stream has no result yet.
    pub(super) ends: HashMap<u16, Option<StreamEnd>>,
    /// Time at which all streams began.
    pub(super) began: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct TestTable(Mutex<HashMap<u64, Arc<RunningTest>>>);

impl TestTable {
    pub(super) fn add(&self, client: IpAddr, kind: TestKind) -> io::Result<Arc<RunningTest>> {
        let mut bytes = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let test = Arc::new(RunningTest {
            id: u64::from_ne_bytes(bytes),
            client: client.to_canonical(),
            kind,
            is_over: AtomicBool::new(false),
        });
        lock(&self.0).insert(test.id, test.clone());
        Ok(test)
    }

    /// Returns the test with this number if it belongs to `client`.
    pub(super) fn find(&self, id: u64, client: IpAddr) -> Option<Arc<RunningTest>> {
        let found = lock(&self.0).get(&id).cloned();
        found.filter(|test| test.client == client.to_canonical())
    }

    pub(super) fn remove(&self, test: &RunningTest) {
        test.is_over.store(true, Ordering::Relaxed);
        lock(&self.0).remove(&test.id);
    }
}

impl RunningTest {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Locks a mutex even if another thread has panicked. Each locked value changes in a single step,
/// so the value is consistent even after a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_its_client_alone_and_until_it_is_removed() {
        let table = TestTable::default();
        let [client, other] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().expect("an address"));
        let test = table.add(client, TestKind::Ping).expect("random numbers");
        assert!(table.find(test.id, client).is_some());
        let mapped = "::ffff:10.0.0.1".parse().expect("an address");
        assert!(table.find(test.id, mapped).is_some());
        assert!(table.find(test.id, other).is_none());
        assert!(table.find(test.id ^ 1, client).is_none());
        table.remove(&test);
        assert!(table.find(test.id, client).is_none() && test.is_over());
    }
}
