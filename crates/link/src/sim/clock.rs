//! Clock of a simulated site. The clock may differ from the clock of the simulation.

use std::time::{Duration, Instant};

/// Difference between a site's clock and the clock of the simulation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SiteClock {
    pub(super) ahead: Duration,
    pub(super) behind: Duration,
}

impl SiteClock {
    pub(super) fn local(self, now: Instant) -> Instant {
        now + self.ahead - self.behind
    }

    pub(super) fn of_world(self, local: Instant) -> Instant {
        local + self.behind - self.ahead
    }
}
