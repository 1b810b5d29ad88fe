//! Measurement of one cell: an emulated path, a pair of gateways, and the runs over this path.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use bench_kit::machine::{MachineLoad, Moment, ProcessTime};
use emulator::{Direction, WanReport};
use eval::bulk::BulkEnd;
use units::ByteCount;
use wansim::ETHERNET_OVERHEAD;

use crate::{
    cell::PathCell,
    lost_time::{Cause, LostTime},
    setting::Setting,
};

/// Parameters of the measurement of a cell.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of transfers through the gateways.
    pub runs: usize,
    /// Congestion controls of the kernel. The bench makes one transfer with each congestion
    /// control.
    pub rivals: Vec<String>,
    /// Time after which the bench aborts a transfer of the kernel's TCP. The result is then the
    /// rate so far.
    pub rival_limit: Duration,
    /// Minimum size of a transfer on a path without loss. On other paths, a perfect sender needs at
    /// least the time that this size takes without loss.
    pub least: ByteCount,
}

/// Results of one cell.
#[derive(Debug)]
pub struct Outcome {
    pub cell: PathCell,
    pub size: ByteCount,
    pub runs: Vec<MeasuredTransfer>,
    /// Each congestion control with its result as a fraction of the ideal. `None` if this kernel
    /// lacks the congestion control.
    pub rivals: Vec<(String, Option<f64>)>,
}

/// Result of one transfer through the gateways.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredTransfer {
    /// Ideal time divided by the measured time. For an aborted transfer, the time is extrapolated
    /// from its rate.
    pub fraction: f64,
    /// Processor time of the sending and of the receiving gateway.
    pub cpu: [ProcessTime; 2],
    /// Processor time of the emulator's thread, as a share of one processor.
    pub emulator: f64,
    pub machine: MachineLoad,
    pub limit: LostTime,
}

/// The gateways and the emulated path of a cell, and the time until which the link counts as warm.
struct Stage {
    setting: Setting,
    warm_until: Option<Instant>,
}

/// State of the clocks and counters at the beginning of a transfer.
struct Start {
    at: Instant,
    moment: Moment,
    own: Duration,
    gateways: [ProcessTime; 2],
    report: WanReport,
    received: ByteCount,
}

/// Measures a cell. Calls `progress` with a text after each finished step.
pub fn measure(
    cell: &PathCell,
    plan: &Plan,
    mut progress: impl FnMut(&str),
) -> anyhow::Result<Outcome> {
    let mut stage = Stage {
        setting: Setting::new([cell.path(), cell.path()], 1)?,
        warm_until: None,
    };
    let size = cell.size(plan.least);
    let mut outcome = Outcome {
        cell: *cell,
        size,
        runs: Vec::new(),
        rivals: Vec::new(),
    };
    for step in steps(plan) {
        match step {
            Step::Gateways => {
                let number = outcome.runs.len() + 1;
                let run = match stage.run(cell, size) {
                    Ok(run) => {
                        progress(&format!("run {number}: {:.3} of ideal", run.fraction));
                        run
                    }
                    Err(error) => {
                        let said = stage.setting.said();
                        progress(&format!("run {number} failed: {error:#}\n{said}"));
                        MeasuredTransfer::FAILED
                    }
                };
                outcome.runs.push(run);
            }
            Step::Rival(name) => {
                let fraction = stage.rival(cell, size, name, plan.rival_limit)?;
                match fraction {
                    Some(fraction) => progress(&format!("{name}: {fraction:.3} of ideal")),
                    None => progress(&format!("{name}: this kernel does not have it")),
                }
                outcome.rivals.push((name.to_owned(), fraction));
            }
        }
    }
    Ok(outcome)
}

impl MeasuredTransfer {
    /// Result of a transfer that failed. It counts as zero goodput.
    const FAILED: Self = Self {
        fraction: 0.0,
        cpu: [ProcessTime {
            all: Duration::ZERO,
            of_thread: Duration::ZERO,
        }; 2],
        emulator: 0.0,
        machine: MachineLoad {
            busy: 0.0,
            others: 0.0,
        },
        limit: LostTime {
            idle: 0.0,
            extra: 0.0,
            cause: Cause::Failed,
        },
    };
}

/// A step of a measurement: one transfer through the gateways, or one with the kernel's TCP.
enum Step<'a> {
    Gateways,
    Rival(&'a str),
}

/// Returns the order of the steps. The transfers of the kernel's TCP are spread evenly among the
/// runs, so that other load on the machine affects all transfers equally.
fn steps(plan: &Plan) -> Vec<Step<'_>> {
    let mut steps: Vec<_> = (0..plan.runs).map(|_| Step::Gateways).collect();
    for (index, name) in plan.rivals.iter().enumerate().rev() {
        let at = (plan.runs * (index + 1)).div_ceil(plan.rivals.len() + 1);
        steps.insert(at, Step::Rival(name));
    }
    steps
}

impl Stage {
    /// Makes one measured transfer through the gateways. If the link is not warm, first makes
    /// another transfer that warms up the link.
    fn run(&mut self, cell: &PathCell, size: ByteCount) -> anyhow::Result<MeasuredTransfer> {
        // A transfer that is cut off still counts at the rate that it reached.
        let limit = 4 * cell.ideal(size) + Duration::from_secs(20);
        if self.warm_until.is_none_or(|until| until < Instant::now()) {
            let warm_up = self.setting.bulk(cell.warm_up(), limit);
            let ended = self.setting.send(&warm_up).context("warming up")?;
            let limit_s = limit.as_secs();
            anyhow::ensure!(ended.is_complete, "the warm-up did not end in {limit_s} s");
        }
        let start = Start::new(&self.setting)?;
        let ended = self.setting.send(&self.setting.bulk(size, limit))?;
        let run = start.end(&self.setting, cell, size, &ended)?;
        self.warm_until = Some(Instant::now() + WARM_FOR);
        Ok(run)
    }

    /// Makes one transfer with the kernel's TCP, without the gateways. Returns `None` if this
    /// kernel lacks the congestion control.
    fn rival(
        &mut self,
        cell: &PathCell,
        size: ByteCount,
        name: &str,
        limit: Duration,
    ) -> anyhow::Result<Option<f64>> {
        let setting = &mut self.setting;
        if !setting.set_congestion_control(name) {
            return Ok(None);
        }
        let before = setting.received();
        let ended = setting.send(&setting.direct_bulk(size, limit))?;
        let arrived = ByteCount::new(setting.received().bytes() - before.bytes());
        // After this pause, no packet of the transfer and no reply is in flight.
        thread::sleep(2 * cell.rtt + Duration::from_millis(500));
        Ok(Some(fraction(cell, size, &ended, arrived)))
    }
}

impl Start {
    fn new(setting: &Setting) -> anyhow::Result<Self> {
        Ok(Self {
            at: Instant::now(),
            moment: Moment::now()?,
            own: ProcessTime::own()?,
            gateways: setting.cpu_time()?,
            report: setting.report(),
            received: setting.received(),
        })
    }

    /// Returns the result of the transfer that ran since this state was recorded.
    fn end(
        &self,
        setting: &Setting,
        cell: &PathCell,
        size: ByteCount,
        ended: &BulkEnd,
    ) -> anyhow::Result<MeasuredTransfer> {
        let elapsed = self.at.elapsed();
        let after = setting.cpu_time()?;
        let cpu = [0, 1].map(|site| after[site].since(self.gateways[site]));
        let ours = ProcessTime::own()?.saturating_sub(self.own) + cpu[0].all + cpu[1].all;
        let machine = self.moment.load_since(ours)?;
        let report = setting.report();
        let arrived = setting.received().bytes() - self.received.bytes();
        let emulator = report.thread.cpu_time - self.report.thread.cpu_time;
        let limit = LostTime::find(cell, size, ended, [&self.report, &report], &cpu, &machine);
        Ok(MeasuredTransfer {
            fraction: fraction(cell, size, ended, ByteCount::new(arrived)),
            cpu,
            emulator: emulator.as_secs_f64() / elapsed.as_secs_f64(),
            machine,
            limit,
        })
    }
}

/// Returns the ideal time divided by the measured time. For an incomplete transfer, the time is
/// extrapolated from its rate.
fn fraction(cell: &PathCell, size: ByteCount, ended: &BulkEnd, arrived: ByteCount) -> f64 {
    let share = if ended.is_complete {
        1.0
    } else {
        arrived.bytes() as f64 / size.bytes() as f64
    };
    cell.ideal(size).as_secs_f64() * share / ended.elapsed.as_secs_f64()
}

/// Returns the number of bytes that passed the bottleneck from A to B between two reports. The
/// number includes Ethernet framing.
pub fn wire_bytes(before: &WanReport, after: &WanReport) -> f64 {
    let path = |report: &WanReport| report.directions[Direction::AToB as usize].counters;
    let (before, after) = (path(before), path(after));
    let packets = (after.sent - before.sent) as f64;
    let drops = (after.queue_drops - before.queue_drops) as f64;
    let ip_bytes = (after.sent_bytes - before.sent_bytes) as f64;
    // The calculation assumes that dropped packets have the mean size of all packets.
    (ip_bytes + packets * ETHERNET_OVERHEAD as f64) * (1.0 - drops / packets.max(1.0))
}

/// Time after a transfer during which a link counts as warm.
const WARM_FOR: Duration = Duration::from_secs(10);
