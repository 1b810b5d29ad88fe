//! Reloading: a running gateway takes the rate caps, the transfer log and the certificates of front doors
//! from a changed configuration, and opens their files again. Every other change waits for a
//! restart, and a log line says so.

use std::sync::Arc;

use link::Link;
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::{config::Config, status::Registry, tls::Acceptor, transfer_log::Opened};

/// Takes on each configuration that comes; `running` is the one that the gateway was started with.
pub(crate) async fn serve(
    mut reloads: mpsc::Receiver<Config>,
    link: Link,
    running: Config,
    acceptors: Vec<Arc<Acceptor>>,
    registry: Arc<Registry>,
) {
    while let Some(fresh) = reloads.recv().await {
        for acceptor in &acceptors {
            acceptor.reload();
        }
        if !same_peers(&running, &fresh) {
            warn!("the peers have changed: that takes a restart, nothing was taken on");
            continue;
        }
        match Opened::open(fresh.transfer_log.as_ref()) {
            Ok(opened) => registry.transfer_log().go_on_in(opened),
            Err(error) => {
                warn!(%error, "nothing was taken on");
                continue;
            }
        }
        let mut peers = running.link.peers.clone();
        for (peer, fresh) in peers.iter_mut().zip(&fresh.link.peers) {
            peer.rate_max = fresh.rate_max;
        }
        link.set_peers(peers, fresh.link.rate_max);
        info!("configuration read again: rate_max of [link] and of each [[peer]] taken on");
        if !same_but_rates(&running, fresh) {
            warn!("other keys have changed, too: these take a restart");
        }
    }
}

/// Whether caps of one are caps of the same peers in the other.
fn same_peers(running: &Config, fresh: &Config) -> bool {
    fn names(config: &Config) -> impl Iterator<Item = &str> {
        config.link.peers.iter().map(|peer| peer.name.as_str())
    }
    names(running).eq(names(fresh))
}

/// Whether only the caps differ.
fn same_but_rates(running: &Config, mut fresh: Config) -> bool {
    fresh.link.rate_max = running.link.rate_max;
    fresh.transfer_log.clone_from(&running.transfer_log);
    for (fresh, running) in fresh.link.peers.iter_mut().zip(&running.link.peers) {
        fresh.rate_max = running.rate_max;
    }
    fresh == *running
}
