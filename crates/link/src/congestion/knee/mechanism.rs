//! Mechanisms of the controller that a bench can switch off one by one.
//!
//! Each call site passes the condition or value of its mechanism to a function of this module. If
//! the mechanism is switched off, the function returns the value without the mechanism. In a
//! product build nothing can be switched off, and the compiler removes the check.
//!
//! The feature `ablation` enables runs [without](Mechanism::without) one mechanism. `bench
//! controller -- --ablate` shows which rows need the mechanism. `docs/controller.md` states the
//! result.

/// Mechanism of the controller that a bench can switch off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "ablation"),
    allow(unreachable_pub, reason = "only a bench names the parts from outside")
)]
pub enum Mechanism {
    /// While the application leaves the link idle, the controller suspends its drains and tests.
    IdleRest,
    /// While no reports arrive, the time does not count for the growth of CUBIC's window.
    GrowthPause,
    /// The growth of the window counts at most one window of bytes per report.
    GrowthBound,
    /// The limit of bytes in flight is higher on a path that loses packets.
    InFlightForLoss,
    /// The limit of bytes in flight is higher on a path that reorders packets.
    InFlightForReordering,
    /// When the base round-trip time changes, the controller keeps the rate and changes the window.
    RateAcrossRoutes,
    /// After a long time without reports, the controller measures the path again.
    StaleWindow,
    /// Before the first train is measured, the sender stops earlier if no reports arrive.
    StartSilence,
    /// If reports stop, the sender continues for the longest gap between two recent reports.
    ReportGap,
    /// The estimate of the capacity excludes packets that were dropped before the bottleneck.
    PassedPart,
    /// A round lasts at least until eight packets have arrived.
    RoundPackets,
    /// A round lasts at least 10 ms.
    RoundTime,
    /// A path that holds fewer than 16 packets has its own drain rate and no route tests.
    ShortPath,
    /// The estimated capacity is at least half of the sending rate.
    EstimateMin,
    /// After a pause of the application, the estimate of the capacity uses the recent peak.
    PeakAfterPause,
    /// The queue threshold is at least the sending time of six packets.
    ThresholdPackets,
    /// The upper limit of the queue threshold stays above the jitter.
    CapAboveJitter,
    /// The queue threshold that ends start-up includes the jitter.
    StartJitter,
    /// If a shallow queue drops packets before the queue reaches the threshold, the threshold
    /// becomes lower.
    ShallowQueue,
    /// A lowered queue threshold rises again by a small step with each drain.
    DeeperQueue,
    /// A base delay counts only if two buckets of packets have measured the delay.
    BaseSeenTwice,
    /// The fastest packets of a bucket do not count, since they may have overtaken other packets.
    FastSetAside,
    /// In a bucket of few packets, a fast packet is excluded only if it is much faster than the
    /// others.
    FewAhead,
    /// Packets that overtake other packets do not count in any measurement of delay.
    Overtakers,
    /// Packets that arrive after later packets do not count in any measurement of delay.
    Stragglers,
    /// The rate of a drain depends on the queue that a packet sent now will meet, not on the
    /// measured queue.
    DrainAhead,
    /// The rate of a drain is at least a fraction of the capacity.
    DrainRateMin,
    /// A drain keeps the queue empty until enough packets have shown the loss floor.
    HoldEmpty,
    /// The loss floor is measured while a drain keeps the queue empty.
    LearnInDrain,
    /// While drains fail, the time between route tests of background traffic becomes longer.
    RareTests,
    /// If a queue does not become empty, the controller tests whether the route became longer.
    RouteTest,
    /// If a queue appears suddenly, the controller tests the route before any drain.
    SuddenQueue,
    /// A repeated drain never leaves less than half of the window.
    DrainAgainMin,
    /// A delay that a drain has reduced counts as a queue, not as a longer route.
    RouteUnmoved,
    /// A packet train shows whether a route test was fast enough to be conclusive.
    RouteTrain,
    /// If jitter spreads the train, two route tests with the same result are conclusive.
    RouteTwice,
    /// A large window grows by a smaller fraction than a small window.
    ConvergingStart,
    /// After a cut, and for background traffic, growth starts with half of the usual gain.
    GentleStart,
    /// After a cut for loss, the gain rises slowly.
    GentleGrowth,
    /// The window grows fast while it is far below the capacity measured at the last drain.
    FastReturn,
    /// The gain doubles each round while the window is well above the capacity measured at the last
    /// drain.
    FastBeyond,
    /// The growth in one round builds a queue of at most the queue threshold.
    GainCap,
    /// If losses continue soon after a cut, the controller cuts the window again.
    CutAgain,
    /// If most of the lost packets that caused a cut arrive late, the controller undoes the cut.
    UndoWrongCut,
    /// If most of the lost packets that caused an experiment arrive late, the controller undoes the
    /// experiment.
    UndoWrongExperiment,
    /// The controller sends at a quarter of the rate to measure the loss floor of the path.
    Experiment,
    /// The loss floor is measured after a cut that removed the excess of losses.
    LearnAfterCut,
    /// If the losses before a cut exceeded the new floor, only a part of the window is restored.
    PassedBeforeCut,
    /// The window after a cut depends on the losses or on the delivery rate, whichever gives the
    /// smaller window.
    PassedByDelivery,
    /// An experiment may have counted as many packets as were counted before the experiment began.
    /// In this case its time limit is shorter.
    ExperimentTimeout,
    /// On a slow path, an experiment can end after few packets.
    FewPackets,
    /// If the delivered fraction can grow only a little, half of the possible growth shows
    /// congestion.
    SmallGain,
    /// The dispersion of losses in an experiment has an upper limit.
    DispersionMax,
    /// Start-up ends after a round that loses far more than the cleanest round.
    DrownedRound,
    /// Start-up continues after losses that the path itself causes.
    StartAgain,
    /// The loss of the first round becomes the loss floor.
    FirstRound,
    /// The loss of the cleanest round becomes the loss floor.
    CleanestRound,
    /// Clean rounds of start-up contribute to the loss floor.
    LearnInStart,
    /// Start-up ends when the delivery rate stops growing.
    FlatRounds,
    /// If losses exceed the loss floor, start-up ends after one round without growth of the
    /// delivery rate.
    FlatWithLoss,
    /// Many losses end start-up before the end of the round.
    LossEndsStart,
    /// Start-up sends further trains while the sending rate is far below the rate of the last
    /// train.
    LaterTrains,
    /// If the first train was never measured, start-up sends another train.
    TrainAgain,
    /// The window grows eightfold per round trip while it is far below a lower limit of the
    /// capacity.
    Eightfold,
    /// The window grows at once to the value for half of a train's rate.
    TrainLeap,
    /// The controller reduces a window that is far too large for the rates of a train and of later
    /// arrivals.
    Disproven,
    /// Growth becomes faster as the rate rises above the rate of a train.
    GrowthBeyondTrain,
    /// A sending rate far above the rate of a train does not count as the capacity.
    SentMax,
    /// Losses at a sending rate far below the rate of a train do not count as congestion.
    FarBelowTrain,
    /// A train that jitter has spread gives only a lower limit of the capacity.
    TrainJitter,
    /// If a packet overtook a train and dominates the result, the train is not measured.
    TrainOvertaker,
    /// If less than half of the expected packets arrive, the controller cuts the window, regardless
    /// of the loss floor.
    LastResort,
    /// Dense losses count as an excess even if they form a single run.
    OneRun,
    /// Losses count as an excess only if they form several runs.
    Runs,
    /// If losses come in bursts, all loss tests require more losses.
    Dispersion,
    /// While the loss floor is uncertain, the loss test requires more losses.
    UncertainFloor,
    /// Every count of losses limits the loss floor from above.
    BoundFloor,
    /// A long count without loss makes a clean loss floor certain.
    ConfirmFloor,
    /// On a lossy path, the loss floor is measured below the rate of a policer.
    LearnPoliced,
    /// If a packet arrives after it was declared lost, its loss is subtracted from the counts.
    LateTaken,
    /// On a lossy path with a policer, a cumulative sum of losses decides when to slow down.
    SurplusOnLossy,
    /// If drains fail, the controller uses CUBIC's window growth against competing flows.
    Compete,
    /// Failed drains count as evidence across several series of drains.
    CompetingScore,
    /// Competition starts with the window from before the drains.
    WindowBefore,
    /// During competition, the controller tests whether the competing flows have stopped.
    CompeteTest,
    /// If the queue is empty for two rounds, the competition with other flows ends.
    EmptyRounds,
    /// A second test of the queue starts earlier than the regular interval requires.
    SecondTest,
    /// The sender stops competing only after two tests with an empty queue.
    TwoTests,
    /// If random loss hides the drops of a full queue, the controller cuts the window at the
    /// queue's peak.
    YieldUnseen,
    /// After a cut, the window leaves room for other flows (RFC 9438 section 4.7).
    FastConvergence,
    /// The window grows at least as fast as Reno's window (RFC 9438 section 4.3).
    RenoFriendly,
    /// At a policer, the window grows as CUBIC's window.
    Policed,
    /// The controller changes to CUBIC's growth only after a second cut.
    SecondCut,
    /// Losses in bursts do not count as evidence of a policer.
    BurstyLosses,
    /// On a lossy path, the controller cuts the window less than CUBIC does.
    LossyCut,
    /// If the window is far above the policer's rate, the controller stops CUBIC's growth.
    PolicerGone,
    /// At a policer, a cut leaves at least eight tenths of the window.
    PassedMin,
}

impl Mechanism {
    /// Returns `condition`, or `false` in a run without this mechanism.
    #[inline]
    pub(super) fn acts(self, condition: bool) -> bool {
        condition && !is_off(self)
    }

    /// Returns `value`, or `without` in a run without this mechanism.
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
        /// Calls `run` on this thread with one mechanism switched off. `None` switches nothing off.
        ///
        /// Returns the result of `run`, and the mechanisms whose conditions were true during the
        /// run. Switching off any other mechanism would not have changed the run.
        pub fn without<T>(off: Option<Self>, run: impl FnOnce() -> T) -> (T, Vec<Self>) {
            OFF.set(off);
            USED.set(0);
            let result = run();
            OFF.set(None);
            let used = USED.get();
            let is_used = |mechanism: &&Self| used & mechanism.bit() != 0;
            (result, Self::ALL.iter().filter(is_used).copied().collect())
        }

        /// All mechanisms.
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
