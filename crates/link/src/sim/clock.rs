//! The clock of a site, beside that of the world.

use std::time::{Duration, Instant};

/// By how much a site's clock is later, and for how long it stood still.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    pub(super) ahead: Duration,
    pub(super) behind: Duration,
}

impl Clock {
    pub(super) fn local(self, now: Instant) -> Instant {
        now + self.ahead - self.behind
    }

    pub(super) fn of_world(self, local: Instant) -> Instant {
        local + self.behind - self.ahead
    }
}
