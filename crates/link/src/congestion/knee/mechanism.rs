//! Parts of the controller that a bench can switch off, each by itself.
//!
//! The input is whether a part is about to act. The output is whether it may. In the product the
//! answer is always yes, and the compiler removes the question.
//!
//! With the feature `ablation` a run can go [without](Mechanism::without) one part. `bench
//! controller -- --ablate` shows which rows need the part, and `docs/controller.md` states the
//! result.

/// Part of the controller that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "ablation"),
    allow(unreachable_pub, reason = "only a bench names the parts from outside")
)]
pub enum Mechanism {
    /// Waits while the application leaves the link idle.
    IdleRest,
    /// Stops the clock of CUBIC's growth while no reports come.
    GrowthPause,
    /// Bounds the growth of one report by a window.
    GrowthBound,
    /// Allows more bytes in flight on a path that loses packets.
    InFlightForLoss,
    /// Allows more bytes in flight on a path that reorders packets.
    InFlightForReordering,
    /// Keeps the rate, not the window, when the base RTT becomes another.
    RateAcrossRoutes,
    /// Measures again after a silence as long as the memory of the path.
    StaleWindow,
    /// Waits for reports sooner while no train has shown the rate.
    StartSilence,
    /// Continues without reports for as long as the longest recent gap.
    ReportGap,
    /// Takes drops before the bottleneck out of the measured capacity.
    PassedPart,
    /// Makes a round as long as eight packets take.
    RoundPackets,
    /// Makes a round 10 ms long at least.
    RoundTime,
    /// Treats a path of less than 16 packets apart.
    ShortPath,
    /// Takes the capacity for half of the sending rate at least.
    EstimateMin,
    /// Takes the recent peak for the capacity after a pause of the application.
    PeakAfterPause,
    /// Makes the queue threshold six packets long at least.
    ThresholdPackets,
    /// Keeps the bound of the threshold above the jitter.
    CapAboveJitter,
    /// Adds the jitter to the threshold that ends start-up.
    StartJitter,
    /// Lowers the threshold where a shallow queue drops first.
    ShallowQueue,
    /// Raises a lowered threshold again, a little with each drain.
    DeeperQueue,
    /// Accepts a base delay only if two buckets have measured it.
    BaseSeenTwice,
    /// Sets the fastest packets of a bucket aside.
    FastSetAside,
    /// Sets a packet of a small bucket aside only if it is far ahead.
    FewAhead,
    /// Keeps packets that overtake others out of all delays.
    Overtakers,
    /// Keeps packets that come in behind others out of all delays.
    Stragglers,
    /// Drains by the queue that a packet will meet, not the measured one.
    DrainAhead,
    /// Drains at a fraction of the capacity at least.
    DrainRateMin,
    /// Holds the queue empty until the floor of loss has been seen.
    HoldEmpty,
    /// Learns the floor of loss while the queue is empty.
    LearnInDrain,
    /// Lets background traffic test the route more and more rarely.
    RareTests,
    /// Tests whether a queue that does not empty is a longer route.
    RouteTest,
    /// Tests the route at once where a queue shows suddenly.
    SuddenQueue,
    /// Drains to half of the window at most when a drain is repeated.
    DrainAgainMin,
    /// Takes a delay that a drain has shortened for a queue.
    RouteUnmoved,
    /// Judges by a train whether a test of the route was fast enough.
    RouteTrain,
    /// Accepts two tests where jitter spreads the train.
    RouteTwice,
    /// Grows a large window by a smaller fraction than a small one.
    ConvergingStart,
    /// Begins growth with half of the gain after a cut and for background traffic.
    GentleStart,
    /// Raises the gain slowly after a cut for loss.
    GentleGrowth,
    /// Returns fast to the capacity of the last drain.
    FastReturn,
    /// Doubles the gain well above the capacity of the last drain.
    FastBeyond,
    /// Lets a round build a threshold's worth of queue at most.
    GainCap,
    /// Cuts again soon after a cut that was not enough.
    CutAgain,
    /// Undoes a cut whose losses turn up late.
    UndoWrongCut,
    /// Undoes an experiment whose losses turn up late.
    UndoWrongExperiment,
    /// Sends at a quarter of the rate to measure the loss of the path.
    Experiment,
    /// Learns the floor of loss after a cut that helped.
    LearnAfterCut,
    /// Restores less than the window where losses exceeded the new floor.
    PassedBeforeCut,
    /// Cuts to the delivered rate, if that is less than the rate that losses show.
    PassedByDelivery,
    /// Ends an experiment sooner that has as many packets as it is compared with.
    ExperimentTimeout,
    /// Judges an experiment by a few packets on a slow path.
    FewPackets,
    /// Takes half of a small possible gain for a sign of congestion.
    SmallGain,
    /// Bounds the dispersion of losses in an experiment.
    DispersionMax,
    /// Ends start-up at a round that loses far more than the cleanest.
    DrownedRound,
    /// Continues start-up after losses that the path causes.
    StartAgain,
    /// Takes the loss of the first round for the loss floor.
    FirstRound,
    /// Takes the loss of the cleanest round for the loss floor.
    CleanestRound,
    /// Learns the floor of loss from clean rounds of start-up.
    LearnInStart,
    /// Ends start-up where the delivered rate no longer grows.
    FlatRounds,
    /// Ends start-up at one flat round with losses.
    FlatWithLoss,
    /// Ends start-up before the round does where losses are many.
    LossEndsStart,
    /// Sends further trains while the rate is far below the rate of the last one.
    LaterTrains,
    /// Sends a first train again that was never measured.
    TrainAgain,
    /// Grows eightfold a round trip below a lower bound of the capacity.
    Eightfold,
    /// Goes at once to half of the rate that a train shows.
    TrainLeap,
    /// Takes a window back that a train and the arrivals since disprove.
    Disproven,
    /// Grows the faster the further a train proves wrong.
    GrowthBeyondTrain,
    /// Takes no sending rate for the capacity that a train disproves.
    SentMax,
    /// Takes no loss for congestion far below the rate of a train.
    FarBelowTrain,
    /// Takes a train that jitter spreads for a lower bound.
    TrainJitter,
    /// Does not measure a train by one packet that overtakes it.
    TrainOvertaker,
    /// Cuts where hardly half arrives, at any loss floor.
    LastResort,
    /// Takes dense losses for an excess though they make one run.
    OneRun,
    /// Takes losses for an excess only if they come in several runs.
    Runs,
    /// Widens all tests of loss where losses come in bursts.
    Dispersion,
    /// Widens the test of loss while the floor is uncertain.
    UncertainFloor,
    /// Lowers the floor to the bound of any count.
    BoundFloor,
    /// Confirms a clean floor by a long count without loss.
    ConfirmFloor,
    /// Learns the floor of a lossy path below a policer's rate.
    LearnPoliced,
    /// Takes losses back whose packets turn up late.
    LateTaken,
    /// Yields at a policer on a lossy path by a cumulative sum of losses.
    SurplusOnLossy,
    /// Competes by CUBIC's law where drains fail.
    Compete,
    /// Counts failed drains of several series together.
    CompetingScore,
    /// Begins to compete with the window before the drains.
    WindowBefore,
    /// Tests beside competing flows whether they have left.
    CompeteTest,
    /// Stops competing after two rounds with an empty queue.
    EmptyRounds,
    /// Makes a second test sooner than the first.
    SecondTest,
    /// Stops competing only after two tests.
    TwoTests,
    /// Yields at a queue's peak where a lossy path hides its drops.
    YieldUnseen,
    /// Leaves room for others after a cut (RFC 9438 section 4.7).
    FastConvergence,
    /// Grows as fast as Reno at least (RFC 9438 section 4.3).
    RenoFriendly,
    /// Follows CUBIC's law at a policer.
    Policed,
    /// Waits for a second cut before it follows CUBIC's law.
    SecondCut,
    /// Takes losses in bursts for no policer.
    BurstyLosses,
    /// Cuts less than CUBIC on a lossy path.
    LossyCut,
    /// Leaves CUBIC's law where the window is far beyond the policer's rate.
    PolicerGone,
    /// Cuts to eight tenths at a policer at most.
    PassedMin,
}

impl Mechanism {
    /// Returns `condition`, or `false` in a run without this part.
    #[inline]
    pub(super) fn acts(self, condition: bool) -> bool {
        condition && !is_off(self)
    }

    /// Returns `value`, or `without` in a run without this part.
    #[inline]
    pub(super) fn value(self, value: f64, without: f64) -> f64 {
        if self.acts(value != without) {
            value
        } else {
            without
        }
    }
}

#[cfg(not(feature = "ablation"))]
const fn is_off(_: Mechanism) -> bool {
    false
}

#[cfg(feature = "ablation")]
use switch::is_off;

#[cfg(feature = "ablation")]
mod switch {
    use std::cell::Cell;

    use super::Mechanism;

    thread_local! {
        static OFF: Cell<Option<Mechanism>> = const { Cell::new(None) };
        static USED: Cell<u128> = const { Cell::new(0) };
    }

    impl Mechanism {
        /// Runs `run` on this thread without one part; `None` switches nothing off. Returns the
        /// result, and the parts that were about to act.
        ///
        /// The run would have been the same without any other part.
        pub fn without<T>(off: Option<Self>, run: impl FnOnce() -> T) -> (T, Vec<Self>) {
            OFF.set(off);
            USED.set(0);
            let result = run();
            OFF.set(None);
            let used = USED.get();
            let is_used = |mechanism: &&Self| used & mechanism.bit() != 0;
            (result, Self::ALL.iter().filter(is_used).copied().collect())
        }

        /// All parts.
        pub const ALL: [Self; 97] = [
            Self::IdleRest,
            Self::GrowthPause,
            Self::GrowthBound,
            Self::InFlightForLoss,
            Self::InFlightForReordering,
            Self::RateAcrossRoutes,
            Self::StaleWindow,
            Self::StartSilence,
            Self::ReportGap,
            Self::PassedPart,
            Self::RoundPackets,
            Self::RoundTime,
            Self::ShortPath,
            Self::EstimateMin,
            Self::PeakAfterPause,
            Self::ThresholdPackets,
            Self::CapAboveJitter,
            Self::StartJitter,
            Self::ShallowQueue,
            Self::DeeperQueue,
            Self::BaseSeenTwice,
            Self::FastSetAside,
            Self::FewAhead,
            Self::Overtakers,
            Self::Stragglers,
            Self::DrainAhead,
            Self::DrainRateMin,
            Self::HoldEmpty,
            Self::LearnInDrain,
            Self::RareTests,
            Self::RouteTest,
            Self::SuddenQueue,
            Self::DrainAgainMin,
            Self::RouteUnmoved,
            Self::RouteTrain,
            Self::RouteTwice,
            Self::ConvergingStart,
            Self::GentleStart,
            Self::GentleGrowth,
            Self::FastReturn,
            Self::FastBeyond,
            Self::GainCap,
            Self::CutAgain,
            Self::UndoWrongCut,
            Self::UndoWrongExperiment,
            Self::Experiment,
            Self::LearnAfterCut,
            Self::PassedBeforeCut,
            Self::PassedByDelivery,
            Self::ExperimentTimeout,
            Self::FewPackets,
            Self::SmallGain,
            Self::DispersionMax,
            Self::DrownedRound,
            Self::StartAgain,
            Self::FirstRound,
            Self::CleanestRound,
            Self::LearnInStart,
            Self::FlatRounds,
            Self::FlatWithLoss,
            Self::LossEndsStart,
            Self::LaterTrains,
            Self::TrainAgain,
            Self::Eightfold,
            Self::TrainLeap,
            Self::Disproven,
            Self::GrowthBeyondTrain,
            Self::SentMax,
            Self::FarBelowTrain,
            Self::TrainJitter,
            Self::TrainOvertaker,
            Self::LastResort,
            Self::OneRun,
            Self::Runs,
            Self::Dispersion,
            Self::UncertainFloor,
            Self::BoundFloor,
            Self::ConfirmFloor,
            Self::LearnPoliced,
            Self::LateTaken,
            Self::SurplusOnLossy,
            Self::Compete,
            Self::CompetingScore,
            Self::WindowBefore,
            Self::CompeteTest,
            Self::EmptyRounds,
            Self::SecondTest,
            Self::TwoTests,
            Self::YieldUnseen,
            Self::FastConvergence,
            Self::RenoFriendly,
            Self::Policed,
            Self::SecondCut,
            Self::BurstyLosses,
            Self::LossyCut,
            Self::PolicerGone,
            Self::PassedMin,
        ];

        const fn bit(self) -> u128 {
            1 << self as u32
        }
    }

    pub(super) fn is_off(mechanism: Mechanism) -> bool {
        USED.set(USED.get() | mechanism.bit());
        OFF.get() == Some(mechanism)
    }
}
