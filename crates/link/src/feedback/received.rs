//! The receiver's log: which packets have arrived, and the reports that the peer gets about them.
//!
//! In: numbers, sizes and times of arriving packets, the round-trip time, and how many reports get lost.
//! Out: the time at which the next report is due, and its frames. The log also recognises duplicates.

use std::{collections::VecDeque, time::Duration};

use super::{
    front::Front,
    progress::{Cursor, Progress},
    replay_window::ReplayWindow,
};
use crate::{
    time::Time,
    wire::{
        report::{self, Report, SAMPLES_MAX, Sample, WINDOW},
        varint,
    },
};

/// Which packets have arrived, and what the peer has been told of them.
#[derive(Debug)]
pub(crate) struct ReceivedLog {
    window: ReplayWindow,
    /// When the packet with the highest number arrived.
    largest_time: Time,
    recent: Front,
    progress: Progress,
    /// Of the two times between which the neighbours of a packet were sent.
    neighbours_from: Cursor,
    neighbours_to: Cursor,
    /// Of the [`NEIGHBOURS`] packets sent before one, the fraction that has arrived before it, moving average.
    company: f64,
    /// Since when only packets without company have arrived.
    alone_since: Option<Time>,
    /// The packet that was sampled last.
    front: Sample,
    bytes_received: u64,

    /// For each of the last reports: `next` when it was made, and the range of packets below the
    /// then newest one that arrived late since the report before.
    history: VecDeque<Made>,
    late: Option<(u64, u64)>,
    /// The peer has asked that everything from this packet on be reported again, and the number of further
    /// reports that will do so.
    asked: Option<(u64, usize)>,
    /// The present report answers that question.
    is_answering: bool,
    /// Below this number the present report tells of what came late, in so many bytes.
    late_below: u64,
    late_bytes: usize,
    /// When what came late is told again.
    late_from: Time,
    /// When the peer may ask again.
    asks_from: Time,
    /// Receive times for the next report, oldest first.
    samples: Vec<Sample>,
    /// One arrival in this many is sampled.
    sample_stride: u64,
    packets_since_report: u64,
    /// Ranges of the report being written that did not fit the last frame.
    unwritten: Vec<(u64, u64)>,

    /// Time between two reports.
    interval: Duration,
    rtt: Duration,
    /// The time in which the neighbours of a packet were sent, and how long before it that time ended.
    around: Duration,
    lately: Duration,
    /// Steps in which it is remembered when which number was passed.
    step: Duration,
    /// The fraction of reports that get lost.
    loss: f64,
    /// Bytes that arrive per second, and bytes of a report: moving averages.
    received_per_s: f64,
    report_bytes: f64,
    bytes_reported: u64,
    /// Bytes of all frames of the present report so far.
    written_bytes: f64,
    /// Time between the arrivals of two packets sent one after the other, moving average.
    packet_gap_s: f64,
    last_report: Option<Time>,
    /// A packet that wants a report has arrived since the last one.
    pending: bool,
    /// Without new arrivals reports are repeated until then.
    repeat_until: Time,
    /// ... and so often more, about a ping.
    repeats_left: usize,
    /// The number of reports that cover each arrival.
    redundancy: usize,
}

/// What a packet carries, as far as its reports are concerned. Later kinds want more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    /// Reports, or the end of the connection: nobody waits for a report about that.
    Reports,
    /// A question whether we are there, which will be asked again.
    Ping,
    /// Anything else.
    Data,
}

/// A report that was made.
#[derive(Debug, Clone, Copy)]
struct Made {
    at: Time,
    next: u64,
    late: Option<(u64, u64)>,
}

/// Packets that are reported again when the peer asks: over a second at 1 Gbit/s.
const ASKED_MAX: u64 = 1 << 17;
/// Reports that the peer asked for take no more than this on average: a question is short, and its answer is long.
const ANSWERS_BYTES_PER_S: f64 = 250_000.0;
/// ... or this share of what arrives, where packets that come late are told of.
const LATE_SHARE: f64 = 0.01;
/// Samples taken in the time in which the arrivals come that each front is chosen from. More would
/// sample the same front twice.
const SAMPLED_EACH: usize = 16;
/// Packets sent before one that tell whether it overtook: so many that one in ten is seldom taken for one in five.
const NEIGHBOURS: u64 = 256;
/// Fewer tell nothing.
const NEIGHBOURS_MIN: u64 = 8;
/// The neighbours were sent this part of a round trip before: jitter lets a packet overtake those just before.
const WHILE: u32 = 16;
/// ... and in this part of a round trip: earlier ones would be those of before the others were overtaken.
const AROUND: u32 = 8;
/// ... but for so long at least: on a short path jitter alone makes so few arrive in time.
const AROUND_MIN: Duration = Duration::from_millis(20);
/// A burst after a pause has more packets than this. The one packet that may overtake in a first train, which has 32, then
/// is not looked for: it makes the train seem fast, and growth quick.
const BURST_MIN: u64 = 20;
/// When which number was passed is remembered in steps of this part of that time.
const STEPS_AROUND: u32 = 16;
/// A packet overtook the others if of its neighbours less than this part of what is usual has arrived, and the difference
/// is no chance. Where one packet in five or more is faster than the others, those are the path, and the others late.
const ALONE: f64 = 1.0 / 5.0;
/// The least that counts as usual. While a queue overflows few packets have company, and overtakers, which no queue
/// drops, would soon have as much as usual. A fifth of 0.8 is 0.16, less a standard deviation of 256 packets 0.137: two
/// standard deviations more than the company of one packet in ten that overtakes, and less than that of one in five
/// that are the path.
const COMPANY_MIN: f64 = 0.8;
/// A round-trip time that was measured on an overtaker is too short: they may come alone for so long at least.
const ALONE_FOR_MIN: Duration = Duration::from_millis(100);
/// Weight of a packet in what is usual: a pause after which overtakers come alone moves that by little.
const COMPANY_GAIN: f64 = 1.0 / 1024.0;
/// Bytes that the fields before samples and blocks, and their lengths, take at most.
const FIELDS_SIZE_MAX: usize = 6 * 8 + 2 * 4;
/// Packets of the peer that carry only reports are themselves reported once for every so many.
const REPORTS_PER_REPORT: u64 = 16;
/// The number of reports that cover each arrival, on a path that loses few reports.
const REDUNDANCY_MIN: usize = 4;
/// ... and at most: at 64 % loss of reports, 0.5 % of arrivals are in no report that arrives.
const REDUNDANCY_MAX: usize = 12;
/// Loss of reports below this fraction counts as none.
const LOSS_MIN: f64 = 0.01;
/// Reports are this far apart at least, and at most: more would cost processor time, fewer would make the
/// sender's picture of a long path stale.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_millis(50);
/// Bytes that reports beyond eight a round trip may take, as a fraction of the bytes that arrive: on a path
/// that loses no reports, and elsewhere.
const SHARE_CLEAN: f64 = 0.000_2;
const SHARE: f64 = 0.000_5;
/// All reports together stay below this fraction, unless that would leave fewer than five a round trip.
const SHARE_MAX: f64 = 0.000_9;
/// A path that holds fewer packets than this is short, and gets a report for each so many packets.
const SHORT: f64 = 16.0;
/// ... but reports are no further apart than this.
const INTERVAL_SHORT_MAX: Duration = Duration::from_millis(75);
/// A longer time between two packets is a pause of the sender and not its pace.
const GAP_MAX_S: f64 = 0.010;
/// Bytes of headers and of a report's fields.
const REPORT_OVERHEAD: f64 = 70.0;
/// Weight of one report in the moving averages.
const GAIN: f64 = 1.0 / 8.0;

impl ReceivedLog {
    pub(crate) fn new(rtt: Duration) -> Self {
        let mut log = Self {
            window: ReplayWindow::new(),
            largest_time: Time::default(),
            recent: Front::new(),
            progress: Progress::new(),
            neighbours_from: Cursor::default(),
            neighbours_to: Cursor::default(),
            company: 1.0,
            alone_since: None,
            front: Sample::default(),
            bytes_received: 0,
            history: VecDeque::with_capacity(REDUNDANCY_MAX + 1),
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
            interval: Duration::ZERO,
            rtt,
            around: Duration::ZERO,
            lately: Duration::ZERO,
            step: Duration::ZERO,
            loss: 0.0,
            received_per_s: 0.0,
            report_bytes: REPORT_OVERHEAD,
            bytes_reported: 0,
            written_bytes: 0.0,
            packet_gap_s: 0.0,
            last_report: None,
            pending: false,
            repeat_until: Time::default(),
            repeats_left: 0,
            redundancy: REDUNDANCY_MIN,
        };
        log.set_rtt(rtt);
        log
    }

    pub(crate) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
        self.around = (rtt / AROUND).max(AROUND_MIN);
        self.lately = rtt / WHILE;
        self.step = self.around / STEPS_AROUND;
        self.set_interval();
    }

    /// Sets the time between reports: an eighth of a round trip, 1 to 50 ms, or less while all reports
    /// together take a small fraction of the bytes that arrive. With more reports a burst of losses that
    /// takes fifty reports away is over sooner.
    fn set_interval(&mut self) {
        let share = if self.loss < LOSS_MIN {
            SHARE_CLEAN
        } else {
            SHARE
        };
        let apart = |share: f64| self.report_bytes / (share * self.received_per_s).max(1.0);
        let least = (self.rtt / 64).max(INTERVAL_MIN);
        let affordable = Duration::from_secs_f64(apart(share)).max(least);
        self.interval = self.interval_max().min(affordable);
        if self.loss < LOSS_MIN {
            // Where many packets are reordered reports are long, and must come less often.
            let dear = Duration::from_secs_f64(apart(SHARE_MAX));
            let rarest = (self.interval * 8 / 5).max(2 * INTERVAL_MIN);
            self.interval = self.interval.max(dear.min(rarest));
        }
    }

    /// The longest time between reports: an eighth of a round trip, or on a path that holds only a few packets
    /// the time of [`SHORT`] packets. Where both directions share a radio, a report takes a third of a
    /// packet's airtime.
    fn interval_max(&self) -> Duration {
        let told_by_each = REDUNDANCY_MIN as f64 / self.redundancy as f64;
        let packets = Duration::from_secs_f64(SHORT * self.packet_gap_s * told_by_each);
        if packets > self.rtt {
            packets.clamp(INTERVAL_MIN, INTERVAL_SHORT_MAX)
        } else {
            (self.rtt / 8).clamp(INTERVAL_MIN, INTERVAL_MAX)
        }
    }

    /// Covers each arrival by enough reports, if the fraction `loss` of reports gets lost.
    pub(crate) fn set_report_loss(&mut self, loss: f64) {
        self.loss = loss;
        // loss^n <= 0.5 %
        let needed = if loss < LOSS_MIN {
            0.0
        } else {
            (0.005f64.ln() / loss.min(0.9).ln()).ceil()
        };
        self.redundancy = (needed as usize).clamp(REDUNDANCY_MIN, REDUNDANCY_MAX);
    }

    /// The number of reports that cover each arrival.
    pub(crate) fn redundancy(&self) -> usize {
        self.redundancy
    }

    /// One past the highest packet number that has arrived.
    pub(crate) fn next(&self) -> u64 {
        self.window.next()
    }

    /// Whether packet `number` would be new.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        self.window.is_new(number)
    }

    /// Enters a packet that [`is_new`](Self::is_new).
    pub(crate) fn insert(&mut self, number: u64, bytes: usize, content: Content, now: Time) {
        debug_assert!(
            self.is_new(number),
            "duplicates are dropped before they are entered"
        );
        if number >= self.window.next() {
            self.measure_gap(number + 1 - self.window.next(), now);
            self.largest_time = now;
            self.progress.advance(number + 1, now, self.step);
        } else if self.history.back().is_some_and(|made| number < made.next) {
            let (low, high) = self.late.unwrap_or((number, number + 1));
            self.late = Some((low.min(number), high.max(number + 1)));
        }
        self.window.insert(number);
        if !self.has_overtaken(number, now) || self.recent.is_empty() {
            self.recent.push(Sample {
                number,
                time_us: now.as_micros(),
            });
        }
        if self.packets_since_report.is_multiple_of(self.sample_stride) {
            self.sample();
        }
        self.bytes_received += bytes as u64;
        self.packets_since_report += 1;
        // Packets that carry only reports are reported too, now and then: the peer must learn how many of
        // them are lost.
        self.pending |=
            content > Content::Reports || self.packets_since_report >= REPORTS_PER_REPORT;
        match content {
            Content::Reports => {}
            Content::Ping => self.repeats_left = self.redundancy / 2 - 1,
            Content::Data => {
                self.repeat_until = now + 2 * self.rtt + Duration::from_millis(20);
            }
        }
    }

    /// Whether far fewer of the packets sent a while before `number` have arrived than usual. None overtakes by a
    /// round trip.
    fn has_overtaken(&mut self, number: u64, now: Time) -> bool {
        let (low, high) = self.neighbours(number, now);
        if high - low < NEIGHBOURS_MIN {
            return false;
        }
        let sent = (high - low) as f64;
        let company = f64::from(self.window.arrived_among(low, high)) / sent;
        // The company of one packet in five, where those are the path, less a standard deviation: of few neighbours of
        // such a packet often none has arrived.
        let of_the_path = ALONE * self.company.max(COMPANY_MIN);
        let is_alone = company < of_the_path - (of_the_path * (1.0 - of_the_path) / sent).sqrt();
        self.company += (company - self.company) * COMPANY_GAIN;
        if !is_alone {
            self.alone_since = None;
            return false;
        }
        now.since(*self.alone_since.get_or_insert(now)) < self.rtt.max(ALONE_FOR_MIN)
    }

    /// The packets whose arrival tells whether `number` overtook, as the first and one past the last.
    fn neighbours(&mut self, number: u64, now: Time) -> (u64, u64) {
        let sent = self.progress.passed_at(number).unwrap_or(now);
        let lately = sent - self.lately;
        let progress = &self.progress;
        let lately_from = progress.next_at(lately, &mut self.neighbours_to);
        let lately_from = lately_from.min(number);
        let before_from = progress.next_at(lately - self.around, &mut self.neighbours_from);
        let sent_lately = number - lately_from;
        let sent_before = lately_from - before_from.min(lately_from);
        // Of the packets before a burst all may have arrived, which says nothing of the packets in the burst.
        let is_first = lately_from == 0;
        let in_burst = sent_lately > sent_before && (is_first || sent_lately > BURST_MIN);
        let (count, high) = if in_burst {
            (sent_lately, number)
        } else {
            (sent_before, lately_from)
        };
        let count = count.clamp(NEIGHBOURS_MIN, NEIGHBOURS);
        (high.saturating_sub(count), high)
    }

    /// Samples the present front.
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

    /// Takes in the time between arrivals: the peer has sent `packets` packets since the newest arrival before.
    fn measure_gap(&mut self, packets: u64, now: Time) {
        let since_s = now.since(self.largest_time).as_secs_f64() / packets as f64;
        if self.window.next() > 0 && since_s < GAP_MAX_S {
            let gain = (packets as f64 / 16.0).min(1.0);
            self.packet_gap_s += (since_s - self.packet_gap_s) * gain;
        }
    }

    /// The peer asks for reports on the packets from `number` on once more: the next reports cover them.
    pub(crate) fn tell_from(&mut self, number: u64, now: Time) {
        if self.asked.is_none() && self.asks_from <= now {
            self.asked = Some((number, self.redundancy));
            self.pending = true;
        }
    }

    /// When the next report is due; `None` while there is nothing to report.
    pub(crate) fn report_due(&self) -> Option<Time> {
        if !self.unwritten.is_empty() {
            return Some(Time::default());
        }
        let Some(last) = self.last_report else {
            return self.pending.then_some(Time::default());
        };
        if self.pending {
            return Some(last + self.interval);
        }
        let repeat = last + 2 * self.interval;
        (repeat < self.repeat_until || self.repeats_left > 0).then_some(repeat)
    }

    /// Appends one feedback frame of at most `space` bytes, without its type byte. A report that
    /// does not fit goes on in the next frame; [`report_due`](Self::report_due) says so.
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
        // A peer can send old numbers on purpose, and each would make a report as long as the gaps since then.
        if self.late_bytes > 0 {
            let bytes_per_s = ANSWERS_BYTES_PER_S.max(LATE_SHARE * self.received_per_s);
            let pause = Duration::from_secs_f64(self.late_bytes as f64 / bytes_per_s);
            self.late_from = self.late_from.max(now) + pause;
            self.late_bytes = 0;
        }
        let tells_late = self.late_from <= now;
        let late = self.late.take_if(|_| tells_late);
        self.history.push_back(Made {
            at: now,
            next,
            late,
        });
        // As long as `redundancy` reports take at eight a round trip.
        let coverage = self.redundancy as u32 * self.interval_max();
        let is_past = |made: &Made| made.at + coverage <= now;
        while self.history.len() > self.redundancy + 1 && is_past(&self.history[1]) {
            self.history.pop_front();
        }
        // The report covers everything above the oldest remembered report, and below that the range in which
        // packets arrived late.
        let full = self.history.len() > self.redundancy && is_past(&self.history[0]);
        let oldest = next.saturating_sub(WINDOW);
        let low = if full {
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
        let told_of_late = self.history.iter().rev().take(self.redundancy);
        let late = told_of_late.filter_map(|made| made.late);
        let late = late.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        if let Some((late_low, late_high)) = late {
            let late_low = late_low.max(next.saturating_sub(ASKED_MAX));
            let late_high = late_high.min(low);
            if late_low < late_high && tells_late {
                self.unwritten.push((late_low, late_high));
            }
        }
        if let Some(last) = self.last_report {
            let bytes = (self.bytes_received - self.bytes_reported) as f64;
            let received_per_s = bytes / now.since(last).as_secs_f64().max(1e-6);
            self.received_per_s += (received_per_s - self.received_per_s) * GAIN;
            self.report_bytes += (self.written_bytes - self.report_bytes) * GAIN;
            self.set_interval();
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

    /// Appends one block for the packets from `low` to `high`, as far as `space` allows. Returns
    /// where it stopped.
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
        // Runs are shorter unless losses are frequent; then the bitmap is.
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
