//! State that an endpoint keeps for its next start.

use super::first_flights::ReplayMemory;
use crate::{congestion::PathMemory, identity::PublicKey};

/// State that an endpoint keeps for its next start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RestartState {
    /// Newest handshakes. With them, the endpoint detects the replay of a first flight that was
    /// recorded before the restart.
    pub replay: ReplayMemory,
    /// Last measurements of the path to each peer. The first key of the peer identifies the peer. A
    /// new connection uses these measurements as long as its first packets agree with them.
    pub paths: Vec<(PublicKey, PathMemory)>,
}

impl RestartState {
    pub(super) fn path(&self, keys: &[PublicKey]) -> Option<PathMemory> {
        let known = self.paths.iter().find(|(key, _)| keys.contains(key));
        known.map(|(_, path)| *path)
    }
}

/// Whether `path` must be stored again because it differs enough from the stored `kept`.
pub(super) fn is_news(path: PathMemory, kept: Option<PathMemory>) -> bool {
    kept.is_none_or(|kept| {
        let ratio = path.capacity_bytes_per_s / kept.capacity_bytes_per_s;
        !(1.0 / CAPACITY_NEWS..=CAPACITY_NEWS).contains(&ratio)
            || (path.loss_floor - kept.loss_floor).abs() > LOSS_NEWS
    })
}

/// If the capacity is higher or lower than the stored capacity by more than this factor, the path
/// is stored again. The first packet train of a connection measures the capacity with an error of
/// about this factor.
const CAPACITY_NEWS: f64 = 1.25;
/// Maximum difference between the present and the stored loss floor. If the difference is larger,
/// the path is stored again.
const LOSS_NEWS: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_news_if_its_capacity_or_loss_is_another() {
        let path = |capacity_bytes_per_s, loss_floor| PathMemory {
            capacity_bytes_per_s,
            loss_floor,
        };
        let kept = Some(path(1e6, 0.01));
        assert!(is_news(path(1e6, 0.01), None));
        assert!(!is_news(path(1.2e6, 0.02), kept));
        assert!(is_news(path(1.3e6, 0.01), kept));
        assert!(is_news(path(0.7e6, 0.01), kept));
        assert!(is_news(path(1e6, 0.05), kept));
    }
}
