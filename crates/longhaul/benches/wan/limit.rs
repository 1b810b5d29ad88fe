//! What kept a transfer from the ideal.

use std::{fmt, time::Duration};

use bench_kit::machine::{Load, ProcessTime};
use emulator::Report;
use eval::bulk::Ended;
use units::ByteCount;

use crate::{cell::Cell, measure::wire_bytes};

/// Where the time went that a perfect sender would not have needed, and what is to blame.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The bottleneck had nothing to send, beyond the round trips of the ideal.
    pub idle: f64,
    /// The bottleneck sent what a perfect sender would not have: repetitions, reports, probes.
    pub extra: f64,
    pub cause: Cause,
}

/// What is to blame, the first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The machine lost packets outside the model, or was late with more than 1 % of them.
    Emulator,
    /// A processor of a gateway's thread, or all of them.
    Processor,
    /// Nothing: the line was in use.
    Line,
    /// The line was idle.
    Idle,
    /// The line carried what was sent again.
    Extra,
    /// The transfer broke off.
    Failed,
}

impl Limit {
    /// Between two reports of the emulator lies one transfer of `size`.
    pub fn find(
        cell: &Cell,
        size: ByteCount,
        ended: &Ended,
        [before, after]: [&Report; 2],
        gateways: &[ProcessTime; 2],
        machine: &Load,
    ) -> Self {
        let elapsed = ended.elapsed.as_secs_f64();
        let ideal = cell.ideal(size).as_secs_f64();
        let line = cell.rate.as_bytes_per_s();
        let extra = (wire_bytes(before, after) - cell.ideal_wire_bytes(size)) / line;
        let idle = elapsed - ideal - extra;
        let share = |time: Duration| time.as_secs_f64() / elapsed;
        let thread_is_busy = gateways.iter().any(|used| share(used.of_thread) > FULL);
        let cause = if after.distorted_since(before) {
            Cause::Emulator
        } else if machine.busy > FULL || thread_is_busy {
            Cause::Processor
        } else if elapsed < ideal * SMALL {
            Cause::Line
        } else if idle > extra {
            Cause::Idle
        } else {
            Cause::Extra
        };
        Self { idle, extra, cause }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::Failed => return f.write_str("THE TRANSFER FAILED"),
            Cause::Emulator => "EMULATOR TOO SLOW",
            Cause::Processor => "PROCESSOR",
            Cause::Line => "line",
            Cause::Idle => "line idle",
            Cause::Extra => "sent again",
        };
        write!(
            f,
            "{cause} (idle {:.2} s, extra {:.2} s)",
            self.idle, self.extra
        )
    }
}

/// A processor that is in use so much has nothing left.
const FULL: f64 = 0.95;
/// So little above the ideal time is not worth a reason.
const SMALL: f64 = 1.02;
