//! The states of the knee controller, each with what is valid in it alone.
//!
//! What outlives a state is in [`Knee`](super::Knee); what a state does is in the files of `impl Knee`.

use super::cubic::Cubic;

/// What the controller is doing.
#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    /// Looking for the capacity, up to eightfold a round trip.
    Start(Start),
    /// Growing until queueing delay shows.
    Grow(Grow),
    /// Emptying the queue that growth built.
    Drain(Drain),
    /// Is what seems a queue a longer route?
    RouteTest(RouteTest),
    /// After a cut for loss: is the excess of losses gone?
    LossDrain(LossDrain),
    /// Still losing: are losses fewer at a quarter of the rate?
    Experiment(Experiment),
    /// Below a limit that drops instead of queueing: CUBIC's law of [`Policer`].
    Policed,
    /// Others keep the queue full: CUBIC's law.
    Compete(Compete),
    /// Drained to our own bandwidth-delay product: does the queue empty?
    CompeteTest(CompeteTest),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// The window of the first train, in bytes.
    pub(super) first_window: f64,
    /// Capacity from an earlier connection in bytes per second, until a train is measured.
    pub(super) cached: Option<f64>,
    /// When the last train was asked for.
    pub(super) train_asked_s: f64,
    /// Delivered bytes per second at the end of the round before.
    pub(super) delivered_before: f64,
    /// The windows in bytes at the end of the last round and of the one before.
    pub(super) windows_before: [f64; 2],
    /// Rounds in a row in which the delivered rate hardly grew.
    pub(super) flat_rounds: u32,
    /// Rounds that are over.
    pub(super) rounds: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Grow {
    /// Growth of the window in the present round, as a fraction of it.
    pub(super) gain: f64,
    /// The gain that growth began with.
    pub(super) gain_start: f64,
    /// Rounds that are over.
    pub(super) rounds: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// What the path passes, in bytes per second in the sending domain.
    pub(super) capacity: f64,
    pub(super) cut_s: f64,
    /// The longest queueing delay since the cut.
    pub(super) queue_max_s: f64,
    /// When the queue was first seen empty.
    pub(super) emptied_s: Option<f64>,
    /// Drains of the same series that have failed before this one.
    pub(super) tries: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RouteTest {
    /// What the path passes if there is a queue, in bytes per second in the sending domain.
    pub(super) capacity: f64,
    /// Queueing delay before the drain that failed, or before the test if there was none.
    pub(super) queue_s: f64,
    /// Drains that have failed before.
    pub(super) failed_tries: u32,
    /// Bytes per second at which the test sends.
    pub(super) rate: f64,
    /// Bytes that are sent at that rate, and those of them that are still to be sent.
    pub(super) bytes: f64,
    pub(super) bytes_left: f64,
    pub(super) began_s: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LossDrain {
    pub(super) before: BeforeCut,
    /// The fraction lost when the cut came.
    pub(super) loss_at_cut: f64,
    pub(super) cut_s: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Experiment {
    pub(super) before: BeforeCut,
    /// The fraction lost between the cut and the experiment, and the packets behind it.
    pub(super) loss_before: f64,
    pub(super) packets_before: f64,
    /// The window between the cut and the experiment, in bytes.
    pub(super) resume: f64,
    pub(super) began_s: f64,
}

/// What a cut for loss has changed; restored if the cut proves wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct BeforeCut {
    pub(super) window: f64,
    pub(super) threshold_cap_s: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Compete {
    pub(super) cubic: Cubic,
    /// When the next test of the queue is due.
    pub(super) test_at_s: f64,
    /// Tests in a row that found the queue empty.
    pub(super) empty_tests: u32,
    /// Rounds in a row that found the queue empty.
    pub(super) empty_rounds: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CompeteTest {
    pub(super) cubic: Cubic,
    /// The window before the test, in bytes.
    pub(super) window: f64,
    pub(super) began_s: f64,
    /// Tests in a row that found the queue empty, without this one.
    pub(super) empty_tests: u32,
}

/// What speaks for a limit that drops instead of queueing. Outlives [`State::Policed`]: at such a limit
/// the controller passes through [`State::LossDrain`] with each cut.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Policer {
    /// Cuts for loss without a queue since the last signal of another kind.
    pub(super) cuts: u32,
    /// The largest window that passed when the limit dropped, in bytes.
    pub(super) limit: f64,
    /// CUBIC's law, once enough such cuts have shown the limit.
    pub(super) law: Option<Cubic>,
}

/// What speaks for company: drains that did not empty the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FailedDrains {
    /// Up with each drain that failed, down with each that emptied the queue at the first try.
    pub(super) score: f64,
    /// The window before the present series of drains, in bytes.
    pub(super) window_before: f64,
}
