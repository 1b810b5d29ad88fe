//! Transitions between modes, and the data that they pass to the next mode.

use super::super::floor::LossCounts;

/// Transition that a mode requests after a step. If the variant contains no window, the old mode
/// has set the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Transition {
    /// Continue the present mode.
    Stay,
    /// Continue start-up with the window that the path passes.
    Start,
    /// Grow until a queue appears.
    Grow,
    /// Grow as CUBIC if a policer is known. Otherwise grow until a queue appears.
    Resume,
    /// Empty the queue. The path has a capacity of `capacity` bytes per second. Lost packets count
    /// as passed.
    Drain { capacity: f64, series: DrainSeries },
    /// Continue after drains that did not empty the queue. A longer route is not the reason.
    DrainFailed(DrainSeries),
    /// Test whether an apparent queue is in fact a longer route.
    TestRoute(ApparentQueue),
    /// Cut the window after excess losses, and test whether the cut reduces the losses.
    CutForLoss(LossEvidence),
    /// Compete with other flows that keep the queue full. Competition starts with a window of
    /// `window_bytes` bytes.
    Compete { window_bytes: f64 },
}

/// Consecutive drains of the same queue so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in super::super) struct DrainSeries {
    /// Number of drains that did not empty the queue.
    pub(in super::super) failed: u32,
    /// Finding of the last route test. `None` if no route test was made.
    pub(in super::super) tested: Option<RouteFinding>,
}

/// Finding of a route test that did not find a longer route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum RouteFinding {
    /// The test found a queue, or had no result. A test has no result if it was too slow, or if no
    /// reports about its packets arrived.
    Queue,
    /// The test found no queue, but the capacity of the path is unknown. A second test must confirm
    /// the result.
    NoQueue,
}

/// Apparent queue. Its delay may also come from a longer route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct ApparentQueue {
    /// Capacity of the path in bytes per second, on the assumption that a queue exists. Lost
    /// packets count as passed.
    pub(in super::super) capacity: f64,
    /// Queueing delay in seconds before the failed drain. If no drain took place, the field holds
    /// the delay before the route test.
    pub(in super::super) delay_s: f64,
    pub(in super::super) series: DrainSeries,
}

/// Evidence of excess losses that a mode passes to the loss test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct LossEvidence {
    /// Whether growth of this sender's window built the queue. If so, a queue that drops packets is
    /// shallower than the threshold.
    pub(in super::super) is_from_growth: bool,
    /// Least window that the path is assumed to pass, in bytes.
    pub(in super::super) passed_min: f64,
    /// Whether start-up continues if the test shows that the path itself causes the losses.
    pub(in super::super) is_from_start: bool,
    /// Losses of a start-up round that lost far more than the cleanest round. `None` for other
    /// evidence.
    ///
    /// After such a round, the known loss floor is doubtful, because the measured losses may come
    /// from a full queue of other flows.
    pub(in super::super) drowned: Option<LossCounts>,
}

impl LossEvidence {
    /// Evidence with no additional information.
    pub(in super::super) const PLAIN: Self = Self {
        is_from_growth: false,
        passed_min: 0.0,
        is_from_start: false,
        drowned: None,
    };
}
