//! The cycle of a link that is alone: grow until queueing delay shows, then drain.
//!
//! A drain that empties the queue leads back to growth at the capacity that the drain began with. One that fails
//! may mean that the route is longer now ([`route`](super::route)). Otherwise it is repeated lower, and failures
//! add up to the verdict that others fill the queue ([`company`](super::company)).

use super::{
    Knee, Share,
    state::{Drain, Grow, State},
};

impl Knee {
    pub(super) fn enter_grow(&mut self, now_s: f64) {
        let packets = (self.window / self.packet).max(1.0);
        let mut gain_start = (GAIN_START / packets.sqrt()).max(GAIN_START_MIN);
        if self.is_gentle || self.share == Share::Background {
            gain_start *= GENTLE_START;
        }
        self.state = State::Grow(Grow {
            gain: gain_start,
            gain_start,
            rounds: 0,
        });
        self.begin_round(now_s);
    }

    pub(super) fn step_grow(&mut self, grow: Grow, app_limited: bool, now_s: f64) {
        if self.queue_shows() {
            self.queue.raise_threshold();
            let capacity = self.capacity();
            // What an earlier train showed may be the line before a change of route.
            self.capacity.trains.forget_newest();
            if self.can_test_route(capacity) && self.queue_is_sudden() {
                self.enter_route_test(capacity, self.queue.delay_s, 0, now_s);
            } else {
                self.enter_drain(capacity, 0, now_s);
            }
        } else if self.floor.is_exceeded() || self.must_cut_again() {
            self.cut_for_loss(now_s);
        } else if now_s - self.round_began_s >= self.round_s() {
            self.begin_round(now_s);
            if app_limited {
                self.state = State::Grow(Grow {
                    gain: grow.gain_start,
                    rounds: 0,
                    ..grow
                });
            } else {
                self.end_growing_round(grow);
            }
        }
    }

    /// Whether, soon after a cut for loss, losses show that the cut was not enough.
    fn must_cut_again(&self) -> bool {
        self.is_gentle && self.floor.has_surplus(SURPLUS_AFTER_CUT)
    }

    fn end_growing_round(&mut self, mut grow: Grow) {
        grow.rounds += 1;
        if grow.rounds == GENTLE_ROUNDS {
            self.forget_policer();
        }
        grow.gain = self.next_gain(&grow).min(GAIN_MAX);
        self.state = State::Grow(grow);
    }

    /// The gain of the next round, by where the window stands to the capacity of the last drain.
    fn next_gain(&self, grow: &Grow) -> f64 {
        let known = self.capacity.known * self.base_s();
        if self.is_gentle && grow.rounds < GENTLE_ROUNDS {
            grow.gain * GENTLE_GROWTH
        } else if self.window < FAR_BELOW_KNOWN * known {
            GAIN_FAR_BELOW
        } else if self.window < FAR_ABOVE_KNOWN * known {
            // A round may build a threshold's worth of queue, no more: its feedback comes a round later.
            let cap = (self.threshold_s() / self.base_s()).max(grow.gain_start);
            (grow.gain * GAIN_GROWTH).clamp(grow.gain_start, cap)
        } else {
            // Still no queue: the path passes more than it did.
            grow.gain * GAIN_GROWTH_ABOVE
        }
    }

    pub(super) fn enter_drain(&mut self, capacity: f64, tries: u32, now_s: f64) {
        if tries == 0 {
            if self.failed_drains.score < SCORE_OF_DOUBT {
                self.failed_drains.window_before = self.window;
            }
            self.capacity.known = capacity;
        }
        self.window = DRAINED * capacity * self.base_s();
        self.state = State::Drain(Drain {
            capacity,
            cut_s: now_s,
            queue_max_s: self.queue.delay_s,
            emptied_s: None,
            tries,
        });
        self.is_gentle = false;
        self.forget_policer();
        self.mark_cut(now_s);
    }

    pub(super) fn step_drain(&mut self, mut drain: Drain, app_limited: bool, now_s: f64) {
        drain.queue_max_s = drain.queue_max_s.max(self.queue.delay_s);
        if let Some(emptied_s) = drain.emptied_s {
            // Hold below capacity until the floor has been seen.
            let wanted = (FLOOR_PART * self.window / self.packet).min(FLOOR_PACKETS);
            let is_over = now_s - emptied_s > HOLD_ROUNDS * self.round_s();
            if self.floor.since_cut.packets >= wanted || is_over || app_limited {
                self.end_drain(&drain, now_s);
                return;
            }
        } else if self.queue_is_seen_empty() {
            drain.emptied_s = Some(now_s);
            self.queue.has_emptied = true;
        } else if self.queue.is_fresh && self.is_drain_overdue(&drain) {
            let tries = drain.tries + 1;
            // Who leaves everything to others tests once, since its drains fail for as long as others are there.
            let is_due = self.share == Share::Fair || tries == 1;
            if is_due && self.can_test_route(drain.capacity) {
                self.enter_route_test(drain.capacity, drain.queue_max_s, tries, now_s);
            } else {
                self.fail_drain(tries, now_s);
            }
            return;
        }
        self.state = State::Drain(drain);
    }

    /// The queue has emptied: the path is ours alone, and grows from what it passes.
    fn end_drain(&mut self, drain: &Drain, now_s: f64) {
        if !self.floor.is_exceeded() {
            self.floor.learn_expected();
        }
        if drain.tries == 0 {
            self.failed_drains.score = (self.failed_drains.score - SCORE_STEP_DOWN).max(0.0);
        }
        self.window = drain.capacity * self.base_s();
        self.enter_grow(now_s);
    }

    /// Whether the queue should be empty by now, had only this sender filled it.
    ///
    /// The cut is felt after a round trip and the queue that was there. From then on the queue shrinks by
    /// what the bottleneck passes beyond our rate.
    fn is_drain_overdue(&self, drain: &Drain) -> bool {
        let base_s = self.base_s();
        let queue_max_s = drain.queue_max_s;
        let ours = DRAINED * base_s / (base_s + queue_max_s);
        let spare = if self.is_short(drain.capacity) {
            SPARE_SHORT
        } else {
            1.0 - ours
        };
        let patience_s =
            PATIENCE * base_s.max(PATIENCE_BASE_MIN_S) + queue_max_s + queue_max_s / spare;
        // Judged by packets that crossed the path then; none do while the application is idle.
        self.queue.sent_s + base_s > drain.cut_s + patience_s
    }

    /// `tries` drains have not emptied the queue, and it is one: others fill it, if that goes on.
    pub(super) fn fail_drain(&mut self, tries: u32, now_s: f64) {
        self.failed_drains.score += SCORE_STEP_UP;
        if self.failed_drains.score >= SCORE_OF_COMPANY && self.share == Share::Fair {
            let window = self.failed_drains.window_before.max(self.window);
            self.enter_compete(window, now_s);
        } else {
            self.drain_again(tries, now_s);
        }
    }

    /// Drains once more, to less: by as much as the queue that is left exceeds the base RTT.
    fn drain_again(&mut self, tries: u32, now_s: f64) {
        let base_s = self.base_s();
        let measured = self.capacity();
        let target = self.window.min(measured * base_s)
            * (base_s / (base_s + self.queue.delay_s)).max(AGAIN_MIN);
        let capacity = target / base_s;
        self.enter_drain(capacity.max(self.packet / base_s), tries, now_s);
    }
}

/// Growth begins with this fraction a round, divided by the square root of the window in packets: the
/// larger of two equal links grows by the smaller fraction, which is what makes their shares converge.
const GAIN_START: f64 = 0.5;
/// ... and with this at least: from 4096 packets on the root would make growth take minutes.
const GAIN_START_MIN: f64 = 1.0 / 128.0;
/// Growth in a round at most: beyond it the queue of one round would be half of the bandwidth-delay
/// product before the first packet tells of it.
const GAIN_MAX: f64 = 0.5;
/// Near the capacity of the last drain the gain grows by this factor a round: the queue shows after eight
/// to ten rounds, of which the drain costs one at 5 % less.
const GAIN_GROWTH: f64 = 1.5;
/// Well above it the gain doubles each round, so that a multiple of the capacity is found in about ten rounds.
const GAIN_GROWTH_ABOVE: f64 = 2.0;
/// A window below this fraction of the last capacity has not come near the queue: a drain that was
/// repeated, or a cut for loss, made it so small.
const FAR_BELOW_KNOWN: f64 = 0.85;
/// Growth in a round from there.
const GAIN_FAR_BELOW: f64 = 0.25;
/// A window beyond this multiple of the last capacity would have built a queue of a quarter of the
/// bandwidth-delay product if the capacity had stayed.
const FAR_ABOVE_KNOWN: f64 = 1.25;
/// Growth begins with this part of the usual gain after a cut for loss, and where others come first.
const GENTLE_START: f64 = 0.5;
/// After a cut for loss the gain grows by this factor a round: the limit may drop without a queue and
/// give no other warning.
const GENTLE_GROWTH: f64 = 1.15;
/// Rounds of gentle growth without a signal: the limit that dropped is gone. By then the gain is 29 times
/// what it began with.
const GENTLE_ROUNDS: u32 = 25;
/// Soon after a cut for loss, this many losses beyond the floor and the tolerance show that the cut was
/// not enough.
const SURPLUS_AFTER_CUT: f64 = 16.0;

/// A drain goes to this fraction of the capacity: low enough that the queue empties, and one round in
/// eight to ten at 5 % less costs under 1 % of the rate.
const DRAINED: f64 = 0.95;
/// An empty queue is held until this part of a window, or [`FLOOR_PACKETS`], has shown the floor of loss;
/// or for [`HOLD_ROUNDS`]. Longer shows the floor better and costs rate.
const FLOOR_PART: f64 = 0.7;
const FLOOR_PACKETS: f64 = 200.0;
const HOLD_ROUNDS: f64 = 2.0;
/// The cut is felt after a base RTT; a quarter more is for the report and the sampling of the queue.
const PATIENCE: f64 = 1.25;
/// On a shorter path reports and timers take this long.
const PATIENCE_BASE_MIN_S: f64 = 0.010;
/// On a short path a drain is paced at 0.8 of the capacity, which leaves this fraction to drain by.
const SPARE_SHORT: f64 = 0.2;
/// A drain that is repeated goes down to this fraction of the window at most: a long queue is mostly
/// that of others, who do not make room for us.
const AGAIN_MIN: f64 = 0.5;

/// What a failed drain adds to the score of company, and what one that succeeds at the first try takes
/// away. The score rises while more than one drain in three fails.
const SCORE_STEP_UP: f64 = 1.0;
const SCORE_STEP_DOWN: f64 = 0.5;
/// From this score on a series of failed drains is under way, and the window before it stays remembered.
const SCORE_OF_DOUBT: f64 = 0.5;
/// From this score on others fill the queue: three failed drains in a row, or as many more as drains
/// that succeed among them outweigh.
const SCORE_OF_COMPANY: f64 = 3.0;
