//! Permits for connections. The total number of permits is limited, and so is the number for each
//! client.
//!
//! When all permits are in use, a new connection can replace another connection. A client that
//! opens many connections without sending a request therefore blocks no other client.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use net::target::network;

/// The permits of one listener.
#[derive(Debug)]
pub(super) struct ConnectionPermits {
    all: Arc<Semaphore>,
    of_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
    holders: Arc<Mutex<PermitHolders>>,
    max: usize,
    per_client_max: usize,
}

/// The connections that hold a permit.
#[derive(Debug, Default)]
struct PermitHolders {
    /// The number that was assigned last. Connections and responses are numbered in one sequence.
    last: u64,
    by_number: BTreeMap<u64, PermitHolder>,
}

#[derive(Debug)]
struct PermitHolder {
    /// Sequence number of the connection's last response. `None` before the first response.
    last_response: Option<u64>,
    /// Sender that ends the connection when it is dropped.
    _end_on_drop: oneshot::Sender<()>,
}

/// A permit for one connection. Dropping the value frees the permit.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    client: IpAddr,
    number: u64,
    holders: Arc<Mutex<PermitHolders>>,
    /// Receiver that resolves when another connection replaces this connection.
    pub(super) replaced: oneshot::Receiver<()>,
    of_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _one_of_all: OwnedSemaphorePermit,
}

impl ConnectionPermits {
    pub(super) fn new(max: usize, per_client_max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max)),
            of_client: Arc::default(),
            holders: Arc::default(),
            max,
            per_client_max,
        }
    }

    /// Waits for a free permit.
    pub(super) async fn wait_for_free(&self) -> OwnedSemaphorePermit {
        let free = self.all.clone().acquire_owned().await;
        free.expect("nobody closes the semaphore")
    }

    /// Returns a free permit. If no permit is free, ends the connection that uses its permit least,
    /// and waits for this permit.
    ///
    /// If connections without a response hold more than half of the permits, ends the oldest of
    /// these connections. Otherwise ends the connection whose last response is the oldest.
    pub(super) async fn acquire(&self) -> OwnedSemaphorePermit {
        if let Ok(free) = self.all.clone().try_acquire_owned() {
            return free;
        }
        {
            let mut holders = lock(&self.holders);
            let silent = holders.by_number.iter();
            let mut silent = silent.filter(|(_, it)| it.last_response.is_none());
            let oldest_silent = silent.next().map(|(number, _)| *number);
            let are_many = silent.count() >= self.max / 2;
            let answered = holders.by_number.iter();
            let answered = answered.filter_map(|(number, it)| Some((it.last_response?, *number)));
            let least_used = answered.min().map(|(_, number)| number);
            let goes = match are_many {
                true => oldest_silent,
                false => least_used.or(oldest_silent),
            };
            if let Some(number) = goes {
                holders.by_number.remove(&number);
            }
        }
        self.wait_for_free().await
    }

    /// Assigns a free permit to a client. Returns `None` if the client already holds the maximum
    /// number of permits per client.
    pub(super) fn assign(
        &self,
        free: OwnedSemaphorePermit,
        client: IpAddr,
    ) -> Option<ConnectionPermit> {
        let client = network(client);
        let mut of_client = lock(&self.of_client);
        let count = of_client.entry(client).or_default();
        if *count >= self.per_client_max {
            return None;
        }
        *count += 1;
        let mut holders = lock(&self.holders);
        holders.last += 1;
        let number = holders.last;
        let (keep, replaced) = oneshot::channel();
        let holder = PermitHolder {
            last_response: None,
            _end_on_drop: keep,
        };
        holders.by_number.insert(number, holder);
        Some(ConnectionPermit {
            client,
            number,
            holders: self.holders.clone(),
            replaced,
            of_client: self.of_client.clone(),
            _one_of_all: free,
        })
    }
}

impl ConnectionPermit {
    /// Records that a response was written on this connection.
    pub(super) fn record_response(&self) {
        let mut holders = lock(&self.holders);
        holders.last += 1;
        let last = holders.last;
        if let Some(holder) = holders.by_number.get_mut(&self.number) {
            holder.last_response = Some(last);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        lock(&self.holders).by_number.remove(&self.number);
        let mut of_client = lock(&self.of_client);
        if let Some(count) = of_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                of_client.remove(&self.client);
            }
        }
    }
}

/// Locks the mutex, even if a thread panicked while it held the lock. The counts then stay valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn new_connections_get_the_permits_of_silent_ones() {
        let permits = ConnectionPermits::new(4, 4);
        let client = IpAddr::from([127, 0, 0, 1]);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(
                permits
                    .assign(permits.acquire().await, client)
                    .expect("room"),
            );
        }
        held[0].record_response();
        let is_kept = |permit: &mut ConnectionPermit| {
            let received = permit.replaced.try_recv();
            matches!(received, Err(oneshot::error::TryRecvError::Empty))
        };
        // Three of four connections have no response. The oldest of these three ends first, then
        // the next oldest.
        for goes in [1, 2] {
            let (_, newcomer) = tokio::join!(
                async {
                    while is_kept(&mut held[goes]) {
                        tokio::task::yield_now().await;
                    }
                    drop(held.remove(goes));
                    held.insert(
                        goes,
                        permits
                            .assign(permits.wait_for_free().await, client)
                            .expect("room"),
                    );
                },
                async { drop(permits.acquire().await) },
            );
            let () = newcomer;
            assert!(is_kept(&mut held[0]), "it was answered");
        }
        // Most have a response: the connection with the oldest response ends.
        for permit in held.iter().rev() {
            permit.record_response();
        }
        let (..) = tokio::join!(
            async {
                while is_kept(&mut held[3]) {
                    tokio::task::yield_now().await;
                }
                held.pop();
            },
            async { drop(permits.acquire().await) },
        );
        assert!(held.iter_mut().all(is_kept));
    }

    #[tokio::test]
    async fn one_client_leaves_places_to_others() {
        let permits = ConnectionPermits::new(3, 2);
        let of = |last| IpAddr::from([10, 0, 0, last]);
        let first = permits.assign(permits.wait_for_free().await, of(1));
        let second = permits.assign(permits.wait_for_free().await, of(1));
        assert!(first.is_some() && second.is_some());
        assert!(
            permits
                .assign(permits.wait_for_free().await, of(1))
                .is_none()
        );
        assert!(
            permits
                .assign(permits.wait_for_free().await, of(2))
                .is_some()
        );
        drop(second);
        assert!(
            permits
                .assign(permits.wait_for_free().await, of(1))
                .is_some()
        );
        drop(first);
        assert!(lock(&permits.of_client).is_empty());
    }
}
