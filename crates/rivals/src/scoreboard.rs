//! The sender's record of segments from the cumulative acknowledgement up to the newest
//! transmission. It detects losses with RACK (RFC 8985).

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::segment::{Ack, Range};

/// Record of the sent segments that have no cumulative acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    /// Number of the first segment without a cumulative acknowledgement.
    pub(crate) first: u64,
    segments: VecDeque<Sent>,
    /// Ranges of segments above `first` that have arrived. The key is the start of a range, and the
    /// value is its end.
    arrived: BTreeMap<u64, u64>,
    arrived_count: u64,
    /// Transmissions in the order of sending. Segments that have already arrived are included.
    order: VecDeque<(u64, u64)>,
    transmissions: u64,
    /// Numbers of lost segments, in the order in which they will be retransmitted.
    lost: VecDeque<u64>,
    in_flight: u64,
    /// Number of the newest transmission that has arrived.
    newest: u64,
    newest_rtt: Duration,
    saw_reordering: bool,
    newest_arrived: u64,
    rtt_min: Option<Duration>,
}

/// The last transmission of one segment.
#[derive(Debug, Clone, Copy)]
struct Sent {
    transmission: u64,
    at: Duration,
    /// Number of segments delivered before this transmission. `delivered_at` is the time of the
    /// last of these deliveries.
    delivered: u64,
    delivered_at: Duration,
    /// Sending time of the segment that was delivered last before this transmission.
    first_at: Duration,
    is_repeated: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Flying,
    Lost,
    Arrived,
}

/// Result of processing one acknowledgement.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct News {
    /// Number of segments that this acknowledgement reports as arrived for the first time.
    pub(crate) segments: u64,
    /// Newest transmission among the segments that arrived.
    pub(crate) newest: Option<Newest>,
}

/// Newest transmission among the segments that an acknowledgement reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    transmission: u64,
    pub(crate) at: Duration,
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Duration,
    pub(crate) first_at: Duration,
    pub(crate) is_repeated: bool,
}

/// State of the sender at the time of a transmission.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Past {
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Duration,
    pub(crate) first_at: Duration,
}

impl Scoreboard {
    /// Returns the number of the next new segment.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Returns the number of segments that are neither acknowledged nor lost.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Records the transmission of the next lost segment, or of a new segment if none is lost.
    /// Returns the number of the segment.
    pub(crate) fn transmit(&mut self, past: Past, now: Duration) -> u64 {
        self.transmissions += 1;
        let mut sent = Sent {
            transmission: self.transmissions,
            at: now,
            delivered: past.delivered,
            delivered_at: past.delivered_at,
            first_at: past.first_at,
            is_repeated: false,
            state: State::Flying,
        };
        let number = match self.next_lost() {
            Some(number) => {
                self.lost.pop_front();
                sent.is_repeated = true;
                let index = (number - self.first) as usize;
                self.segments[index] = sent;
                number
            }
            None => {
                self.segments.push_back(sent);
                self.next() - 1
            }
        };
        self.order.push_back((self.transmissions, number));
        self.in_flight += 1;
        number
    }

    fn next_lost(&mut self) -> Option<u64> {
        while let Some(number) = self.lost.front().copied() {
            let is_lost = number >= self.first
                && self.segments[(number - self.first) as usize].state == State::Lost;
            if is_lost {
                return Some(number);
            }
            self.lost.pop_front();
        }
        None
    }

    /// Processes an acknowledgement.
    pub(crate) fn acknowledge(&mut self, ack: &Ack, now: Duration) -> News {
        let mut news = News::default();
        for range in ack.ranges {
            self.arrive(range, &mut news);
        }
        while self.first < ack.cumulative && !self.segments.is_empty() {
            self.mark(self.first, &mut news);
            self.segments.pop_front();
            self.arrived_count -= 1;
            self.first += 1;
        }
        while let Some((start, end)) = self.arrived.first_key_value()
            && *start < self.first
        {
            let (start, end) = (*start, *end);
            self.arrived.remove(&start);
            if end > self.first {
                self.arrived.insert(self.first, end);
            }
        }
        if let Some(newest) = news.newest {
            let rtt = now.saturating_sub(newest.at);
            // The acknowledgement of a retransmitted segment may belong to the first transmission.
            let is_plausible = !newest.is_repeated || self.rtt_min.is_none_or(|least| rtt >= least);
            if is_plausible {
                self.rtt_min = Some(self.rtt_min.map_or(rtt, |least| least.min(rtt)));
                if newest.transmission > self.newest {
                    self.newest = newest.transmission;
                    self.newest_rtt = rtt;
                }
            }
        }
        news
    }

    /// Records the segments of `range` that have not been recorded as arrived.
    fn arrive(&mut self, range: Range, news: &mut News) {
        let mut at = range.start.max(self.first);
        let end = range.end.min(self.next());
        if at >= end {
            return;
        }
        let mut start = at;
        let mut whole_end = end;
        if let Some((known_start, known_end)) = self.arrived.range(..=at).next_back()
            && *known_end >= at
        {
            if *known_end >= end {
                return;
            }
            start = *known_start;
            at = *known_end;
        }
        while at < end {
            let known = self
                .arrived
                .range(at..)
                .next()
                .map(|(from, to)| (*from, *to));
            let gap_end = known.map_or(end, |(from, _)| from.min(end));
            for number in at..gap_end {
                self.mark(number, news);
            }
            at = gap_end;
            if let Some((from, to)) = known
                && from <= end
            {
                self.arrived.remove(&from);
                at = at.max(to);
                whole_end = whole_end.max(to);
            }
        }
        if let Some(to) = self.arrived.remove(&whole_end) {
            whole_end = to;
        }
        self.arrived.insert(start, whole_end);
    }

    fn mark(&mut self, number: u64, news: &mut News) {
        let sent = &mut self.segments[(number - self.first) as usize];
        match sent.state {
            State::Arrived => return,
            State::Flying => self.in_flight -= 1,
            State::Lost => {}
        }
        sent.state = State::Arrived;
        self.arrived_count += 1;
        if number < self.newest_arrived && !sent.is_repeated {
            self.saw_reordering = true;
        }
        self.newest_arrived = self.newest_arrived.max(number);
        news.segments += 1;
        if news
            .newest
            .is_none_or(|newest| newest.transmission < sent.transmission)
        {
            news.newest = Some(Newest {
                transmission: sent.transmission,
                at: sent.at,
                delivered: sent.delivered,
                delivered_at: sent.delivered_at,
                first_at: sent.first_at,
                is_repeated: sent.is_repeated,
            });
        }
    }

    /// Marks the segments that count as lost at time `now`. Returns their number, and the time of
    /// the next check.
    pub(crate) fn find_lost(
        &mut self,
        is_recovering: bool,
        now: Duration,
    ) -> (u64, Option<Duration>) {
        let is_sure = is_recovering || self.arrived_count >= DUPLICATES;
        let window = if is_sure && !self.saw_reordering {
            Duration::ZERO
        } else {
            self.rtt_min.unwrap_or_default() / 4
        };
        let mut count = 0;
        while let Some((transmission, number)) = self.order.front().copied() {
            if number < self.first {
                self.order.pop_front();
                continue;
            }
            let sent = &mut self.segments[(number - self.first) as usize];
            if sent.transmission != transmission || sent.state != State::Flying {
                self.order.pop_front();
                continue;
            }
            if transmission >= self.newest {
                return (count, None);
            }
            let due = sent.at + self.newest_rtt + window;
            if due > now {
                return (count, Some(due));
            }
            sent.state = State::Lost;
            self.in_flight -= 1;
            self.lost.push_back(number);
            self.order.pop_front();
            count += 1;
        }
        (count, None)
    }

    /// Marks all segments in flight as lost after a timeout, starting with the oldest segment.
    pub(crate) fn lose_all(&mut self) {
        self.lost.clear();
        for (index, sent) in self.segments.iter_mut().enumerate() {
            if sent.state != State::Arrived {
                sent.state = State::Lost;
                self.lost.push_back(self.first + index as u64);
            }
        }
        self.in_flight = 0;
        self.order.clear();
    }
}

/// Number of segments above a gap. If this number of segments has arrived, a loss is likely (RFC
/// 8985 section 6.2, RFC 5681).
const DUPLICATES: u64 = 3;
