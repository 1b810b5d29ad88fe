//! What a mode wants to do next.

use super::super::floor::Tally;

/// What comes after a step of a mode. Where a window is not given, the mode has set it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Next {
    /// The mode goes on.
    Stay,
    /// Go on with start-up, from the window that passes.
    Start,
    /// Grow until a queue shows.
    Grow,
    /// Grow by CUBIC's law where a limit is known that drops instead of queueing; otherwise until a queue shows.
    Resume,
    /// Empty the queue in front of `capacity` bytes per second in the sending domain.
    Drain { capacity: f64, series: Series },
    /// The drains of a series have not emptied the queue, and it is one.
    DrainFailed(Series),
    /// Find out whether the queue is a longer route.
    TestRoute(SeemingQueue),
    /// Cut the window for an excess of losses, and find out whether the cut helps.
    CutForLoss(LossySign),
    /// Compete with those who keep the queue full, beginning with `window` bytes.
    Compete { window: f64 },
}

/// Drains one after the other in front of the same queue, so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in super::super) struct Series {
    /// Drains that have not emptied the queue.
    pub(in super::super) failed: u32,
    /// What the last test of the route has found, if there was one.
    pub(in super::super) tested: Option<Finding>,
}

/// What a test of the route has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Finding {
    /// A queue, or no word: it was too slow, or nothing was heard of it.
    Queue,
    /// No queue; what the line passes is not known.
    NoQueue,
}

/// What is a queue or a longer route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct SeemingQueue {
    /// What the path passes if there is a queue, in bytes per second in the sending domain.
    pub(in super::super) capacity: f64,
    /// Queueing delay before the drain that failed, or before the test if there was none.
    pub(in super::super) delay_s: f64,
    pub(in super::super) series: Series,
}

/// What the mode knows of an excess of losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct LossySign {
    /// The queue grew by our growth, so one that drops is shallower than the threshold.
    pub(in super::super) is_from_growth: bool,
    /// The window that passes for sure, in bytes.
    pub(in super::super) passed_min: f64,
    /// Start-up goes on if the losses prove to be the path's.
    pub(in super::super) is_from_start: bool,
    /// The losses of a round of start-up that lost far more than the cleanest. What is known of the floor is in doubt: it
    /// may be what the full queue of others dropped.
    pub(in super::super) drowned: Option<Tally>,
}

impl LossySign {
    /// A sign that says no more than that there are losses.
    pub(in super::super) const PLAIN: Self = Self {
        is_from_growth: false,
        passed_min: 0.0,
        is_from_start: false,
        drowned: None,
    };
}
