//! Sender's log: the contents of each packet, its arrival, and its loss.
//!
//! The input is packets sent, and reports of the peer. For each report the output is the packets
//! that arrived, the contents that were lost, and measurements for congestion control. The
//! connection retransmits.
//!
//! Loss is detected by time only (RFC 8985). A packet is lost when the path has had more time to
//! deliver it than a later packet took, by more than the reordering window. The window is learned
//! from spuriously lost packets. Packets are *resolved* in the order of their numbers, so that
//! counts of arrivals and losses are never biased.

mod packet_contents;
mod reordering_window;
mod report_outcome;
mod reported_ranges;
mod skipped_packet_numbers;
mod step_budget;

use std::{collections::VecDeque, ops::Range, time::Duration};

pub use self::report_outcome::{PacketArrival, ResolvedPacket};
pub(crate) use self::{
    packet_contents::{Item, PacketContents},
    report_outcome::{FrontTiming, ReportOutcome},
    skipped_packet_numbers::SkippedPacketNumbers,
};
use self::{
    reordering_window::ReorderingWindow, reported_ranges::ReportedRanges, step_budget::StepBudget,
};
use crate::{control_frame::ControlFrame, time::Time, wire::Malformed, wire::report::Report};

#[derive(Debug)]
struct SentPacket {
    time: Time,
    bytes_before: u64,
    bytes: u16,
    state: PacketState,
    /// Whether the packet counts towards bytes in flight and towards loss. Packets that carry only
    /// feedback do not.
    eliciting: bool,
    in_train: bool,
    /// Declared lost because no report covered it. The packet may have arrived in time.
    unreported: bool,
    /// Whether congestion control sees the packet neither as lost nor as late.
    is_exempt: bool,
    contents: PacketContents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacketState {
    InFlight,
    Arrived,
    /// Declared lost, but not yet resolved, since an earlier packet is not resolved.
    DeclaredLost,
    Lost,
    /// No packet has this number.
    Skipped,
}

/// Packets from the oldest that may still matter to the newest.
#[derive(Debug)]
pub(crate) struct SentLog {
    packets: VecDeque<SentPacket>,
    /// Number of the first packet in `packets`.
    base: u64,
    /// Every packet below this number is resolved.
    resolved: u64,
    bytes_sent: u64,
    bytes_in_flight: u64,
    /// Items of packets without a known arrival, except for the first item of each packet.
    extra_items: usize,
    /// No packet below this number is in flight and eliciting.
    oldest_open: u64,
    /// Packets in flight that are not eliciting.
    reports_open: u64,
    /// Latest sending time up to which the path has provably had time to deliver packets, see
    /// [`SentLog::on_report`].
    reference: Time,
    /// Time before which round trips do not count, because this process was suspended or the path
    /// was another.
    measures_from: Time,
    /// Lateness of spuriously lost packets.
    reordering: ReorderingWindow,
    /// Base round-trip time as of the newest report.
    base_rtt: Duration,
    /// Lateness of reports on packets that were declared lost because no report covered them.
    report_reordering: ReorderingWindow,
    reported: ReportedRanges,
    /// Packets below this number were sent before the reordering window, and are declared lost if a
    /// report covered them.
    judged_until: u64,
    /// Reordering window and longest wait, as of the newest report.
    window: Duration,
    wait_max: Duration,
    /// Fraction of our packets that are lost, as a moving average over resolved packets.
    loss: f64,
    loss_samples: u64,
    /// The same fraction over fewer packets.
    recent_loss: f64,
    pub(crate) packets_lost: u64,
    pub(crate) packets_late: u64,
    /// Time of the last request to the peer about packets that no report covers, and the end of the
    /// time for its answer.
    asked: Time,
    asked_until: Time,
    skipped_numbers: SkippedPacketNumbers,
    /// Packets below this number took another path. They are not in flight on this one, and measure
    /// nothing.
    path_from: u64,
    steps: StepBudget,
}

/// Weight of one packet in each moving average of losses.
const LOSS_GAIN: f64 = 1.0 / 512.0;
const RECENT_LOSS_GAIN: f64 = 1.0 / 64.0;
/// Least reordering window, so that timer noise does not count as loss.
const REORDER_WINDOW_MIN: Duration = Duration::from_micros(500);
/// Longest wait for a packet or a report, unless four round-trip times are longer.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Least additional wait for a packet that no report covers.
const UNREPORTED_WAIT_MIN: Duration = Duration::from_millis(15);
/// Maximum number of packets with feedback alone that may be unresolved: a minute of them at the
/// highest rate. An honest peer reports once for every sixteen of them.
const REPORTS_OPEN_MAX: u64 = 1 << 16;
/// Maximum number of frames in the log beyond the first frame of each packet. Each takes 32 bytes.
/// The number suffices for half a second of packets at 10 Gbit/s without any arrival.
const EXTRA_ITEMS_MAX: usize = 1 << 19;
/// Maximum number of packets that the log holds: twice as many as one report covers.
const PACKETS_MAX: u64 = 2 * crate::wire::report::WINDOW;

fn wait_max(base_rtt: Duration) -> Duration {
    (4 * base_rtt).max(WAIT_MAX)
}

impl SentLog {
    pub(crate) fn new(skipped_numbers: SkippedPacketNumbers) -> Self {
        Self {
            packets: VecDeque::new(),
            base: 0,
            resolved: 0,
            bytes_sent: 0,
            bytes_in_flight: 0,
            extra_items: 0,
            oldest_open: 0,
            reports_open: 0,
            reference: Time::default(),
            measures_from: Time::default(),
            reordering: ReorderingWindow::default(),
            base_rtt: Duration::ZERO,
            report_reordering: ReorderingWindow::default(),
            reported: ReportedRanges::default(),
            judged_until: 0,
            window: Duration::ZERO,
            wait_max: WAIT_MAX,
            loss: 0.0,
            loss_samples: 0,
            recent_loss: 0.0,
            packets_lost: 0,
            packets_late: 0,
            asked: Time::default(),
            asked_until: Time::default(),
            skipped_numbers,
            path_from: 0,
            steps: StepBudget::new(),
        }
    }

    /// Returns the number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// Returns the number of packets in the log.
    #[cfg(feature = "sim")]
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns the number of entries that reports have caused us to walk.
    #[cfg(feature = "sim")]
    pub(crate) fn entries_walked(&self) -> u64 {
        self.steps.taken
    }

    /// Returns the number of the oldest unresolved packet.
    pub(crate) fn resolved(&self) -> u64 {
        self.resolved
    }

    /// Returns the bytes of packets whose fate is unknown.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Returns the moving average of the fraction of packets lost.
    pub(crate) fn loss(&self) -> f64 {
        self.loss
    }

    /// Returns the larger one of that average and the average over fewer packets.
    pub(crate) fn recent_loss_max(&self) -> f64 {
        self.loss.max(self.recent_loss)
    }

    /// Returns the number of packets in that average.
    pub(crate) fn loss_samples(&self) -> u64 {
        self.loss_samples
    }

    /// Returns the bytes of all packets sent so far.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Returns the sending time of the oldest packet whose fate is unknown.
    pub(crate) fn oldest_in_flight(&self) -> Option<Time> {
        self.get(self.oldest_open).map(|sent| sent.time)
    }

    /// Skips the next number, if that is due.
    fn omit_if_due(&mut self, now: Time) {
        if self.skipped_numbers.take(self.next_number()) {
            self.packets.push_back(SentPacket {
                time: now,
                bytes_before: self.bytes_sent,
                bytes: 0,
                state: PacketState::Skipped,
                eliciting: false,
                in_train: false,
                unreported: false,
                is_exempt: false,
                contents: PacketContents::default(),
            });
            self.advance_oldest_open();
        }
    }

    /// Adds a packet just sent. Its number is [`next_number`](Self::next_number).
    pub(crate) fn push(
        &mut self,
        now: Time,
        bytes: usize,
        eliciting: bool,
        in_train: bool,
        contents: PacketContents,
    ) {
        self.packets.push_back(SentPacket {
            time: now,
            bytes_before: self.bytes_sent,
            bytes: bytes as u16,
            state: PacketState::InFlight,
            eliciting,
            in_train,
            unreported: false,
            is_exempt: false,
            contents,
        });
        self.bytes_sent += bytes as u64;
        self.extra_items += self.packets.back().map_or(0, |sent| sent.contents.extra());
        self.steps.on_sent();
        if eliciting {
            self.bytes_in_flight += bytes as u64;
        } else {
            self.reports_open += 1;
            self.advance_oldest_open();
        }
        self.omit_if_due(now);
    }

    /// Handles a report: marks arrivals, detects losses, and resolves packets in order.
    ///
    /// `base_rtt` scales the reordering window. Congestion control does not see a lost packet that
    /// was sent before `outage_end`: the path was gone, not full.
    ///
    /// # Errors
    /// If the report is malformed, or reports the arrival of packets that were never sent.
    pub(crate) fn on_report(
        &mut self,
        report: &Report<'_>,
        now: Time,
        base_rtt: Duration,
        outage_end: Time,
        outcome: &mut ReportOutcome,
    ) -> Result<(), Malformed> {
        let next = self.next_number();
        let names_none = self.is_skipped(report.largest) || self.is_skipped(report.front.number);
        if report.largest >= next || names_none {
            return Err(Malformed);
        }
        let (base, above) = (self.base, next - report.largest);
        let mut covered = 0;
        report.for_each_run(|low, high, _| {
            covered += high.min(next).saturating_sub(low.max(base));
        })?;
        if !self.steps.take(above + covered, now) {
            // The peer has not earned that much work. The report counts as lost.
            return Ok(());
        }
        // When the frame was made, the path had had time to deliver everything sent up to `judged`.
        // If a report claims to have waited for longer than its front exists, its clock has jumped.
        let waited = Duration::from_micros(report.delay_us);
        let judged = self.get(report.front.number).map(|sent| sent.time + waited);
        let judged = judged.filter(|judged| *judged <= now);
        if 2 * base_rtt < self.base_rtt {
            // Late packets took the longer route, behind packets on the shorter one. That is over.
            self.reordering = ReorderingWindow::default();
        }
        self.base_rtt = base_rtt;
        let window = self.reorder_window(base_rtt, now);
        self.window = window;
        self.wait_max = wait_max(base_rtt);
        let give_up_before = judged.map_or(Time::default(), |judged| judged - window);
        outcome.rtt = self.timing(report, now).map(|timing| timing.rtt);
        let mut reported_from = report.largest;
        let mut covered = 0..0;
        let mut is_true = true;
        report.for_each_run(|low, high, received| {
            reported_from = reported_from.min(low);
            if low != covered.end {
                self.reported
                    .insert(std::mem::replace(&mut covered, low..low));
            }
            covered.end = high;
            let (low, high) = (low.max(self.base), high.min(next));
            if received {
                for number in low..high {
                    is_true &= self.mark_arrived(number, now, outcome);
                }
            } else {
                self.give_up(low.max(self.resolved)..high, give_up_before, false, outcome);
            }
        })?;
        if !is_true {
            return Err(Malformed);
        }
        self.reported.insert(covered);
        // No packet above the largest had arrived.
        let above = (report.largest + 1).max(self.resolved);
        self.give_up(above..next, give_up_before, false, outcome);
        report.for_each_sample(|sample| {
            is_true &= !self.is_skipped(sample.number);
            if let Some(sent) = self
                .get(sample.number)
                .filter(|_| sample.number >= self.path_from)
            {
                outcome.arrivals.push(PacketArrival {
                    number: sample.number,
                    sent_s: sent.time.0 as f64 * 1e-9,
                    received_s: sample.time_us as f64 * 1e-6,
                    sent_bytes_before: sent.bytes_before,
                    in_train: sent.in_train,
                });
            }
        })?;
        if !is_true {
            return Err(Malformed);
        }
        outcome.arrivals.reverse();
        self.reference = self.reference.max(judged.unwrap_or_default());
        self.give_up_reported(self.reference - window, outcome);
        // Reports no longer cover packets this old, and earlier reports about them may have been
        // lost.
        let unreported = base_rtt.mul_f64(1.75).max(UNREPORTED_WAIT_MIN);
        let unreported = unreported.max(self.report_reordering.wait(now).min(wait_max(base_rtt)));
        // Such a packet would be settled if any report had covered it.
        let is_hole = |sent: &SentPacket| {
            let is_new = sent.time >= self.asked;
            is_new && sent.state == PacketState::InFlight && sent.time < give_up_before
        };
        if reported_from > self.resolved
            && now >= self.asked_until
            && self.get(self.resolved).is_some_and(is_hole)
        {
            self.asked = now;
            self.asked_until = now + 2 * base_rtt + 2 * UNREPORTED_WAIT_MIN;
            outcome.ask = true;
        }
        let unreported_before = if now < self.asked_until {
            Time::default()
        } else {
            self.reference - window - unreported
        };
        self.resolve(unreported_before, outage_end, outcome);
        self.reported.forget_below(self.resolved);
        self.advance_oldest_open();
        Ok(())
    }

    pub(crate) fn is_skipped(&self, number: u64) -> bool {
        self.get(number)
            .is_some_and(|sent| sent.state == PacketState::Skipped)
    }

    /// Records that this process was suspended until now.
    pub(crate) fn on_sleep(&mut self, now: Time) {
        self.measures_from = now;
    }

    /// Starts another path for all packets from now on.
    pub(crate) fn begin_path(&mut self, now: Time) {
        self.measures_from = now;
        self.path_from = self.next_number();
        self.bytes_in_flight = 0;
        self.reordering = ReorderingWindow::default();
        self.report_reordering = ReorderingWindow::default();
    }

    /// Returns the times measured on the front of a report. `None` if an earlier report covered
    /// that packet.
    pub(crate) fn timing(&self, report: &Report<'_>, now: Time) -> Option<FrontTiming> {
        let sent = self.get(report.front.number)?;
        let is_news = sent.state != PacketState::Arrived && sent.eliciting;
        let judged = sent.time + Duration::from_micros(report.delay_us);
        if !is_news || sent.time < self.measures_from || judged > now {
            return None;
        }
        Some(FrontTiming {
            rtt: now.since(judged),
            forward_s: report.front.time_us as f64 * 1e-6 - sent.time.0 as f64 * 1e-9,
        })
    }

    /// Forgets packets that can no longer arrive: resolved ones older than `age`, or beyond the
    /// size of the log.
    pub(crate) fn forget(&mut self, now: Time, age: Duration) {
        let is_old = |sent: &SentPacket| sent.time + age < now;
        while self.base < self.resolved
            && (self.packets.front().is_some_and(is_old) || self.packets.len() as u64 > PACKETS_MAX)
        {
            let forgotten = self.packets.pop_front();
            self.extra_items -= forgotten.map_or(0, |sent| sent.contents.extra());
            self.base += 1;
        }
    }

    /// Whether more packets are unresolved than any window allows, or more feedback or small frames
    /// than any path holds.
    ///
    /// The peer does not report in this case.
    pub(crate) fn is_overfull(&self) -> bool {
        self.next_number() - self.resolved > PACKETS_MAX
            || self.reports_open > REPORTS_OPEN_MAX
            || self.extra_items > EXTRA_ITEMS_MAX
    }

    /// Returns the time by which a packet may arrive later than its neighbours before it counts as
    /// lost.
    pub(crate) fn reorder_window(&self, base_rtt: Duration, now: Time) -> Duration {
        let learned = self.reordering.wait(now).min(wait_max(base_rtt));
        (base_rtt / 8).max(learned).max(REORDER_WINDOW_MIN)
    }

    /// Advances the number of the oldest open packet. Each packet is passed once, however often the
    /// number is read.
    fn advance_oldest_open(&mut self) {
        self.oldest_open = self.oldest_open.max(self.base);
        while self
            .get(self.oldest_open)
            .is_some_and(|sent| sent.state != PacketState::InFlight || !sent.eliciting)
        {
            self.oldest_open += 1;
        }
    }

    fn get(&self, number: u64) -> Option<&SentPacket> {
        self.packets.get(number.checked_sub(self.base)? as usize)
    }

    /// Returns false if there is no such packet.
    fn mark_arrived(&mut self, number: u64, now: Time, outcome: &mut ReportOutcome) -> bool {
        let is_on_path = number >= self.path_from;
        let sent = &mut self.packets[(number - self.base) as usize];
        match sent.state {
            PacketState::Arrived => return true,
            PacketState::Skipped => return false,
            PacketState::InFlight | PacketState::DeclaredLost | PacketState::Lost => {}
        }
        let before = std::mem::replace(&mut sent.state, PacketState::Arrived);
        let is_probe = |item| matches!(item, Item::Control(ControlFrame::MtuProbe(_)));
        sent.contents.for_each(|item| {
            if is_on_path || !is_probe(item) {
                outcome.arrived.push(item);
            }
        });
        self.extra_items -= sent.contents.extra();
        sent.contents = PacketContents::default();
        let (eliciting, bytes) = (sent.eliciting, u64::from(sent.bytes));
        let is_exempt = sent.is_exempt;
        let sent_s = sent.time.0 as f64 * 1e-9;
        let late = self.reference.since(sent.time).min(self.wait_max);
        let was_in_flight = before == PacketState::InFlight;
        if is_on_path && (!was_in_flight || now >= self.asked_until) {
            // If no report had covered the packet, the report was late and not the packet.
            if !sent.unreported {
                self.reordering.learn(late, was_in_flight, now);
            }
            if sent.unreported || was_in_flight && late > self.window {
                let late = late.saturating_sub(self.window);
                self.report_reordering.learn(late, was_in_flight, now);
            }
        }
        if before == PacketState::InFlight {
            if !eliciting {
                self.reports_open -= 1;
            } else if is_on_path {
                self.bytes_in_flight -= bytes;
            }
            return true;
        }
        if eliciting {
            self.packets_late += 1;
            self.packets_lost = self.packets_lost.saturating_sub(1);
        }
        if eliciting && before == PacketState::Lost && !is_exempt {
            outcome.late_sent_s.push(sent_s);
            self.loss = (self.loss - LOSS_GAIN).max(0.0);
            self.recent_loss = (self.recent_loss - RECENT_LOSS_GAIN).max(0.0);
        }
        true
    }

    /// Declares packets among `numbers` lost if they are in flight and were sent before `time`.
    ///
    /// With `is_unreported`, no report covered them. Otherwise a report listed them as missing.
    fn give_up(
        &mut self,
        numbers: Range<u64>,
        time: Time,
        is_unreported: bool,
        outcome: &mut ReportOutcome,
    ) {
        for number in numbers {
            let sent = &mut self.packets[(number - self.base) as usize];
            if sent.time >= time {
                return;
            }
            if sent.state != PacketState::InFlight {
                continue;
            }
            sent.state = PacketState::DeclaredLost;
            sent.unreported = is_unreported;
            sent.contents.for_each(|item| outcome.lost.push(item));
            if sent.eliciting {
                if number >= self.path_from {
                    self.bytes_in_flight -= u64::from(sent.bytes);
                }
                self.packets_lost += 1;
            } else {
                self.reports_open -= 1;
            }
        }
    }

    /// Declares packets lost that were sent before `time` and that a report listed as missing.
    ///
    /// The report may be older than the expiry of the packets' reordering window.
    fn give_up_reported(&mut self, time: Time, outcome: &mut ReportOutcome) {
        self.judged_until = self.judged_until.max(self.resolved);
        while self
            .get(self.judged_until)
            .is_some_and(|sent| sent.time < time)
        {
            if self.reported.contains(self.judged_until) {
                let number = self.judged_until..self.judged_until + 1;
                self.give_up(number, time, false, outcome);
            }
            self.judged_until += 1;
        }
    }

    /// Resolves packets in the order of their numbers, up to the first one in flight. Packets sent
    /// before `unreported_before` without a covering report are declared lost.
    fn resolve(&mut self, unreported_before: Time, outage_end: Time, outcome: &mut ReportOutcome) {
        while self.resolved < self.next_number() {
            let next = self.resolved..self.resolved + 1;
            self.give_up(next, unreported_before, true, outcome);
            let sent = &mut self.packets[(self.resolved - self.base) as usize];
            let lost = match sent.state {
                PacketState::Skipped => {
                    self.resolved += 1;
                    continue;
                }
                PacketState::Arrived => false,
                PacketState::DeclaredLost => true,
                PacketState::InFlight => break,
                PacketState::Lost => unreachable!("a packet is resolved once"),
            };
            if lost {
                sent.state = PacketState::Lost;
            }
            // A packet that no report covered may have arrived. Counting it as lost would count
            // lost reports.
            let unknown = sent.unreported && !self.reported.contains(self.resolved);
            let in_outage = sent.time < outage_end;
            let exempt = lost && (in_outage || unknown);
            sent.is_exempt = exempt;
            let is_probe = matches!(
                sent.contents.first,
                Some(Item::Control(ControlFrame::MtuProbe(_)))
            );
            if !(exempt || is_probe && lost) {
                self.loss_samples += 1;
                let gain = LOSS_GAIN.max(1.0 / self.loss_samples as f64);
                self.loss += (f64::from(u8::from(lost)) - self.loss) * gain;
                let gain = RECENT_LOSS_GAIN.max(1.0 / self.loss_samples as f64);
                self.recent_loss += (f64::from(u8::from(lost)) - self.recent_loss) * gain;
            }
            if sent.eliciting && !exempt && self.resolved >= self.path_from {
                outcome.resolved.push(ResolvedPacket {
                    number: self.resolved,
                    bytes: usize::from(sent.bytes),
                    sent_s: sent.time.0 as f64 * 1e-9,
                    lost,
                    in_outage,
                });
            }
            self.resolved += 1;
        }
    }
}

#[cfg(test)]
mod tests;
