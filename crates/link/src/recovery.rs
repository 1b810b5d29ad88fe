//! Log of the sender: the contents of each packet, its arrival, and its loss.
//!
//! The input is sent packets, and reports of the peer. For each report, the output is the packets
//! that arrived, the contents that were lost, and measurements for congestion control. The
//! connection retransmits lost contents.
//!
//! Only time decides whether a packet is lost (RFC 8985). Each report shows a reference time:
//! packets sent up to this time could have arrived. A packet is lost if it has not arrived, and was
//! sent earlier than the reference time minus the reordering window. Spuriously lost packets extend
//! the window.
//!
//! Packets are *resolved* (acknowledged or declared lost) in the order of their numbers. Counts of
//! arrivals and losses are therefore never biased.

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
    /// Whether the packet counts for bytes in flight and for loss. Packets that contain neither
    /// data nor a ping do not count. MTU probes do not count either.
    eliciting: bool,
    in_train: bool,
    /// Whether the packet was declared lost because no report covered it. Such a packet may have
    /// arrived in time.
    unreported: bool,
    /// Whether congestion control ignores the packet if it is lost or arrives late.
    is_exempt: bool,
    contents: PacketContents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacketState {
    InFlight,
    Arrived,
    /// Declared lost, but not resolved, because an earlier packet is not resolved yet.
    DeclaredLost,
    Lost,
    /// The sender has skipped this packet number.
    Skipped,
}

/// Sent packets: from the oldest packet that can still arrive, to the newest packet.
#[derive(Debug)]
pub(crate) struct SentLog {
    packets: VecDeque<SentPacket>,
    /// Number of the first packet in `packets`.
    base: u64,
    /// Number of the oldest packet that is not resolved.
    resolved: u64,
    bytes_sent: u64,
    bytes_in_flight: u64,
    /// Number of items of unacknowledged packets. The first item of each packet does not count.
    extra_items: usize,
    /// Lower limit for the number of the oldest packet in flight. No packet with a lower number
    /// counts as in flight.
    oldest_open: u64,
    /// Number of non-eliciting packets that are neither acknowledged nor declared lost. Most of
    /// them contain only feedback.
    reports_open: u64,
    /// Reference time, see [`SentLog::on_report`]. Every packet sent up to this time could
    /// certainly have been delivered.
    reference: Time,
    /// Time of the last suspension of this process, or of the last change of the path. Round-trip
    /// times of packets sent earlier do not count.
    measures_from: Time,
    /// Reordering window, extended by the lateness of spuriously lost packets.
    reordering: ReorderingWindow,
    /// Base round-trip time at the newest report.
    base_rtt: Duration,
    /// Additional wait for late reports. After this wait, a packet that no report covers is
    /// declared lost. If a later report covers that packet, the wait becomes longer.
    report_reordering: ReorderingWindow,
    reported: ReportedRanges,
    /// Packet number below which all packets have been checked. The reordering window of these
    /// packets has expired. They were declared lost if a report listed them as missing.
    judged_until: u64,
    /// Reordering window at the newest report. `wait_max` is the maximum wait for a packet.
    window: Duration,
    wait_max: Duration,
    /// Moving average of the lost fraction of resolved packets.
    loss: f64,
    loss_samples: u64,
    /// Moving average of the lost fraction over fewer packets than `loss`.
    recent_loss: f64,
    pub(crate) packets_lost: u64,
    pub(crate) packets_late: u64,
    /// Time at which the sender last asked the peer to report again about some packets. The second
    /// field is the latest time for the answer.
    asked: Time,
    asked_until: Time,
    skipped_numbers: SkippedPacketNumbers,
    /// Number of the first packet on the present path. Earlier packets do not count as in flight,
    /// and are not used for measurements.
    path_from: u64,
    steps: StepBudget,
}

/// Weight of one packet in the moving average of losses. `RECENT_LOSS_GAIN` is the weight in the
/// average over fewer packets.
const LOSS_GAIN: f64 = 1.0 / 512.0;
const RECENT_LOSS_GAIN: f64 = 1.0 / 64.0;
/// Least reordering window. A shorter window would treat timer noise as loss.
const REORDER_WINDOW_MIN: Duration = Duration::from_micros(500);
/// Maximum wait for a late packet or report. If four round-trip times are longer, they are the
/// maximum.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Least additional wait before a packet that no report covers is declared lost.
const UNREPORTED_WAIT_MIN: Duration = Duration::from_millis(15);
/// Maximum number of unresolved packets that contain only feedback. At the highest rate, this is
/// one minute of such packets. An honest peer sends one report for every 16 of them.
const REPORTS_OPEN_MAX: u64 = 1 << 16;
/// Maximum number of frames in the log, without the first frame of each packet. Each frame needs 32
/// bytes.
///
/// The number is enough for the packets of half a second at 10 Gbit/s, even if none of these
/// packets is acknowledged.
const EXTRA_ITEMS_MAX: usize = 1 << 19;
/// Maximum number of packets in the log: twice the number of packets that one report covers.
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

    /// Returns the packet number of the next packet to send.
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// Returns the number of packets in the log.
    #[cfg(feature = "sim")]
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns the number of log entries that the sender has processed because of reports.
    #[cfg(feature = "sim")]
    pub(crate) fn entries_walked(&self) -> u64 {
        self.steps.taken
    }

    /// Returns the number of the oldest packet that is not resolved.
    pub(crate) fn resolved(&self) -> u64 {
        self.resolved
    }

    /// Returns the total size in bytes of the packets that are neither acknowledged nor declared
    /// lost.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Returns the moving average of the lost fraction of packets.
    pub(crate) fn loss(&self) -> f64 {
        self.loss
    }

    /// Returns the larger of two moving averages of the lost fraction. The averages cover different
    /// numbers of packets.
    pub(crate) fn recent_loss_max(&self) -> f64 {
        self.loss.max(self.recent_loss)
    }

    /// Returns the number of packets counted for the moving average of losses.
    pub(crate) fn loss_samples(&self) -> u64 {
        self.loss_samples
    }

    /// Returns the total bytes of all packets sent so far.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Returns the sending time of the oldest packet in flight. Returns `None` if no packet is in
    /// flight.
    pub(crate) fn oldest_in_flight(&self) -> Option<Time> {
        self.get(self.oldest_open).map(|sent| sent.time)
    }

    /// Skips the next packet number if [`SkippedPacketNumbers`] has chosen it.
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

    /// Adds a packet that was just sent. Its packet number is [`next_number`](Self::next_number).
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

    /// Handles a report: records arrivals, detects losses, and resolves packets in order.
    ///
    /// `base_rtt` determines the least reordering window. Congestion control ignores lost packets
    /// that were sent before `outage_end`, because the path delivered nothing during the outage.
    ///
    /// # Errors
    /// Returns an error if the report is malformed, or reports the arrival of packets that
    /// were never sent.
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
            // The budget does not permit this work, so the report counts as lost.
            return Ok(());
        }
        // When the peer wrote the report, all packets sent up to `judged` could have arrived. If a
        // report states a delay longer than the age of its front, the peer's clock has jumped.
        let waited = Duration::from_micros(report.delay_us);
        let judged = self.get(report.front.number).map(|sent| sent.time + waited);
        let judged = judged.filter(|judged| *judged <= now);
        if 2 * base_rtt < self.base_rtt {
            // Late packets took the longer route, and packets on the shorter route overtook them.
            // The path now uses only the shorter route.
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
        // No packet with a higher number than `largest` had arrived.
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
        // If any report had covered such a packet, the packet would not be in flight.
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

    /// Records that this process was suspended until `now`.
    pub(crate) fn on_sleep(&mut self, now: Time) {
        self.measures_from = now;
    }

    /// Records that all packets from now on take another path.
    pub(crate) fn begin_path(&mut self, now: Time) {
        self.measures_from = now;
        self.path_from = self.next_number();
        self.bytes_in_flight = 0;
        self.reordering = ReorderingWindow::default();
        self.report_reordering = ReorderingWindow::default();
    }

    /// Returns the times measured with the front packet of a report. Returns `None` if an earlier
    /// report covered that packet, or if round-trip times of that packet do not count.
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

    /// Removes packets that can no longer arrive: resolved packets that are older than `age`. If
    /// the log is full, resolved packets of any age are removed.
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

    /// Whether the number of unresolved packets, feedback packets or small frames is larger than an
    /// honest peer can cause.
    ///
    /// If so, the peer does not send the reports that it must send.
    pub(crate) fn is_overfull(&self) -> bool {
        self.next_number() - self.resolved > PACKETS_MAX
            || self.reports_open > REPORTS_OPEN_MAX
            || self.extra_items > EXTRA_ITEMS_MAX
    }

    /// Returns the reordering window: the time by which a packet may arrive late before it counts
    /// as lost.
    pub(crate) fn reorder_window(&self, base_rtt: Duration, now: Time) -> Duration {
        let learned = self.reordering.wait(now).min(wait_max(base_rtt));
        (base_rtt / 8).max(learned).max(REORDER_WINDOW_MIN)
    }

    /// Updates the number of the oldest packet in flight. The function visits each packet only
    /// once.
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

    /// Records that packet `number` has arrived. Returns false if the sender has skipped the
    /// number.
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
            // If the packet was declared lost because no report covered it, only the report was
            // late.
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
    /// If `is_unreported` is true, no report covered the packets. If it is false, a report listed
    /// them as missing.
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

    /// Declares packets lost if they were sent before `time` and a report listed them as missing.
    ///
    /// The report may have arrived before the reordering window of the packets expired.
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

    /// Resolves packets in the order of their numbers, up to the first packet in flight. Packets
    /// sent before `unreported_before` are declared lost if no report covered them.
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
            // A packet that no report covered may have arrived. If it counted as lost, lost reports
            // would count as lost packets.
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
