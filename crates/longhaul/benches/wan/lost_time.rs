//! Reason why a transfer was slower than the ideal.

use std::{fmt, time::Duration};

use bench_kit::machine::{MachineLoad, ProcessTime};
use emulator::WanReport;
use eval::bulk::BulkEnd;
use units::ByteCount;

use crate::{cell::PathCell, measure::wire_bytes};

/// Time that a transfer needed beyond the ideal time, and the cause.
#[derive(Debug, Clone, Copy)]
pub struct LostTime {
    /// Time in seconds in which the bottleneck was idle. It does not include the round trips that
    /// are part of the ideal time.
    pub idle: f64,
    /// Time in seconds in which the bottleneck carried bytes that a perfect sender would not have
    /// sent, such as retransmissions, reports and probes.
    pub extra: f64,
    pub cause: Cause,
}

/// Cause of a slow transfer. If several causes apply, the first in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The emulator lost packets outside its model, or delayed more than 1 % of the packets too
    /// long.
    Emulator,
    /// The thread of a gateway used its processor completely, or all processors were busy.
    Processor,
    /// No cause: the transfer was nearly as fast as the ideal.
    Line,
    /// Most of the lost time passed while the bottleneck was idle.
    Idle,
    /// Most of the lost time passed while the bottleneck carried bytes that a perfect sender would
    /// not have sent.
    Extra,
    /// The transfer failed.
    Failed,
}

impl LostTime {
    /// Determines the cause for one transfer of `size`. The emulator made the first report before
    /// the transfer, and the second report after it.
    pub fn find(
        cell: &PathCell,
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

impl fmt::Display for LostTime {
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

/// Minimum load at which a processor counts as fully used.
const FULL: f64 = 0.95;
/// Measured time divided by ideal time, below which a transfer counts as ideal.
const SMALL: f64 = 1.02;
