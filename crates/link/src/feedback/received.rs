//! Log of the receiver: the packets that have arrived, and the reports about them.
//!
//! The input is numbers, sizes and times of arriving packets, the round-trip time, and the fraction
//! of lost reports. The output is the time of the next report, and the frames of the report. The
//! log also detects duplicates.

use std::{collections::VecDeque, time::Duration};

use super::{
    cadence::{REDUNDANCY_MAX, REPORT_OVERHEAD, ReportCadence},
    front_selector::FrontSelector,
    neighbour_comparison::NeighbourComparison,
    replay_window::ReplayWindow,
};
use crate::{
    time::Time,
    wire::{
        report::{self, ArrivalSample, Report, SAMPLES_MAX, WINDOW},
        varint,
    },
};

/// Packets that have arrived, and the state of the reports about them.
#[derive(Debug)]
pub(crate) struct ReceivedLog {
    window: ReplayWindow,
    /// Arrival time of the packet with the highest number.
    largest_time: Time,
    recent: FrontSelector,
    neighbours: NeighbourComparison,
    /// Most recently sampled packet.
    front: ArrivalSample,
    bytes_received: u64,

    /// Records of the last reports, oldest first.
    ///
    /// A record contains the highest packet number at the time of the report, plus one. It also
    /// contains the range of packets that arrived late since the previous report.
    history: VecDeque<ReportRecord>,
    /// Whether earlier reports have covered all packets before the oldest record. The next report
    /// then starts at that record.
    is_covered: bool,
    late: Option<(u64, u64)>,
    /// First packet of a range about which the peer has requested further reports. The second value
    /// is the number of reports that will still cover the range.
    asked: Option<(u64, usize)>,
    /// Whether the present report includes a range that the peer requested.
    is_answering: bool,
    /// Packet number below which the present report covers only late packets. `late_bytes` is the
    /// size of the blocks for these late packets.
    late_below: u64,
    late_bytes: usize,
    /// Time from which the next reports may cover late packets again.
    late_from: Time,
    /// Time from which the log accepts the next request of the peer.
    asks_from: Time,
    /// Receive times to include in the next report, oldest first.
    samples: Vec<ArrivalSample>,
    /// Sampling interval: one arrival in this number is sampled.
    sample_stride: u64,
    packets_since_report: u64,
    /// Ranges of packets of the present report that did not fit into its frames so far.
    unwritten: Vec<(u64, u64)>,

    cadence: ReportCadence,
    rtt: Duration,
    bytes_reported: u64,
    /// Size of all frames of the present report so far, in bytes.
    written_bytes: f64,
    last_report: Option<Time>,
    /// Whether a packet that requires a report has arrived since the last report.
    pending: bool,
    /// Time until which the log repeats reports even if no packets arrive.
    repeat_until: Time,
    /// Remaining number of repeated reports about a ping. The log sends them even after
    /// `repeat_until`.
    repeats_left: usize,
}

/// Kind of a packet's content. The kind determines how many reports about the packet are sent.
/// Later variants require more reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ContentKind {
    /// Only reports, or the end of the connection. The peer needs no report about such a packet.
    Reports,
    /// Ping that tests whether this gateway is still reachable. The peer repeats a ping if no reply
    /// arrives.
    Ping,
    /// Any other content.
    Data,
}

/// Record of a report that was sent.
#[derive(Debug, Clone, Copy)]
struct ReportRecord {
    at: Time,
    next: u64,
    late: Option<(u64, u64)>,
}

/// Maximum number of packets that are reported again at the peer's request. At 1 Gbit/s these
/// packets cover more than one second.
const ASKED_MAX: u64 = 1 << 17;
/// Maximum average rate of requested reports, in bytes per second. The rate is limited because a
/// short request causes a long report.
const ANSWERS_BYTES_PER_S: f64 = 250_000.0;
/// Limit of the reports about late packets, as a fraction of the arriving bytes. The larger of this
/// limit and [`ANSWERS_BYTES_PER_S`] applies.
const LATE_SHARE: f64 = 0.01;
/// Approximate number of fronts that are sampled from one set of compared arrivals. With more
/// samples, the same front would be sampled twice.
const SAMPLED_EACH: usize = 16;
/// Maximum size in bytes of a report's fields before samples and blocks, including the length
/// fields.
const FIELDS_SIZE_MAX: usize = 6 * 8 + 2 * 4;
/// Number of arriving packets that contain only reports. After this number, the log sends one
/// report about these packets.
const REPORTS_PER_REPORT: u64 = 16;
impl ReceivedLog {
    pub(crate) fn new(rtt: Duration) -> Self {
        Self {
            window: ReplayWindow::new(),
            largest_time: Time::default(),
            recent: FrontSelector::new(),
            neighbours: NeighbourComparison::new(rtt),
            front: ArrivalSample::default(),
            bytes_received: 0,
            history: VecDeque::with_capacity(REDUNDANCY_MAX + 1),
            is_covered: false,
            late: None,
            asked: None,
            is_answering: false,
            late_below: 0,
            late_bytes: 0,
            late_from: Time::default(),
            asks_from: Time::default(),
            samples: Vec::with_capacity(SAMPLES_MAX),
            sample_stride: 1,
            packets_since_report: 0,
            unwritten: Vec::new(),
            cadence: ReportCadence::new(rtt),
            rtt,
            bytes_reported: 0,
            written_bytes: 0.0,
            last_report: None,
            pending: false,
            repeat_until: Time::default(),
            repeats_left: 0,
        }
    }

    pub(crate) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
        self.neighbours.set_rtt(rtt);
        self.cadence.set_rtt(rtt);
    }

    /// Sets the number of reports that cover each arrival. `loss` is the fraction of reports that
    /// are lost.
    pub(crate) fn set_report_loss(&mut self, loss: f64) {
        self.cadence.set_report_loss(loss);
    }

    /// Returns the number of reports that cover each arrival.
    pub(crate) fn redundancy(&self) -> usize {
        self.cadence.redundancy()
    }

    /// Returns the highest packet number that has arrived, plus one.
    pub(crate) fn next(&self) -> u64 {
        self.window.next()
    }

    /// Whether packet `number` is new. Returns false for a duplicate, and for a number that is too
    /// old to check.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        self.window.is_new(number)
    }

    /// Adds a packet. The caller has checked with [`is_new`](Self::is_new) that the packet is not a
    /// duplicate.
    pub(crate) fn insert(&mut self, number: u64, bytes: usize, content: ContentKind, now: Time) {
        debug_assert!(
            self.is_new(number),
            "duplicates are dropped before they are entered"
        );
        if number >= self.window.next() {
            if self.window.next() > 0 {
                let packets = number + 1 - self.window.next();
                let since = now.since(self.largest_time);
                self.cadence.measure_gap(packets, since);
            }
            self.largest_time = now;
            self.neighbours.advance(number + 1, now);
        } else if self.history.back().is_some_and(|made| number < made.next) {
            let (low, high) = self.late.unwrap_or((number, number + 1));
            self.late = Some((low.min(number), high.max(number + 1)));
        }
        self.window.insert(number);
        let neighbours = &mut self.neighbours;
        if !neighbours.has_overtaken(number, &self.window, now) || self.recent.is_empty() {
            self.recent.push(ArrivalSample {
                number,
                time_us: now.as_micros(),
            });
        }
        if self.packets_since_report.is_multiple_of(self.sample_stride) {
            self.sample();
        }
        self.bytes_received += bytes as u64;
        self.packets_since_report += 1;
        // Packets that contain only reports are sometimes reported, too. The peer must learn how
        // many of these packets are lost.
        self.pending |=
            content > ContentKind::Reports || self.packets_since_report >= REPORTS_PER_REPORT;
        match content {
            ContentKind::Reports => {}
            ContentKind::Ping => self.repeats_left = self.redundancy() / 2 - 1,
            ContentKind::Data => {
                self.repeat_until = now + 2 * self.rtt + Duration::from_millis(20);
            }
        }
    }

    /// Samples the present front if it differs from the last sample.
    fn sample(&mut self) {
        let Some((front, compared)) = self.recent.choose(self.rtt) else {
            return;
        };
        self.sample_stride = self.sample_stride.max((compared / SAMPLED_EACH) as u64);
        if self.front == front {
            return;
        }
        self.front = front;
        if self.samples.len() == SAMPLES_MAX {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.sample_stride *= 2;
        }
        self.samples.push(front);
    }

    /// Handles a request of the peer to report again about all packets from `number` on. The next
    /// reports cover these packets.
    pub(crate) fn report_again_from(&mut self, number: u64, now: Time) {
        if self.asked.is_none() && self.asks_from <= now {
            self.asked = Some((number, self.redundancy()));
            self.pending |= self.window.next() > 0;
        }
    }

    /// Returns the time of the next report. Returns `None` if no report is due.
    pub(crate) fn report_due(&self) -> Option<Time> {
        if !self.unwritten.is_empty() {
            return Some(Time::default());
        }
        let Some(last) = self.last_report else {
            return self.pending.then_some(Time::default());
        };
        if self.pending {
            return Some(last + self.cadence.interval());
        }
        let repeat = last + 2 * self.cadence.interval();
        (repeat < self.repeat_until || self.repeats_left > 0).then_some(repeat)
    }

    /// Appends one feedback frame of at most `space` bytes, without the byte for the frame type.
    ///
    /// If the report does not fit, it continues in the next frame. [`report_due`](Self::report_due)
    /// then returns a time in the past.
    pub(crate) fn write_report(&mut self, out: &mut Vec<u8>, space: usize, now: Time) {
        let Some(space) = space.checked_sub(FIELDS_SIZE_MAX) else {
            return;
        };
        if self.window.next() == 0 {
            self.pending = false;
            return;
        }
        if self.unwritten.is_empty() {
            self.begin_report(now);
        }
        let largest = self.window.next() - 1;
        let mut samples = Vec::with_capacity(SAMPLES_MAX * 4);
        let front = self.front;
        let mut previous = front;
        for sample in self.samples.iter().rev() {
            let step = sample.number as i64 - previous.number as i64;
            varint::put_signed(&mut samples, step);
            let step_us = sample.time_us as i64 - previous.time_us as i64;
            varint::put_signed(&mut samples, step_us);
            previous = *sample;
        }
        self.samples.clear();
        let mut blocks = Vec::new();
        let space = space.saturating_sub(samples.len());
        while let Some((low, high)) = self.unwritten.pop() {
            let left = space.saturating_sub(blocks.len());
            let before = blocks.len();
            let written = self.write_block(&mut blocks, low, high, largest, left);
            if high <= self.late_below {
                self.late_bytes += blocks.len() - before;
            }
            if written < high {
                self.unwritten.push((written, high));
                break;
            }
        }
        let delay = now.as_micros().saturating_sub(front.time_us);
        Report::new(largest, front, delay, self.bytes_received)
            .with_parts(&samples, &blocks)
            .put(out);
        self.written_bytes += REPORT_OVERHEAD + (samples.len() + blocks.len()) as f64;
    }

    fn begin_report(&mut self, now: Time) {
        let next = self.window.next();
        // A hostile peer can send old packet numbers. Each old number would lengthen a report by
        // all gaps since that number.
        if self.late_bytes > 0 {
            let bytes_per_s = ANSWERS_BYTES_PER_S.max(LATE_SHARE * self.cadence.received_per_s());
            let pause = Duration::from_secs_f64(self.late_bytes as f64 / bytes_per_s);
            self.late_from = self.late_from.max(now) + pause;
            self.late_bytes = 0;
        }
        let reports_late = self.late_from <= now;
        let late = self.late.take_if(|_| reports_late);
        self.history.push_back(ReportRecord {
            at: now,
            next,
            late,
        });
        // The time in which `redundancy` reports are sent at the maximum interval.
        let coverage = self.redundancy() as u32 * self.cadence.interval_max();
        let is_past = |made: &ReportRecord| made.at + coverage <= now;
        while self.history.len() > self.redundancy() + 1 && is_past(&self.history[1]) {
            self.history.pop_front();
        }
        // The flag stays set if the number of reports for each arrival rises. Older arrivals have
        // then been reported often enough.
        self.is_covered |= self.history.len() > self.redundancy() && is_past(&self.history[0]);
        let oldest = next.saturating_sub(WINDOW);
        let low = if self.is_covered {
            self.history[0].next.max(oldest)
        } else {
            oldest
        };
        if std::mem::replace(&mut self.is_answering, self.asked.is_some()) {
            let pause = Duration::from_secs_f64(self.written_bytes / ANSWERS_BYTES_PER_S);
            self.asks_from = self.asks_from.max(now) + pause;
        }
        let asked_oldest = next.saturating_sub(ASKED_MAX);
        let asked = self.asked.map(|(from, _)| from.max(asked_oldest));
        let low = asked.map_or(low, |from| low.min(from));
        self.asked = self
            .asked
            .and_then(|(from, reports)| Some((from, reports.checked_sub(1).filter(|n| *n > 0)?)));
        if low < next {
            self.unwritten.push((low, next));
        }
        self.late_below = low;
        let reported_late = self.history.iter().rev().take(self.redundancy());
        let late = reported_late.filter_map(|made| made.late);
        let late = late.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        if let Some((late_low, late_high)) = late {
            let late_low = late_low.max(next.saturating_sub(ASKED_MAX));
            let late_high = late_high.min(low);
            if late_low < late_high && reports_late {
                self.unwritten.push((late_low, late_high));
            }
        }
        if let Some(last) = self.last_report {
            let received_bytes = self.bytes_received - self.bytes_reported;
            let since = now.since(last);
            self.cadence
                .reported(self.written_bytes, received_bytes, since);
        }
        self.written_bytes = 0.0;
        self.bytes_reported = self.bytes_received;
        self.sample_stride = 1;
        self.packets_since_report = 0;
        if !std::mem::take(&mut self.pending) {
            self.repeats_left = self.repeats_left.saturating_sub(1);
        }
        self.last_report = Some(now);
    }

    /// Appends one block for the packets from `low` to below `high`, as far as the block fits into
    /// `space` bytes. Returns the first packet number that is not covered.
    fn write_block(
        &self,
        out: &mut Vec<u8>,
        low: u64,
        high: u64,
        largest: u64,
        space: usize,
    ) -> u64 {
        const BLOCK_HEADER_SIZE: usize = 4 + 4 + 1;
        let Some(space) = space
            .checked_sub(BLOCK_HEADER_SIZE)
            .filter(|space| *space >= 16)
        else {
            return low;
        };
        let mut runs = Vec::new();
        let mut at = low;
        let mut received = true;
        // A list of runs is shorter than a bitmap, unless losses are frequent.
        let bits_size = (high - low).div_ceil(8) as usize;
        while at < high && runs.len() + 4 <= space && runs.len() < bits_size + 4 {
            let end = self.window.run_end(at, high, received);
            varint::put(&mut runs, end - at);
            at = end;
            received = !received;
        }
        let bits_end = high.min(low + 8 * space as u64);
        let (end, kind) = if at >= bits_end {
            (at, report::RUNS)
        } else {
            (bits_end, report::BITS)
        };
        varint::put(out, largest - low);
        varint::put(out, end - low);
        out.push(kind);
        if kind == report::RUNS {
            out.extend_from_slice(&runs);
        } else {
            let mut at = low;
            while at < end {
                let count = (end - at).min(8);
                let byte =
                    (0..count).fold(0, |byte, i| byte | u8::from(self.window.has(at + i)) << i);
                out.push(byte);
                at += count;
            }
        }
        end
    }
}

#[cfg(test)]
mod tests;
