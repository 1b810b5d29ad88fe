//! Detection of a lost peer. The connection first requests a packet with pings, then sends only
//! probes, and finally ends.
//!
//! Input: the times of packets in both directions, suspensions of this process, and ICMP errors.
//! Output: the times of the next ping, of the start of a silence, and of the end of the connection.
//! A silence is a period without reports in which only probes are sent. The packets themselves are
//! sent by [`interest`](super::interest).

use std::time::Duration;

use crate::time::Time;

/// Constant term of a time limit for senders. If a sender receives no report for one and a half
/// round trips plus this time, it requests a report with a ping.
const DOUBT_SLACK: Duration = Duration::from_millis(10);
/// Constant term of the time limit after an ICMP error. The peer must reply to a ping within one
/// round trip plus this time. The time is long because reports may be up to 75 ms apart on a slow
/// and short path.
const DENIED_SLACK: Duration = Duration::from_millis(100);
/// Minimum time without packets before a receiver sends a ping during a transfer. If one and a half
/// round trips are longer, the receiver waits for one and a half round trips.
const DOUBT_AFTER: Duration = Duration::from_millis(300);
/// Constant term of a time limit. After this process was suspended for longer than the idle
/// timeout, the peer must reply within this time plus four round trips.
const DOUBTFUL_MAX: Duration = Duration::from_secs(5);
/// Minimum and maximum of the pause between two probes. The normal pause is one round trip.
///
/// A silence begins with a period of [`OFTEN_UNTIL`] plus five round trips. In this period, the
/// pause is an eighth of a round trip, but at least [`PROBE_PAUSE_FIRST`].
const PROBE_PAUSE_MIN: Duration = Duration::from_millis(200);
const PROBE_PAUSE_MAX: Duration = Duration::from_millis(500);
const PROBE_PAUSE_FIRST: Duration = Duration::from_millis(25);
const OFTEN_UNTIL: Duration = Duration::from_secs(5);

/// Times of the last packets in both directions, and the deadlines that follow from these times.
#[derive(Debug)]
pub(super) struct Liveness {
    idle_timeout: Duration,
    keep_alive: Duration,
    last_heard: Time,
    last_sent: Time,
    /// Time at which this side last sent a packet that the peer must report.
    last_eliciting: Time,
    /// Time at which a report last showed the arrival or the loss of a packet.
    last_progress: Time,
    /// Time of the last ping that was sent because a packet was overdue.
    last_doubt: Time,
    /// Number of pings that were sent because packets were overdue. Zero once a report shows the
    /// arrival or the loss of a packet.
    doubts: u8,
    /// Time of an ICMP error that caused a ping. `None` once a packet has arrived after the error.
    /// Until then pings are repeated, because each ping may be lost.
    denied_at: Option<Time>,
    /// Time until which more slots of a bulk stream are expected. It is set when slots of an
    /// unfinished stream arrive.
    expects_until: Time,
    is_ping_wanted: bool,
    /// Start of the present silence, during which only probes are sent. `None` outside a silence.
    silent_since: Option<Time>,
    next_probe: Time,
    suspension_recovery: Option<SuspensionRecovery>,
    /// End of the last outage. If packets sent before this time are lost, the cause is the outage,
    /// not a full queue.
    outage_end: Time,
}

/// State after a suspension of this process. It exists if this side has sent no packet, or has
/// received no packet, for at least the idle timeout.
#[derive(Debug, Clone, Copy)]
struct SuspensionRecovery {
    /// Time at which the connection ends, unless a packet of the peer arrives earlier.
    end: Time,
    unheard_since: Time,
}

impl Liveness {
    /// Creates the state after a packet of the peer has arrived. A ping is sent at once, so that
    /// the reply measures the path.
    pub(super) fn new(idle_timeout: Duration, keep_alive: Duration, now: Time) -> Self {
        Self {
            idle_timeout,
            keep_alive,
            last_heard: now,
            last_sent: now,
            last_eliciting: now,
            last_progress: now,
            last_doubt: Time::default(),
            doubts: 0,
            denied_at: None,
            expects_until: Time::default(),
            is_ping_wanted: true,
            silent_since: None,
            next_probe: now,
            suspension_recovery: None,
            outage_end: Time::default(),
        }
    }

    pub(super) fn set_keep_alive(&mut self, every: Duration) {
        self.keep_alive = every;
    }

    pub(super) fn last_heard(&self) -> Time {
        self.last_heard
    }

    pub(super) fn last_progress(&self) -> Time {
        self.last_progress
    }

    pub(super) fn silent_since(&self) -> Option<Time> {
        self.silent_since
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.suspension_recovery.is_some()
    }

    pub(super) fn outage_end(&self) -> Time {
        self.outage_end
    }

    /// Returns the number of pings that were sent because packets were overdue. The count restarts
    /// at zero when a report shows the arrival or the loss of a packet.
    pub(super) fn doubts(&self) -> u8 {
        self.doubts
    }

    // Events.

    /// Records a packet from the peer. A silence ends with this packet.
    pub(super) fn on_heard(&mut self, now: Time) {
        self.last_heard = now;
        self.denied_at = None;
        if self.silent_since.take().is_some() {
            self.suspension_recovery = None;
            self.outage_end = now;
            self.last_progress = now;
            self.is_ping_wanted = true;
        }
    }

    /// Records that a datagram was sent. `is_eliciting` states whether the peer must report it.
    pub(super) fn on_sent(&mut self, is_eliciting: bool, now: Time) {
        self.last_sent = now;
        if is_eliciting {
            self.last_eliciting = now;
        }
    }

    /// Records that a report showed the arrival or the loss of a packet.
    pub(super) fn on_progress(&mut self, now: Time) {
        self.last_progress = now;
        self.doubts = 0;
    }

    /// Records the end of an outage. If packets sent until now are lost, the cause is the outage,
    /// not a full queue.
    pub(super) fn on_outage_end(&mut self, now: Time) {
        self.outage_end = now;
    }

    /// Records that slots of an unfinished stream have arrived, and that more slots are expected
    /// before `until`.
    pub(super) fn expect_until(&mut self, until: Time) {
        self.expects_until = until;
    }

    /// Records that a stream has ended, so no more slots are expected. The next slot of another
    /// stream starts a new expectation.
    pub(super) fn expect_nothing(&mut self) {
        self.expects_until = Time::default();
    }

    /// Handles an ICMP error which states that this side's packets are undeliverable.
    ///
    /// Anyone can forge such an error, so its only effect is an immediate ping. If the peer does
    /// not reply to the ping, this side begins sooner to send only probes.
    pub(super) fn on_unreachable(&mut self, rtt: Duration, now: Time) {
        let is_due = self.denied_at.is_none() && now.since(self.last_doubt) > rtt / 2;
        if self.silent_since.is_none() && is_due {
            self.last_doubt = now;
            self.denied_at = Some(now);
            self.is_ping_wanted = true;
        }
    }

    /// Handles a suspension of this process that lasted `asleep` and has just ended.
    ///
    /// The time of the suspension does not count as a silence of the peer. This side sends a ping
    /// at once, and the peer has the same time to reply as without the suspension. During the
    /// suspension the peer received no packets, so it may have ended the connection. Packets that
    /// the peer sent earlier may still arrive.
    pub(super) fn on_sleep(&mut self, asleep: Duration, rtt: Duration, now: Time) {
        if now.since(self.last_heard.min(self.last_sent)) >= self.idle_timeout {
            self.suspension_recovery.get_or_insert(SuspensionRecovery {
                end: now + DOUBTFUL_MAX + 4 * rtt,
                unheard_since: self.last_heard,
            });
        }
        self.last_heard = now.min(self.last_heard + asleep);
        self.denied_at = None;
        let since = self.silent_since.map_or(now, |since| since + asleep);
        self.silent_since = Some(now.min(since));
        self.next_probe = now;
    }

    // End.

    /// Returns the time at which the connection ends, unless a packet of the peer arrives earlier.
    pub(super) fn end(&self) -> Time {
        let idle = self.last_heard + self.idle_timeout;
        self.suspension_recovery
            .map_or(idle, |suspension_recovery| {
                suspension_recovery.end.min(idle)
            })
    }

    /// Returns the time since the last packet from the peer.
    pub(super) fn silence(&self, now: Time) -> Duration {
        let suspension_recovery = self
            .suspension_recovery
            .filter(|suspension_recovery| suspension_recovery.end <= now);
        now.since(
            suspension_recovery.map_or(self.last_heard, |suspension_recovery| {
                suspension_recovery.unheard_since
            }),
        )
    }

    // Silence.

    /// Returns the time at which a silence begins, unless a report arrives earlier.
    ///
    /// `oldest` is the time at which the oldest packet in flight was sent. A silence begins long
    /// after the report about that packet was due. After an ICMP error, a silence begins soon after
    /// the reply to the first ping was due.
    pub(super) fn silence_due(
        &self,
        oldest: Time,
        rtt: Duration,
        reorder_window: Duration,
    ) -> Time {
        let timeout = rtt * 7 / 2 + 2 * reorder_window + Duration::from_millis(150);
        let unreported = oldest.max(self.last_progress) + timeout;
        let denied = self.denied_at.map(|at| at + rtt + DENIED_SLACK);
        denied.map_or(unreported, |denied| denied.min(unreported))
    }

    pub(super) fn fall_silent(&mut self, now: Time) {
        self.silent_since = Some(self.last_heard);
        self.denied_at = None;
        self.next_probe = now;
    }

    /// Returns the time of the next probe, or `None` outside a silence.
    pub(super) fn probe_due(&self) -> Option<Time> {
        self.silent_since.map(|_| self.next_probe)
    }

    /// Records that a probe is sent now, and sets the time of the next probe.
    pub(super) fn take_probe(&mut self, rtt: Duration, now: Time) {
        self.next_probe = now + self.probe_pause(rtt, now);
    }

    /// Returns the time between two probes.
    ///
    /// The time is short at the start of a silence. On some paths, a burst of losses ends only
    /// after a certain number of packets, however long their transmission takes. On such a path,
    /// each probe brings the end of the burst closer.
    fn probe_pause(&self, rtt: Duration, now: Time) -> Duration {
        let pause = rtt.clamp(PROBE_PAUSE_MIN, PROBE_PAUSE_MAX);
        match self.silent_since {
            Some(since) if now.since(since) < OFTEN_UNTIL + 5 * rtt => {
                (rtt / 8).clamp(PROBE_PAUSE_FIRST, pause)
            }
            _ => pause,
        }
    }

    // Questions.

    /// Returns the time at which to check with a ping whether the peer still responds.
    ///
    /// A receiver that expects more slots has no packets in flight, so it would detect no loss. The
    /// peer stops its reports two round trips after the last arrival. A sender whose last packets
    /// were lost may therefore receive no report about that loss.
    pub(super) fn doubt_due(&self, oldest: Option<Time>, rtt: Duration) -> Option<Time> {
        let heard = self.last_heard.max(self.last_eliciting);
        let due = heard + DOUBT_AFTER.max(rtt * 3 / 2);
        let as_receiver = (due < self.expects_until).then_some(due);
        let as_sender = oldest.map(|oldest| {
            let since = oldest.max(self.last_progress).max(self.last_eliciting);
            since + rtt * 3 / 2 + DOUBT_SLACK
        });
        let due = as_receiver.into_iter().chain(as_sender).min()?;
        Some(due.max(self.last_doubt + (rtt / 2).max(DOUBT_SLACK)))
    }

    /// Requests a ping because packets from the peer are overdue.
    pub(super) fn doubt(&mut self, now: Time) {
        self.is_ping_wanted = true;
        self.last_doubt = now;
        // Each ping permits one more copy of each slot in flight.
        self.doubts = self.doubts.saturating_add(1);
    }

    /// Returns the time of the next ping.
    ///
    /// A requested ping is due now. After an ICMP error the next ping is due soon. Otherwise a ping
    /// is due when the keep-alive interval ends, so that NATs and the peer keep their state.
    pub(super) fn ping_due(&self, rtt: Duration, now: Time) -> Time {
        if self.is_ping_wanted {
            return now;
        }
        let again = self.last_eliciting + (rtt / 8).max(PROBE_PAUSE_FIRST);
        let again = self.denied_at.map_or(Time::NEVER, |_| again);
        again.min(self.last_sent + self.keep_alive)
    }

    pub(super) fn want_ping(&mut self) {
        self.is_ping_wanted = true;
    }

    /// Records that the requested ping is sent now.
    pub(super) fn take_ping(&mut self) {
        self.is_ping_wanted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const IDLE: Duration = Duration::from_secs(60);
    const KEEP_ALIVE: Duration = Duration::from_secs(5);
    const START: Time = Time(1_000_000_000);

    /// Returns the state after the first ping has been sent.
    fn asked() -> Liveness {
        let mut liveness = Liveness::new(IDLE, KEEP_ALIVE, START);
        assert!(is_asked(&liveness), "a new path is to be measured");
        liveness.take_ping();
        liveness
    }

    /// Whether a ping is due at once, before the keep-alive interval ends.
    fn is_asked(liveness: &Liveness) -> bool {
        liveness.ping_due(RTT, START) == START
    }

    #[test]
    fn an_idle_path_gets_a_packet_now_and_then() {
        let mut liveness = asked();
        assert_eq!(liveness.doubt_due(None, RTT), None);
        assert_eq!(liveness.ping_due(RTT, START), START + KEEP_ALIVE);
        liveness.want_ping();
        assert_eq!(liveness.ping_due(RTT, START), START, "at once");
        liveness.take_ping();
        liveness.on_sent(true, START + KEEP_ALIVE);
        assert_eq!(liveness.ping_due(RTT, START), START + 2 * KEEP_ALIVE);
    }

    #[test]
    fn a_sender_without_reports_asks_again_and_again_until_one_comes() {
        let mut liveness = asked();
        liveness.on_sent(true, START);
        let mut now = START;
        for doubts in 1..=3 {
            let due = liveness.doubt_due(Some(START), RTT);
            let due = due.expect("a packet is in flight");
            assert_eq!(due.since(now), RTT * 3 / 2 + DOUBT_SLACK);
            now = due;
            liveness.doubt(now);
            assert!(is_asked(&liveness));
            assert_eq!(liveness.doubts(), doubts);
            let again = liveness.doubt_due(Some(START), RTT);
            assert!(
                again.is_some_and(|again| again > now),
                "it is not due twice"
            );
            liveness.take_ping();
            liveness.on_sent(true, now);
        }
        liveness.on_progress(now);
        assert_eq!(liveness.doubts(), 0);
    }

    #[test]
    fn a_receiver_asks_in_the_midst_of_a_stream_only() {
        let mut liveness = asked();
        liveness.expect_until(START + Duration::from_secs(5));
        assert_eq!(liveness.doubt_due(None, RTT), Some(START + DOUBT_AFTER));
        liveness.expect_nothing();
        assert_eq!(liveness.doubt_due(None, RTT), None);
    }

    #[test]
    fn a_doubt_is_never_due_twice_at_once_however_short_the_path() {
        let mut liveness = asked();
        let now = START + Duration::from_secs(1);
        liveness.doubt(now);
        let again = liveness.doubt_due(Some(START), Duration::ZERO);
        assert_eq!(again, Some(now + DOUBT_SLACK));
    }

    #[test]
    fn in_silence_probes_go_often_at_first_and_then_seldom() {
        let mut liveness = asked();
        assert_eq!(liveness.probe_due(), None);
        let begun = liveness.silence_due(START, RTT, Duration::ZERO);
        assert_eq!(begun.since(START), Duration::from_millis(500));
        liveness.fall_silent(begun);
        assert_eq!(liveness.silent_since(), Some(START));
        assert_eq!(liveness.probe_due(), Some(begun), "the first one at once");
        liveness.take_probe(RTT, begun);
        assert_eq!(liveness.probe_due(), Some(begun + PROBE_PAUSE_FIRST));
        let later = START + OFTEN_UNTIL + 5 * RTT;
        liveness.take_probe(RTT, later);
        assert_eq!(liveness.probe_due(), Some(later + PROBE_PAUSE_MIN));
    }

    #[test]
    fn whatever_comes_ends_a_silence_and_what_was_lost_in_it_does_not_count() {
        let mut liveness = asked();
        liveness.fall_silent(START);
        let now = START + Duration::from_secs(9);
        liveness.on_heard(now);
        assert_eq!(
            (liveness.silent_since(), liveness.probe_due()),
            (None, None)
        );
        assert_eq!(liveness.outage_end(), now);
        assert_eq!(liveness.end(), now + IDLE);
        assert!(is_asked(&liveness), "the path is to be measured again");
    }

    #[test]
    fn time_in_which_we_slept_is_no_silence_of_the_peer() {
        let mut liveness = asked();
        let now = START + IDLE / 2;
        liveness.on_sleep(IDLE / 2, RTT, now);
        assert!(!liveness.is_doubtful());
        assert_eq!(liveness.end(), now + IDLE);
        assert_eq!(liveness.probe_due(), Some(now));
    }

    #[test]
    fn after_a_sleep_longer_than_the_idle_timeout_the_peer_has_little_time() {
        let mut liveness = asked();
        let now = START + 2 * IDLE;
        liveness.on_sleep(2 * IDLE, RTT, now);
        assert!(liveness.is_doubtful());
        let end = liveness.end();
        assert_eq!(end, now + DOUBTFUL_MAX + 4 * RTT);
        assert_eq!(liveness.silence(end), end.since(START));
        liveness.on_heard(now + RTT);
        assert!(!liveness.is_doubtful());
    }

    #[test]
    fn what_the_peer_said_while_we_slept_does_not_show_that_it_is_still_there() {
        let mut liveness = asked();
        liveness.on_sent(true, START);
        liveness.on_heard(START + IDLE);
        let now = START + IDLE + IDLE / 2;
        liveness.on_sleep(IDLE + IDLE / 2, RTT, now);
        assert!(liveness.is_doubtful());
        assert_eq!(liveness.last_heard(), now, "not later than now");
    }

    #[test]
    fn an_icmp_error_is_a_reason_to_ask_until_something_comes() {
        let mut liveness = asked();
        let denied = START + RTT;
        liveness.on_unreachable(RTT, denied);
        assert!(is_asked(&liveness));
        liveness.take_ping();
        liveness.on_sent(true, denied);
        liveness.on_unreachable(RTT, denied + RTT);
        assert!(!is_asked(&liveness), "more errors are no more questions");
        let again = liveness.ping_due(RTT, denied);
        assert_eq!(again, denied + PROBE_PAUSE_FIRST);
        liveness.on_heard(denied + RTT);
        assert_eq!(liveness.ping_due(RTT, denied), denied + KEEP_ALIVE);
        assert_eq!(liveness.silent_since(), None);
        liveness.on_unreachable(RTT, denied + RTT / 4);
        assert!(!is_asked(&liveness), "asked a quarter of a round trip ago");
    }

    #[test]
    fn an_icmp_error_and_no_answer_to_the_questions_begin_the_silence() {
        let mut liveness = asked();
        let denied = START + RTT;
        let unreported = liveness.silence_due(START, RTT, Duration::ZERO);
        liveness.on_unreachable(RTT, denied);
        let due = liveness.silence_due(START, RTT, Duration::ZERO);
        assert_eq!(due, denied + RTT + DENIED_SLACK);
        assert!(due < unreported);
        liveness.on_unreachable(RTT, denied + RTT);
        let again = liveness.silence_due(START, RTT, Duration::ZERO);
        assert_eq!(again, due, "more errors are no more time");
        liveness.on_heard(denied + RTT);
        let due = liveness.silence_due(START, RTT, Duration::ZERO);
        assert_eq!(due, unreported, "the peer has answered");
    }
}
