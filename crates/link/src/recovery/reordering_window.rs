//! Reordering window: the time by which a packet may arrive late before it counts as lost.
//!
//! The input is the lateness of packets that arrive late. The output is the present window. The
//! window slowly shrinks if no late packets arrive.

use std::time::Duration;

use crate::time::Time;

/// Largest recent lateness of a packet.
#[derive(Debug, Default)]
pub(super) struct ReorderingWindow {
    longest: Duration,
    learned: Time,
}

/// Time in which a measured lateness decreases to half.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Ratio of the window to the measured lateness. The next late packet may be slightly later.
const MARGIN: f64 = 1.1;

impl ReorderingWindow {
    /// Adds a packet that arrived late by `late`. `was_waited_for` is set if the packet was not
    /// declared lost. Such a packet sets no new maximum. If the packet was at least half as late as
    /// the maximum, the window does not shrink.
    pub(super) fn learn(&mut self, late: Duration, was_waited_for: bool, now: Time) {
        let faded = self.faded(now);
        if late > faded && !was_waited_for {
            self.longest = late;
            self.learned = now;
        } else if 2 * late >= self.longest {
            self.learned = now;
        } else if 2 * late >= faded {
            self.longest = faded;
            self.learned = now;
        }
    }

    /// Returns the reordering window at the time `now`.
    pub(super) fn wait(&self, now: Time) -> Duration {
        self.faded(now).mul_f64(MARGIN)
    }

    fn faded(&self, now: Time) -> Duration {
        let age = now.since(self.learned).as_secs_f64();
        let faded = 0.5f64.powf(age / HALF_LIFE.as_secs_f64());
        self.longest.mul_f64(faded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn repeated_lateness_keeps_the_window_and_past_lateness_fades() {
        let late = Duration::from_millis(100);
        let mut reordering = ReorderingWindow::default();
        reordering.learn(Duration::from_secs(2), false, Time(0));
        assert!(reordering.wait(Time(60 * SECOND)) < Duration::from_millis(40));
        reordering.learn(late, false, Time(60 * SECOND));
        for second in 61..200 {
            reordering.learn(late * 9 / 10, true, Time(second * SECOND));
        }
        let wait = reordering.wait(Time(200 * SECOND));
        assert!(wait > late && wait < late * 12 / 10, "{wait:?}");
    }
}
