//! Places for connections: so many in all, and so many for one client.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::network;

/// The places of a listener.
#[derive(Debug)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    of_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
    per_client_max: usize,
}

/// A place; dropped, it is free again.
#[derive(Debug)]
pub(super) struct Place {
    client: IpAddr,
    of_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _one_of_all: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(max: usize, per_client_max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max)),
            of_client: Arc::default(),
            per_client_max,
        }
    }

    /// Waits until one is free.
    pub(super) async fn free(&self) -> OwnedSemaphorePermit {
        let free = self.all.clone().acquire_owned().await;
        free.expect("nobody closes the semaphore")
    }

    /// Gives a free one to a client; `None`: the client has as many as one may have.
    pub(super) fn give(&self, free: OwnedSemaphorePermit, client: IpAddr) -> Option<Place> {
        let client = network(client);
        let mut of_client = lock(&self.of_client);
        let count = of_client.entry(client).or_default();
        if *count >= self.per_client_max {
            return None;
        }
        *count += 1;
        Some(Place {
            client,
            of_client: self.of_client.clone(),
            _one_of_all: free,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of_client = lock(&self.of_client);
        if let Some(count) = of_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                of_client.remove(&self.client);
            }
        }
    }
}

/// A poisoned lock still has the counts.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_client_leaves_places_to_others() {
        let places = Places::new(3, 2);
        let of = |last| IpAddr::from([10, 0, 0, last]);
        let first = places.give(places.free().await, of(1));
        let second = places.give(places.free().await, of(1));
        assert!(first.is_some() && second.is_some());
        assert!(places.give(places.free().await, of(1)).is_none());
        assert!(places.give(places.free().await, of(2)).is_some());
        drop(second);
        assert!(places.give(places.free().await, of(1)).is_some());
        drop(first);
        assert!(lock(&places.of_client).is_empty());
    }
}
