//! Log-ins that are in progress. Servers limit the number of log-ins in progress (`MaxStartups` of
//! sshd). For a server, the log-ins of all clients come from one address, that of the far gateway.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use net::target::network;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queue of the clients that wait for the start of their log-in.
#[derive(Debug, Default)]
pub(super) struct LoginQueue {
    /// Permits of each client that has a log-in in progress.
    permits: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl LoginQueue {
    /// Waits until the client may start a further log-in. The log-in is in progress until the
    /// permit is dropped.
    pub(super) async fn wait(&self, client: IpAddr) -> OwnedSemaphorePermit {
        let permits = self.permits(network(client));
        let permit = permits.acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    fn permits(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut all = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = all.get(&client).and_then(Weak::upgrade) {
            return permits;
        }
        all.retain(|_, permits| permits.strong_count() > 0);
        let permits = Arc::new(Semaphore::new(LOGINS_MAX));
        all.insert(client, Arc::downgrade(&permits));
        permits
    }
}

/// Maximum number of concurrent log-ins of one client. An sshd with default settings refuses some
/// connections if 10 log-ins are in progress. One client must not reach this number.
const LOGINS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_client_has_a_limited_number_of_log_ins_in_progress() {
        let queue = LoginQueue::default();
        let [client, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut permits = Vec::new();
        for _ in 0..LOGINS_MAX {
            permits.push(queue.wait(client).await);
        }
        assert!(queue.wait(client).now_or_never().is_none());
        assert!(queue.wait(other).now_or_never().is_some());
        permits.pop();
        assert!(queue.wait(client).now_or_never().is_some());
        drop(permits);
        let _permit = queue.wait(other).await;
        assert_eq!(queue.permits.lock().expect("no panic").len(), 1);
    }
}
