//! History of each peer's rate over the last minutes.

use std::collections::{HashMap, VecDeque};

use relay::status::GatewaySnapshot;

/// Rate of each peer as the sum of both directions. Each snapshot adds one sample. The newest
/// sample is last.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<String, VecDeque<u64>>);

impl History {
    pub(super) fn add(&mut self, snapshot: &GatewaySnapshot) {
        self.0
            .retain(|name, _| snapshot.peers.iter().any(|it| it.name == *name));
        for peer in &snapshot.peers {
            let rates = self.0.entry(peer.name.clone()).or_default();
            rates.push_back(peer.send_bits_per_s + peer.receive_bits_per_s);
            if rates.len() > SAMPLES_MAX {
                rates.pop_front();
            }
        }
    }

    /// Returns the newest `count` samples of a peer, or fewer.
    pub(super) fn last(&self, peer: &str, count: usize) -> Vec<u64> {
        let rates = self.0.get(peer);
        let rates = rates.into_iter().flatten().copied();
        let all: Vec<u64> = rates.collect();
        all[all.len().saturating_sub(count)..].to_vec()
    }
}

/// Maximum number of samples: five minutes. A plot of all samples would be wider than a terminal.
const SAMPLES_MAX: usize = 300;
