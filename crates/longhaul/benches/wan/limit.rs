//! Reason why a transfer missed the ideal.

use std::{fmt, time::Duration};

use bench_kit::machine::{MachineLoad, ProcessTime};
use emulator::WanReport;
use eval::bulk::BulkEnd;
use units::ByteCount;

use crate::{cell::Cell, measure::wire_bytes};

/// Time that a perfect sender would not have needed, and its cause.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Share of time in which the bottleneck was idle, beyond the round trips of the ideal.
    pub idle: f64,
    /// Share of time in which the bottleneck carried bytes that a perfect sender would not have
    /// sent: retransmissions, reports, probes.
    pub extra: f64,
    pub cause: Cause,
}

/// Cause of lost time, the first in this order that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The machine lost packets outside the model, or delayed more than 1 % of them.
    Emulator,
    /// A processor with a gateway's thread was busy, or all processors were.
    Processor,
    /// The path was in use, so no cause is to blame.
    Line,
    /// The path was idle.
    Idle,
    /// The path carried retransmissions.
    Extra,
    /// The transfer broke off.
    Failed,
}

impl Limit {
    /// Determines the limit from two reports of the emulator, between which one transfer of `size`
    /// lies.
    pub fn find(
        cell: &Cell,
        size: ByteCount,
        ended: &BulkEnd,
        [before, after]: [&WanReport; 2],
        gateways: &[ProcessTime; 2],
        machine: &MachineLoad,
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

/// Processor load from which a processor counts as exhausted.
const FULL: f64 = 0.95;
/// Ratio to the ideal time below which no cause is stated.
const SMALL: f64 = 1.02;
