//! Detection of a lost peer: the connection asks for a sign of life, then sends only probes, and
//! finally abandons the peer.
//!
//! The input is the times of packets in both directions, suspensions of this process, and ICMP
//! errors. The output is the time of the next question, of the start of a silence, and of the end.
//! The packets sent meanwhile are in [`interest`](super::interest).

use std::time::Duration;

use crate::time::Time;

/// Additional time, beyond a round trip and a half without a report, after which a sender asks for
/// one.
const DOUBT_SLACK: Duration = Duration::from_millis(10);
/// Additional time, beyond a round trip, for the answer to the questions that an ICMP error causes.
/// On a slow and short path reports are up to 75 ms apart.
const DENIED_SLACK: Duration = Duration::from_millis(100);
/// Time without packets during a transfer after which a receiver asks.
const DOUBT_AFTER: Duration = Duration::from_millis(300);
/// Additional time, beyond four round trips, in which the peer must answer after a suspension
/// longer than the idle timeout.
const DOUBTFUL_MAX: Duration = Duration::from_secs(5);
/// Limits of the pause between probes, which is a round trip.
///
/// At first the pause is an eighth of a round trip, and at least the third value. That ends the
/// fourth value plus five round trips after the silence began.
const PROBE_PAUSE_MIN: Duration = Duration::from_millis(200);
const PROBE_PAUSE_MAX: Duration = Duration::from_millis(500);
const PROBE_PAUSE_FIRST: Duration = Duration::from_millis(25);
const OFTEN_UNTIL: Duration = Duration::from_secs(5);

/// Times at which packets were last exchanged with the peer, and their consequences.
#[derive(Debug)]
pub(super) struct Liveness {
    idle_timeout: Duration,
    keep_alive: Duration,
    last_heard: Time,
    last_sent: Time,
    /// Time at which a packet that the peer must report was last sent.
    last_eliciting: Time,
    /// Time at which a report last covered a new arrival.
    last_progress: Time,
    /// Time at which the peer was last asked, and the number of questions since a report last
    /// covered a new arrival.
    last_doubt: Time,
    doubts: u8,
    /// Time of the ICMP error that made us ask the peer, if no packet came since. Until one comes
    /// the questions are repeated, since each may be lost.
    denied_at: Option<Time>,
    /// Time until which more of a bulk stream is expected: slots of it have just arrived, and it
    /// has not ended.
    expects_until: Time,
    is_ping_wanted: bool,
    /// Start of the present silence. During it only probes are sent.
    silent_since: Option<Time>,
    next_probe: Time,
    suspension_recovery: Option<SuspensionRecovery>,
    /// Packets sent before this time were lost in an outage, and not to a full queue.
    outage_end: Time,
}

/// State after this process was suspended for longer than the peer waits.
#[derive(Debug, Clone, Copy)]
struct SuspensionRecovery {
    /// Time at which to abandon the peer.
    end: Time,
    unheard_since: Time,
}

impl Liveness {
    /// Creates the state after a packet of the peer. The peer is asked at once, so that its answer
    /// measures the path.
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

    /// Returns the number of questions since a report last covered a new arrival.
    pub(super) fn doubts(&self) -> u8 {
        self.doubts
    }

    // Events.

    /// Handles a packet of the peer, which ends a silence.
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

    /// Records that a datagram was sent, with `is_eliciting` if the peer must report it.
    pub(super) fn on_sent(&mut self, is_eliciting: bool, now: Time) {
        self.last_sent = now;
        if is_eliciting {
            self.last_eliciting = now;
        }
    }

    /// Records that a report has covered a new arrival or a loss.
    pub(super) fn on_progress(&mut self, now: Time) {
        self.last_progress = now;
        self.doubts = 0;
    }

    /// Records that packets sent until now were lost for another reason than a full queue.
    pub(super) fn on_outage_end(&mut self, now: Time) {
        self.outage_end = now;
    }

    /// Records that slots of an unfinished stream have arrived, and that more are expected until
    /// then.
    pub(super) fn expect_until(&mut self, until: Time) {
        self.expects_until = until;
    }

    /// Records that a stream has ended. The next slot of another stream renews the expectation.
    pub(super) fn expect_nothing(&mut self) {
        self.expects_until = Time::default();
    }

    /// Handles an ICMP error that reports our packets as undeliverable.
    ///
    /// Anyone can forge one, so it is only a reason to ask the peer at once. If the peer does not
    /// answer, either, the silence begins earlier than otherwise.
    pub(super) fn on_unreachable(&mut self, rtt: Duration, now: Time) {
        let is_due = self.denied_at.is_none() && now.since(self.last_doubt) > rtt / 2;
        if self.silent_since.is_none() && is_due {
            self.last_doubt = now;
            self.denied_at = Some(now);
            self.is_ping_wanted = true;
        }
    }

    /// Handles a suspension of this process for `asleep`, until now.
    ///
    /// The suspension is no silence of the peer. The peer is asked at once, and has the same time
    /// to answer as without the suspension. It may have abandoned the connection meanwhile, since
    /// it received no packet of ours. Packets that it sent before that may arrive late.
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

    /// Returns the time at which the peer counts as gone.
    pub(super) fn end(&self) -> Time {
        let idle = self.last_heard + self.idle_timeout;
        self.suspension_recovery
            .map_or(idle, |suspension_recovery| {
                suspension_recovery.end.min(idle)
            })
    }

    /// Returns the time since the last packet of the peer.
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

    /// Returns the time at which the lack of reports counts as a silence.
    ///
    /// The time is long after the due report on the `oldest` packet in flight. After an ICMP error
    /// it is soon after the due answer to the first question.
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

    /// Returns the time of the next probe. `None` outside of a silence.
    pub(super) fn probe_due(&self) -> Option<Time> {
        self.silent_since.map(|_| self.next_probe)
    }

    /// Records that a probe is sent now.
    pub(super) fn take_probe(&mut self, rtt: Duration, now: Time) {
        self.next_probe = now + self.probe_pause(rtt, now);
    }

    /// Returns the time between two probes.
    ///
    /// It is short at first: on a path with bursts of losses, each packet sent brings the end of
    /// the burst nearer.
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

    /// Returns the time at which to ask whether the peer is still there.
    ///
    /// A receiver that expects more has no packets in flight whose loss it would detect. A sender
    /// whose last packets were lost gets no report of that, since reports continue for only two
    /// round trips.
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

    /// Asks the peer.
    pub(super) fn doubt(&mut self, now: Time) {
        self.is_ping_wanted = true;
        self.last_doubt = now;
        // Slots in flight may be repeated once more.
        self.doubts = self.doubts.saturating_add(1);
    }

    /// Returns the time of the next ping.
    ///
    /// A wanted ping is due now, and one after an ICMP error soon. Otherwise it is due when the
    /// path needs a packet, so that NATs and the peer keep its state.
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

    /// Records that the ping is sent now.
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

    /// Returns the state after the first question.
    fn asked() -> Liveness {
        let mut liveness = Liveness::new(IDLE, KEEP_ALIVE, START);
        assert!(is_asked(&liveness), "a new path is to be measured");
        liveness.take_ping();
        liveness
    }

    /// Whether a ping is due before the path needs one.
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
