//! The counters of a running emulator, and whether the machine kept up.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wansim::{Counters, Duplex, Packet, PathConfig};

use super::{config::Direction, sys};

/// State of a running emulator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WanReport {
    /// A to B, then B to A.
    pub directions: [DirectionReport; 2],
    /// State of the thread that moves the packets.
    pub thread: ThreadReport,
}

/// Settings and counters of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// The settings in force.
    pub config: PathConfig,
    /// Counters of the path.
    pub counters: Counters,
    /// Events outside the model.
    pub load: OverloadCounters,
}

/// Events outside the model, in one direction. `receive_drops`, `send_failures` and `late_packets`
/// should be zero: they count effects of the machine, not of the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverloadCounters {
    /// Frames received; one frame may hold many packets.
    pub frames_in: u64,
    /// Frames sent; one frame may hold many packets.
    pub frames_out: u64,
    /// Frames that contradicted themselves or were too long.
    pub malformed: u64,
    /// Multicast frames that do not cross a WAN.
    pub local: u64,
    /// Frames that the kernel dropped before the emulator could read them.
    pub receive_drops: u64,
    /// Frames that the kernel did not take.
    pub send_failures: u64,
    /// Packets delivered in a batch whose first packet was more than 0.5 ms late, beyond the
    /// coalescing time.
    pub late_packets: u64,
    /// Longest lateness beyond the coalescing time, in microseconds.
    pub latest_us: u64,
}

/// Processor use of the thread that moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Time since the start.
    pub uptime: Duration,
    /// Processor time of the thread. It includes the kernel's work of delivery to the receivers.
    pub cpu_time: Duration,
    /// Busy share of the last full second.
    pub busy: f64,
    /// Highest value of `busy` so far. Near 1, the emulator limits the traffic instead of the path.
    pub busy_max: f64,
    /// Whether the thread has real-time priority.
    pub real_time: bool,
}

impl WanReport {
    /// Whether the machine has distorted the path: packets lost outside the model, more than 1 % of
    /// the packets late, or a thread without idle time. Figures then depend on the machine more
    /// than on the path.
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

    /// Whether the machine has distorted the path since an earlier report of the same emulator.
    /// Packets were then lost outside the model, or more than 1 % of them were late.
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
    /// Counts packets of a batch whose first packet was delivered `late` after its time.
    pub(super) fn delivered_late(&mut self, packets: u64, late: Duration) {
        self.latest_us = self.latest_us.max(late.as_micros() as u64);
        if late > LATE {
            self.late_packets += packets;
        }
    }
}

/// Measures the busy share of the thread.
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

/// Whether late packets are more than one in a hundred of the delivered ones.
fn is_too_many_late(late: u64, delivered: u64) -> bool {
    late * 100 > delivered
}

/// Lateness above which a packet counts as late.
const LATE: Duration = Duration::from_micros(500);
/// Time over which the busy share is measured.
const BUSY_WINDOW: Duration = Duration::from_secs(1);
/// Busy share above which the thread counts as the bottleneck.
const BUSY_MAX: f64 = 0.95;
