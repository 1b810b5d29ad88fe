//! Modes of the controller.
//!
//! The [`PathModel`] measures each report before the mode reads it. A mode sets the window and the
//! sending rate, and requests the next mode.
//!
//! Each file contains one mode and its state. The step function of a mode returns a [`Transition`].
//! No mode reads the state of another mode.

mod compete;
mod drain;
mod grow;
mod loss_test;
mod policed;
mod route_test;
mod start;
mod transition;

use self::{
    compete::CompeteMode, drain::DrainMode, grow::GrowMode, loss_test::LossTest,
    policed::PolicedMode, route_test::RouteTest,
};
pub(super) use self::{start::StartMode, transition::Transition};
use super::{path_model::PathModel, report_times};
use crate::congestion::knee::Mechanism;

/// Mode of the controller, with the state of the mode.
#[derive(Debug)]
pub(super) enum KneeMode {
    /// Start-up: searches for the capacity, with growth of up to eightfold per round trip.
    Start(StartMode),
    /// Grows the window until queueing delay appears.
    Grow(GrowMode),
    /// Empties the queue that growth built.
    Drain(DrainMode),
    /// Tests whether an apparent queue is in fact a longer route.
    RouteTest(RouteTest),
    /// Follows a cut for loss: tests whether a lower rate delivers a larger fraction of the
    /// packets.
    LossTest(LossTest),
    /// Grows the window as CUBIC does, below the rate of a policer.
    Policed(PolicedMode),
    /// Competes as CUBIC with other flows that keep the queue full.
    Compete(CompeteMode),
}

impl KneeMode {
    /// Returns the mode that `next` requests. Returns `None` if the present mode continues.
    pub(super) fn after(next: Transition, path: &mut PathModel, now_s: f64) -> Option<Self> {
        if !matches!(next, Transition::Stay) {
            // A train belongs to the mode that requested it.
            path.capacity.trains.ask_for(0);
        }
        Some(match next {
            Transition::Stay => return None,
            Transition::Start => Self::Start(StartMode::again(path)),
            Transition::Resume if path.policer.is_known() => {
                path.begin_round(now_s);
                Self::Policed(PolicedMode)
            }
            Transition::Grow | Transition::Resume => Self::Grow(GrowMode::begin(path, now_s)),
            Transition::Drain { capacity, series } => {
                Self::Drain(DrainMode::begin(capacity, series, path, now_s))
            }
            Transition::DrainFailed(series) => {
                let next = drain::after_failure(series, path);
                return Self::after(next, path, now_s);
            }
            Transition::TestRoute(queue) => Self::RouteTest(RouteTest::begin(queue, path, now_s)),
            Transition::CutForLoss(sign) => Self::LossTest(LossTest::begin(sign, path, now_s)),
            Transition::Compete { window_bytes } => {
                Self::Compete(CompeteMode::begin(window_bytes, path, now_s))
            }
        })
    }

    /// Checks whether the present mode has ended. Returns the transition to the next mode.
    pub(super) fn step(
        &mut self,
        path: &mut PathModel,
        app_limited: bool,
        now_s: f64,
    ) -> Transition {
        match self {
            Self::Start(start) => start.step(path, app_limited, now_s),
            Self::Grow(grow) => grow.step(path, app_limited, now_s),
            Self::Drain(drain) => drain.step(path, app_limited, now_s),
            Self::RouteTest(test) => test.step(path, now_s),
            Self::LossTest(test) => test.step(path, now_s),
            Self::Policed(policed) => policed.step(path, now_s),
            Self::Compete(compete) => compete.step(path, now_s),
        }
    }

    /// Grows the window after `bytes` more bytes were acknowledged or declared lost.
    pub(super) fn grow(&mut self, path: &mut PathModel, bytes: f64, now_s: f64) {
        match self {
            Self::Start(_) => start::grow(path, bytes),
            Self::Grow(grow) => grow.grow(path, bytes),
            Self::Policed(policed) => policed.grow(path, bytes, now_s),
            Self::Compete(compete) => compete.grow(path, bytes, now_s),
            Self::Drain(_) | Self::RouteTest(_) | Self::LossTest(_) => {}
        }
    }

    /// Handles an idle application. A measured queue can then come only from other flows. A route
    /// test ends, a drain restarts its timeout, and competition ends if its next test is due.
    pub(super) fn rest(&mut self, path: &mut PathModel, now_s: f64) -> Transition {
        match self {
            Self::Drain(drain) => drain.rest(now_s),
            Self::RouteTest(_) => return RouteTest::abandon(path),
            Self::Compete(compete) => return compete.rest(now_s),
            _ => {}
        }
        Transition::Stay
    }

    /// Returns the time for which the sender continues without a report, in seconds.
    pub(super) fn silence_s(&self, path: &PathModel) -> f64 {
        let base_s = path.base_s();
        match self {
            // The sending rate is a guess. On a slow path, this rate would fill the queue before
            // the first report arrives.
            Self::Start(_)
                if Mechanism::StartSilence.acts(path.capacity.trains.newest().is_none()) =>
            {
                report_times::interval_s(base_s)
            }
            _ => path.reports.silence_s(base_s),
        }
    }

    /// Excludes `idle_s` from the time in which CUBIC's window grows.
    pub(super) fn pause(&mut self, path: &mut PathModel, idle_s: f64) {
        if let Some(law) = path.policer.law() {
            law.pause(idle_s);
        }
        if let Self::Compete(compete) = self {
            compete.pause(idle_s);
        }
    }

    /// Discards the recent losses, because the sending rate did not cause them. Undoes a cut that
    /// is being tested.
    pub(super) fn forgive_losses(&mut self, path: &mut PathModel, now_s: f64) -> Transition {
        match self {
            Self::LossTest(test) => test.undo(path, now_s),
            _ => Transition::Stay,
        }
    }

    /// Records a sent packet of `bytes` bytes.
    pub(super) fn on_sent(&mut self, bytes: usize, now_s: f64) {
        if let Self::RouteTest(test) = self {
            test.on_sent(bytes, now_s);
        }
    }

    /// Records that the sender starts a requested packet train.
    pub(super) fn on_train_begun(&mut self, now_s: f64) {
        if let Self::Start(start) = self {
            start.on_train_begun(now_s);
        }
    }

    /// Returns the sending rate in bytes per second.
    pub(super) fn rate_bytes_per_s(&self, path: &PathModel) -> f64 {
        match self {
            Self::Drain(drain) => drain.rate_bytes_per_s(path),
            Self::RouteTest(test) => test.rate_bytes_per_s(path),
            _ => path.rate_bytes_per_s(),
        }
    }

    /// Returns the number of bytes that may be in flight in addition to the window.
    pub(super) fn extra_bytes(&self) -> f64 {
        match self {
            Self::RouteTest(test) => test.bytes(),
            _ => 0.0,
        }
    }

    /// Returns the number of bytes that may always be in flight, even if the window is smaller.
    pub(super) fn in_flight_min_bytes(&self) -> f64 {
        match self {
            Self::RouteTest(test) => test.in_flight_min_bytes(),
            _ => 0.0,
        }
    }

    /// Whether the mode computes the window as the product of a rate and the base round-trip time.
    pub(super) fn window_fits_base_rtt(&self) -> bool {
        matches!(self, Self::Grow(_) | Self::Drain(_) | Self::RouteTest(_))
    }

    pub(super) fn is_start(&self) -> bool {
        matches!(self, Self::Start(_))
    }

    /// Returns the name of the mode and its stage, for logs and traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Grow(_) => "grow",
            Self::Drain(_) => "drain",
            Self::RouteTest(_) => "route test",
            Self::LossTest(test) => test.name(),
            Self::Policed(_) => "policed",
            Self::Compete(compete) => compete.name(),
        }
    }
}
