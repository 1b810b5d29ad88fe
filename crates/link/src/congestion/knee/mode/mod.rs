//! Modes of the controller.
//!
//! The input is reports, after the [`Flow`] has measured them. The output is a window, the rate at
//! which to send, and the next mode. Each mode is a file with the state of that mode alone, and its
//! step returns the transition ([`Next`]). No mode reads another one.

use crate::congestion::knee::Mechanism;
mod compete;
mod drain;
mod grow;
mod loss_test;
mod next;
mod policed;
mod route_test;
mod start;

use self::{
    compete::Compete, drain::Drain, grow::Grow, loss_test::LossTest, policed::Policed,
    route_test::RouteTest,
};
pub(super) use self::{next::Next, start::Start};
use super::{flow::Flow, reports};

/// Mode with its state.
#[derive(Debug)]
pub(super) enum Mode {
    /// Searching for the capacity, with growth up to eightfold a round trip.
    Start(Start),
    /// Growing until queueing delay shows.
    Grow(Grow),
    /// Emptying the queue that growth built.
    Drain(Drain),
    /// Testing whether an apparent queue is a longer route.
    RouteTest(RouteTest),
    /// Testing after a cut for loss whether less sending delivers a larger fraction.
    LossTest(LossTest),
    /// Growing as CUBIC below a policer.
    Policed(Policed),
    /// Competing as CUBIC with flows that keep the queue full.
    Compete(Compete),
}

impl Mode {
    /// Returns the mode that `next` requests. `None` if the present one continues.
    pub(super) fn after(next: Next, flow: &mut Flow, now_s: f64) -> Option<Self> {
        if !matches!(next, Next::Stay) {
            // A train belongs to the mode that requested it.
            flow.capacity.trains.ask_for(0);
        }
        Some(match next {
            Next::Stay => return None,
            Next::Start => Self::Start(Start::again(flow)),
            Next::Resume if flow.policer.is_known() => {
                flow.begin_round(now_s);
                Self::Policed(Policed)
            }
            Next::Grow | Next::Resume => Self::Grow(Grow::begin(flow, now_s)),
            Next::Drain { capacity, series } => {
                Self::Drain(Drain::begin(capacity, series, flow, now_s))
            }
            Next::DrainFailed(series) => {
                let next = drain::after_failure(series, flow);
                return Self::after(next, flow, now_s);
            }
            Next::TestRoute(queue) => Self::RouteTest(RouteTest::begin(queue, flow, now_s)),
            Next::CutForLoss(sign) => Self::LossTest(LossTest::begin(sign, flow, now_s)),
            Next::Compete { window } => Self::Compete(Compete::begin(window, flow, now_s)),
        })
    }

    /// Checks whether the mode is over.
    pub(super) fn step(&mut self, flow: &mut Flow, app_limited: bool, now_s: f64) -> Next {
        match self {
            Self::Start(start) => start.step(flow, app_limited, now_s),
            Self::Grow(grow) => grow.step(flow, app_limited, now_s),
            Self::Drain(drain) => drain.step(flow, app_limited, now_s),
            Self::RouteTest(test) => test.step(flow, now_s),
            Self::LossTest(test) => test.step(flow, now_s),
            Self::Policed(policed) => policed.step(flow, now_s),
            Self::Compete(compete) => compete.step(flow, now_s),
        }
    }

    /// Grows by `bytes` bytes whose fate became known.
    pub(super) fn grow(&mut self, flow: &mut Flow, bytes: f64, now_s: f64) {
        match self {
            Self::Start(_) => start::grow(flow, bytes),
            Self::Grow(grow) => grow.grow(flow, bytes),
            Self::Policed(policed) => policed.grow(flow, bytes, now_s),
            Self::Compete(compete) => compete.grow(flow, bytes, now_s),
            Self::Drain(_) | Self::RouteTest(_) | Self::LossTest(_) => {}
        }
    }

    /// Handles an idle application: running tests would measure a queue of others.
    pub(super) fn rest(&mut self, flow: &mut Flow, now_s: f64) -> Next {
        match self {
            Self::Drain(drain) => drain.rest(now_s),
            Self::RouteTest(_) => return RouteTest::abandon(flow),
            Self::Compete(compete) => return compete.rest(now_s),
            _ => {}
        }
        Next::Stay
    }

    /// Returns the time for which to send without a report, in seconds.
    pub(super) fn silence_s(&self, flow: &Flow) -> f64 {
        let base_s = flow.base_s();
        match self {
            // The rate is a guess. On a slow path it would fill the queue before the first report
            // arrives.
            Self::Start(_)
                if Mechanism::StartSilence.acts(flow.capacity.trains.newest().is_none()) =>
            {
                reports::interval_s(base_s)
            }
            _ => flow.reports.silence_s(base_s),
        }
    }

    /// Excludes `idle_s` from the time in which CUBIC's window grows.
    pub(super) fn pause(&mut self, flow: &mut Flow, idle_s: f64) {
        if let Some(law) = flow.policer.law() {
            law.pause(idle_s);
        }
        if let Self::Compete(compete) = self {
            compete.pause(idle_s);
        }
    }

    /// Forgives the recent losses, which are no evidence about the rate.
    pub(super) fn forgive_losses(&mut self, flow: &mut Flow, now_s: f64) -> Next {
        match self {
            Self::LossTest(test) => test.undo(flow, now_s),
            _ => Next::Stay,
        }
    }

    /// Records a sent packet of `bytes` bytes.
    pub(super) fn on_sent(&mut self, bytes: usize, now_s: f64) {
        if let Self::RouteTest(test) = self {
            test.on_sent(bytes, now_s);
        }
    }

    /// Records that a wanted train begins.
    pub(super) fn on_train_begun(&mut self, now_s: f64) {
        if let Self::Start(start) = self {
            start.on_train_begun(now_s);
        }
    }

    /// Returns the rate at which to send, in bytes per second.
    pub(super) fn rate(&self, flow: &Flow) -> f64 {
        match self {
            Self::Drain(drain) => drain.rate(flow),
            Self::RouteTest(test) => test.rate(flow),
            _ => flow.rate(),
        }
    }

    /// Returns the bytes that may be in flight beside the window.
    pub(super) fn extra_bytes(&self) -> f64 {
        match self {
            Self::RouteTest(test) => test.bytes(),
            _ => 0.0,
        }
    }

    /// Returns the bytes that may be in flight with any window.
    pub(super) fn in_flight_min(&self) -> f64 {
        match self {
            Self::RouteTest(test) => test.in_flight_min(),
            _ => 0.0,
        }
    }

    /// Whether the window is the product of a rate and the base round-trip time.
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
