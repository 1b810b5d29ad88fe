//! The counters of a running emulator, and checks whether the machine was fast enough.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wansim::{Counters, Duplex, Packet, PathConfig};

use super::{config::Direction, sys};

/// State of a running emulator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WanReport {
    /// Report of the direction from A to B, then of the direction from B to A.
    pub directions: [DirectionReport; 2],
    /// State of the thread that moves the packets.
    pub thread: ThreadReport,
}

/// Settings and counters of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// The current settings of the path.
    pub config: PathConfig,
    /// Counters of the path.
    pub counters: Counters,
    /// Counters of frames, and of events that the machine caused instead of the emulated path.
    pub load: OverloadCounters,
}

/// Counters of one direction for events that the path's model does not include. Three counters
/// should be zero, because they count effects of the machine: `receive_drops`, `send_failures` and
/// `late_packets`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverloadCounters {
    /// Number of received frames. One frame may contain many packets.
    pub frames_in: u64,
    /// Number of sent frames. One frame may contain many packets.
    pub frames_out: u64,
    /// Number of frames with contradictory fields, or with excessive length.
    pub malformed: u64,
    /// Number of multicast frames that the emulator did not pass to the opposite site.
    pub local: u64,
    /// Number of frames that the kernel dropped before the emulator could read them.
    pub receive_drops: u64,
    /// Number of frames that the kernel refused to send.
    pub send_failures: u64,
    /// Number of packets in late batches. A batch is late if its first packet was delivered more
    /// than 0.5 ms after its time. The coalescing time does not count as delay.
    pub late_packets: u64,
    /// Longest delay of a packet beyond its time and the coalescing time, in microseconds.
    pub latest_us: u64,
}

/// Processor use of the thread that moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Time since the thread started.
    pub uptime: Duration,
    /// Processor time of the thread. It includes the time that the kernel needs to deliver packets
    /// to the receivers.
    pub cpu_time: Duration,
    /// Fraction of the last full second in which the thread was busy.
    pub busy: f64,
    /// Highest value of `busy` so far. If it is near 1, the traffic is limited by the emulator
    /// instead of the path.
    pub busy_max: f64,
    /// Whether the thread has real-time priority.
    pub real_time: bool,
}

impl WanReport {
    /// Returns whether the machine has distorted the path. Measurements then depend on the machine
    /// more than on the path. The result is true if the machine lost packets that the emulated path
    /// kept. It is also true if more than 1 % of the packets were late, or if the thread had no
    /// idle time.
    pub fn saturated(&self) -> bool {
        let distorted = self
            .directions
            .iter()
            .any(|DirectionReport { counters, load, .. }| {
                let lost = load.receive_drops + load.send_failures;
                lost > 0 || is_too_many_late(load.late_packets, counters.delivered)
            });
        distorted || self.thread.busy_max > BUSY_MAX
    }

    /// Returns whether the machine has distorted the path since an earlier report of the same
    /// emulator. The result is true if the machine lost packets that the emulated path kept, or if
    /// more than 1 % of the packets were late.
    pub fn distorted_since(&self, earlier: &Self) -> bool {
        let directions = earlier.directions.iter().zip(&self.directions);
        directions.into_iter().any(|(before, after)| {
            let lost = |load: &OverloadCounters| load.receive_drops + load.send_failures;
            let late = after.load.late_packets - before.load.late_packets;
            let delivered = after.counters.delivered - before.counters.delivered;
            lost(&after.load) > lost(&before.load) || is_too_many_late(late, delivered)
        })
    }
}

impl OverloadCounters {
    /// Counts the packets of a batch. `late` is the delay of its first packet.
    pub(super) fn delivered_late(&mut self, packets: u64, late: Duration) {
        self.latest_us = self.latest_us.max(late.as_micros() as u64);
        if late > LATE {
            self.late_packets += packets;
        }
    }
}

/// Meter of the fraction of time in which the thread is busy.
#[derive(Debug)]
pub(super) struct BusyMeter {
    started: Instant,
    woke: Instant,
    window_start: Instant,
    busy_in_window: Duration,
    busy: f64,
    busy_max: f64,
    real_time: bool,
}

impl BusyMeter {
    pub(super) fn start(real_time: bool) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            woke: now,
            window_start: now,
            busy_in_window: Duration::ZERO,
            busy: 0.0,
            busy_max: 0.0,
            real_time,
        }
    }

    pub(super) fn woke(&mut self, now: Instant) {
        self.woke = now;
    }

    pub(super) fn sleeps(&mut self, now: Instant) {
        self.busy_in_window += now - self.woke;
        let window = now - self.window_start;
        if window >= BUSY_WINDOW {
            self.busy = self.busy_in_window.as_secs_f64() / window.as_secs_f64();
            self.busy_max = self.busy_max.max(self.busy);
            self.window_start = now;
            self.busy_in_window = Duration::ZERO;
        }
    }

    pub(super) fn report<P: Packet>(
        &self,
        paths: &Duplex<P>,
        load: &[OverloadCounters; 2],
    ) -> WanReport {
        let direction = |direction: Direction| DirectionReport {
            config: paths.path(direction.path_direction()).config().clone(),
            counters: *paths.counters(direction.path_direction()),
            load: load[direction.index()],
        };
        WanReport {
            directions: Direction::BOTH.map(direction),
            thread: ThreadReport {
                uptime: self.started.elapsed(),
                cpu_time: sys::thread_cpu_time(),
                busy: self.busy,
                busy_max: self.busy_max,
                real_time: self.real_time,
            },
        }
    }
}

/// Returns whether more than 1 % of the delivered packets were late.
fn is_too_many_late(late: u64, delivered: u64) -> bool {
    late * 100 > delivered
}

/// Delay above which a packet counts as late.
const LATE: Duration = Duration::from_micros(500);
/// Period for which the busy fraction is measured.
const BUSY_WINDOW: Duration = Duration::from_secs(1);
/// Busy fraction above which the thread counts as the bottleneck.
const BUSY_MAX: f64 = 0.95;
