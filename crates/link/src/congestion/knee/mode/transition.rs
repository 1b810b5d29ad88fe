//! Transitions that a mode requests.

use super::super::floor::LossCounts;

/// Transition after a step of a mode. If it contains no window, the mode has set it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Transition {
    /// The mode continues.
    Stay,
    /// Continue start-up, from the window that passes.
    Start,
    /// Grow until a queue shows.
    Grow,
    /// Grow as CUBIC if a policer is known. Otherwise grow until
    /// a queue shows.
    Resume,
    /// Empty the queue in front of `capacity` bytes per second in the sending domain.
    Drain { capacity: f64, series: DrainSeries },
    /// The drains of a series have not emptied the queue, and it is a queue.
    DrainFailed(DrainSeries),
    /// Test whether the queue is a longer route.
    TestRoute(ApparentQueue),
    /// Cut the window for an excess of losses, and test whether the cut helps.
    CutForLoss(LossEvidence),
    /// Compete with the flows that keep the queue full, beginning with `window_bytes` bytes.
    Compete { window_bytes: f64 },
}

/// Series of drains in front of the same queue so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in super::super) struct DrainSeries {
    /// Drains that have not emptied the queue.
    pub(in super::super) failed: u32,
    /// Finding of the last test of the route, if there was one.
    pub(in super::super) tested: Option<RouteFinding>,
}

/// Finding of a test of the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum RouteFinding {
    /// A queue, or no result: the test was too slow, or its packets were not reported.
    Queue,
    /// No queue; the capacity of the path is unknown.
    NoQueue,
}

/// Apparent queue, which may be a longer route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct ApparentQueue {
    /// Capacity of the path if there is a queue, in bytes per second in the sending domain.
    pub(in super::super) capacity: f64,
    /// Queueing delay before the failed drain, or before the test if there was no drain.
    pub(in super::super) delay_s: f64,
    pub(in super::super) series: DrainSeries,
}

/// Evidence of a mode about an excess of losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct LossEvidence {
    /// Whether our growth built the queue, so that a dropping queue is shallower than the
    /// threshold.
    pub(in super::super) is_from_growth: bool,
    /// Window that certainly passes, in bytes.
    pub(in super::super) passed_min: f64,
    /// Whether start-up continues if the losses prove to be the path's.
    pub(in super::super) is_from_start: bool,
    /// Losses of a round of start-up that lost far more than the cleanest. The known floor is in
    /// doubt: the full queue of others may have caused it.
    pub(in super::super) drowned: Option<LossCounts>,
}

impl LossEvidence {
    /// Evidence without further information.
    pub(in super::super) const PLAIN: Self = Self {
        is_from_growth: false,
        passed_min: 0.0,
        is_from_start: false,
        drowned: None,
    };
}
