//! The pace at which the reader of a stream takes its bytes, and the window that drains in time at that pace.
//!
//! In: the slots that have been read, whether more wait to be read, and the time. Out: a window in slots.
//! The receiving half and the table decide how much of that window memory allows and the peer gets.

use std::{collections::VecDeque, time::Duration};

use super::SLOT_SIZE;

/// The pace of one reader.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Name of the reader.
    reader: u64,
    /// Time in which everything between the two applications must drain.
    limit_s: f64,
    /// One past the last slot that was read.
    read_to: u64,
    /// The first slots, which do not show the pace: buffers behind the reader swallow them.
    free: u64,
    /// Since when something waits to be read.
    waits_since_s: Option<f64>,
    /// The present span: its beginning, its length, and the slots read in it.
    began_s: f64,
    length_s: f64,
    slots: u64,
    /// Earlier spans, oldest first.
    spans: VecDeque<Span>,
    /// The pace that is assumed until the first span is over.
    expected_slots_per_s: f64,
    window: u64,
    /// The window while memory is short.
    window_least: u64,
}

/// The reader of a stream, as far as it is known when the stream begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    /// Streams with the same name have the same reader.
    pub(crate) name: u64,
    /// The reader's pace in its last stream.
    pub(crate) slots_per_s: Option<f64>,
    /// Round-trip time to the peer.
    pub(crate) rtt_s: f64,
}

/// The slots that were read in a short time.
#[derive(Debug, Clone, Copy)]
struct Span {
    length_s: f64,
    slots: u64,
    /// Something waited to be read all the time, so the reader could not have read more.
    is_behind: bool,
}

impl Pace {
    /// The pace of a reader that has read the slots below `read_to` before it was measured. A reader that is
    /// known from an earlier stream may be slower now, and gets half of the window of its earlier pace.
    pub(crate) fn new(reader: Reader, limit: Duration, read_to: u64, now_s: f64) -> Self {
        let expected_slots_per_s = reader.slots_per_s.unwrap_or(0.0) / 2.0;
        let drains_s = drains_s(limit.as_secs_f64(), reader.rtt_s);
        let window = (expected_slots_per_s * drains_s) as u64;
        let at_first = (limit.as_secs_f64() * FIRST_SLOTS_PER_S) as u64;
        Self {
            reader: reader.name,
            expected_slots_per_s,
            limit_s: limit.as_secs_f64(),
            read_to,
            free: SWALLOWED_SLOTS,
            waits_since_s: None,
            began_s: now_s,
            length_s: SPAN_MIN_S,
            slots: 0,
            spans: VecDeque::with_capacity(SPANS_MAX),
            window: window.clamp(at_first.max(WINDOW_AT_FIRST), WINDOW_MAX),
            window_least: WINDOW_AT_FIRST,
        }
    }

    /// Name and measured pace of the reader; `None` if the stream was too short to measure.
    pub(crate) fn shown(&self) -> Option<(u64, f64)> {
        let enough = self.free == 0 && self.read_to > 2 * WINDOW_AT_FIRST;
        enough.then(|| (self.reader, self.slots_per_s()))
    }

    /// Changes the time in which everything must drain.
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit_s = limit.as_secs_f64();
    }

    /// Takes in the state of the stream: slots below `read_to` have been read, and `is_readable` says whether
    /// more wait. To be called whenever one of the two changes.
    pub(crate) fn update(&mut self, read_to: u64, is_readable: bool, now_s: f64, rtt_s: f64) {
        self.advance(now_s, rtt_s);
        let read = read_to - self.read_to;
        let free = read.min(self.free);
        self.read_to = read_to;
        self.free -= free;
        self.slots += read - free;
        if is_readable {
            self.waits_since_s.get_or_insert(now_s);
        } else {
            self.waits_since_s = None;
        }
        if read > 0 && self.free == 0 {
            let slots_per_s = self.slots_per_s();
            let window = |time_s| ((slots_per_s * time_s) as u64).clamp(WINDOW_MIN, WINDOW_MAX);
            self.window = window(drains_s(self.limit_s, rtt_s));
            self.window_least = window(WINDOW_ROUND_TRIPS * rtt_s);
        }
    }

    /// Slots that the peer may have outstanding while all memory is free.
    #[cfg(test)]
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// The same while only the part `free` of the memory is free: less time is left for repeats.
    pub(crate) fn window_beside(&self, free: f64) -> u64 {
        let for_repeats = self.window.saturating_sub(self.window_least);
        self.window_least + (for_repeats as f64 * free.powi(4)) as u64
    }

    /// Bytes that may wait in each queue behind the link. The bound grows with the bytes that were read. If it
    /// grew with the window alone, each growth would swallow bytes, and the reader would seem fast.
    pub(crate) fn queue_bytes(&self) -> usize {
        let window = self.window.min(self.read_to.max(WINDOW_AT_FIRST));
        queue_bytes(window, READ_QUEUE_SHARE)
    }

    /// The rate at which the reader takes slots, by the last spans: the average over spans in which the reader
    /// was behind, and at least the highest rate of a span in which it kept up.
    fn slots_per_s(&self) -> f64 {
        let mut kept_up = if self.is_behind() {
            0.0
        } else {
            self.slots as f64 / self.length_s
        };
        if self.spans.is_empty() {
            kept_up = kept_up.max(self.expected_slots_per_s);
        }
        let (mut slots, mut time_s) = (0, 0.0);
        for span in &self.spans {
            if span.is_behind {
                slots += span.slots;
                time_s += span.length_s;
            } else {
                kept_up = kept_up.max(span.slots as f64 / span.length_s);
            }
        }
        let behind = if time_s > 0.0 {
            slots as f64 / time_s
        } else {
            0.0
        };
        kept_up.max(behind)
    }

    /// Whether something has waited to be read since the present span began.
    fn is_behind(&self) -> bool {
        self.free == 0 && self.waits_since_s.is_some_and(|s| s <= self.began_s)
    }

    /// Ends the spans that are over.
    fn advance(&mut self, now_s: f64, rtt_s: f64) {
        let length_s = (rtt_s / SPANS_PER_ROUND_TRIP).max(SPAN_MIN_S);
        while now_s >= self.began_s + self.length_s {
            if self.spans.len() == SPANS_MAX {
                self.spans.pop_front();
            }
            let span = Span {
                length_s: self.length_s,
                slots: std::mem::take(&mut self.slots),
                is_behind: self.is_behind(),
            };
            self.spans.push_back(span);
            // Whatever is older than all spans together would be dropped at once.
            let oldest = now_s - length_s * (SPANS_MAX + 1) as f64;
            self.began_s = (self.began_s + self.length_s).max(oldest);
            self.length_s = length_s;
        }
    }
}

/// The time in which the reader should take a whole window.
fn drains_s(limit_s: f64, rtt_s: f64) -> f64 {
    WINDOW_ROUND_TRIPS * rtt_s + (WINDOW_SHARE * limit_s).min(WINDOW_TIME_MAX_S)
}

/// Bytes that may wait in a queue that holds the `share`th part of a window in slots.
pub(crate) fn queue_bytes(window: u64, share: u64) -> usize {
    let bytes = (window / share).saturating_mul(SLOT_SIZE as u64);
    (bytes.min(QUEUE_BYTES_MAX as u64) as usize).max(QUEUE_BYTES_MIN)
}

/// The part of a window (one over this) that may wait in the link to be sent.
pub(crate) const UNSENT_SHARE: u64 = 8;
/// The part that may wait in the sending application's handle, and twice that in the kernel.
pub(crate) const SEND_QUEUE_SHARE: u64 = 16;
/// The part that may wait in the reading application's handle and in the pump's buffer each, and twice that in
/// the kernel: with the two above less than half a window.
const READ_QUEUE_SHARE: u64 = 32;
/// Such a queue holds this much at least, so that small windows do not make a system call for each packet, and
/// at most.
const QUEUE_BYTES_MIN: usize = 4 << 10;
const QUEUE_BYTES_MAX: usize = 512 << 10;
/// The window of a stream whose reader has not been measured yet, for each second of the limit: a reader of
/// 1 Mbit/s takes it in 0.63 of the limit.
const FIRST_SLOTS_PER_S: f64 = 54.2;
/// The least of such windows: 384 KiB, with a limit of 5 s. The last third of it shows whether the reader is fast.
pub(crate) const WINDOW_AT_FIRST: u64 = 271;
/// The least window: 23 KB, 2 s at 100 kbit/s.
const WINDOW_MIN: u64 = 16;
/// The largest window: more than any memory holds, and little enough for a frame to encode.
const WINDOW_MAX: u64 = 1 << 32;
/// The window holds the slots that the reader takes in this many round trips, so that the reader never waits
/// for credit ...
const WINDOW_ROUND_TRIPS: f64 = 1.5;
/// ... and those that it takes in this part of the limit, so that it does not wait for repeats either. The
/// rest of the limit is for queues and for buffers of the kernel.
const WINDOW_SHARE: f64 = 0.4;
/// No repeat takes longer than this, and a longer limit makes no such window wider.
const WINDOW_TIME_MAX_S: f64 = 2.0;
/// Slots that may vanish into buffers before the reader has read any: queues, the kernel's send buffer and the
/// receive buffer of the other end hold 256 KiB. With a lower bound, 64 KiB of receive buffer made a server
/// of 10 Mbit/s seem ten times as fast.
const SWALLOWED_SLOTS: u64 = 181;
/// The pace is judged over this many spans: 1.6 s, or two round trips and more. A fast reader takes a whole
/// window within one span, which lets the window grow sixteenfold in a round trip.
const SPANS_MAX: usize = 16;
const SPAN_MIN_S: f64 = 0.1;
const SPANS_PER_ROUND_TRIP: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Reader = Reader {
        name: 1,
        slots_per_s: None,
        rtt_s: 0.2,
    };

    #[test]
    fn a_reader_that_was_fast_begins_with_half_of_what_that_makes() {
        let known = Reader {
            slots_per_s: Some(20_000.0),
            ..UNKNOWN
        };
        let mut pace = Pace::new(known, Duration::from_secs(5), 0, 0.0);
        assert_eq!(pace.window(), 23_000, "2.3 s at 10,000 a second");
        // The first that it takes does not make it seem slow.
        pace.update(400, false, 0.02, 0.2);
        assert_eq!(pace.window(), 23_000);
        assert_eq!(pace.shown(), None);
        // It is slow now, which shows when a span is over.
        pace.update(600, true, 0.11, 0.2);
        pace.update(610, true, 0.6, 0.2);
        assert!(pace.window() < 6_000, "{}", pace.window());
        assert!(
            pace.shown()
                .is_some_and(|(name, rate)| name == 1 && rate < 3_000.0)
        );
    }

    #[test]
    fn a_longer_limit_has_more_under_way_before_the_pace_shows_and_no_more_after() {
        let windows = [5, 60].map(|limit_s| {
            let mut pace = Pace::new(UNKNOWN, Duration::from_secs(limit_s), 0, 0.0);
            let at_first = pace.window();
            pace.update(400, false, 0.05, 0.2);
            (at_first, pace.window())
        });
        assert_eq!(windows[0].0, WINDOW_AT_FIRST);
        assert_eq!(windows[1].0, 3252);
        assert_eq!(windows[0].1, windows[1].1);
    }

    /// A reader of so many slots a second, before whom something always waits. Returns its window after a time.
    fn window_of_slow(slots_per_s: f64, rtt_s: f64, time_s: f64) -> u64 {
        let mut pace = Pace::new(UNKNOWN, Duration::from_secs(5), 0, 0.0);
        let mut at_s = 0.0;
        while at_s < time_s {
            at_s += 0.01;
            pace.update((at_s * slots_per_s) as u64, true, at_s, rtt_s);
        }
        pace.window()
    }

    #[test]
    fn the_window_of_a_slow_reader_is_what_it_takes_in_the_time_for_it() {
        for rtt_s in [0.02, 0.2, 0.6] {
            for slots_per_s in [86.0, 863.0, 8630.0] {
                let ideal = slots_per_s * (1.5 * rtt_s + 2.0);
                let window = window_of_slow(slots_per_s, rtt_s, 30.0) as f64;
                assert!(
                    (window / ideal - 1.0).abs() < 0.1,
                    "{slots_per_s}/s, {rtt_s} s: {window}, not {ideal}"
                );
            }
        }
    }

    #[test]
    fn what_buffers_behind_the_reader_swallow_widens_nothing() {
        let mut pace = Pace::new(UNKNOWN, Duration::from_secs(5), 0, 0.0);
        pace.update(SWALLOWED_SLOTS - 1, true, 0.001, 0.6);
        assert_eq!(pace.window(), WINDOW_AT_FIRST);
        pace.update(SWALLOWED_SLOTS, true, 0.001, 0.6);
        assert_eq!(pace.window(), WINDOW_MIN);
        pace.update(WINDOW_AT_FIRST, false, 0.002, 0.6);
        assert!(pace.window() > 8 * WINDOW_AT_FIRST, "{}", pace.window());
    }

    #[test]
    fn a_reader_that_reads_in_lumps_is_judged_by_its_average() {
        let mut pace = Pace::new(UNKNOWN, Duration::from_secs(5), 0, 0.0);
        let mut read_to = 0;
        // 64 KiB each half second: 1 Mbit/s.
        for step in 1..200 {
            let at_s = f64::from(step) * 0.05;
            read_to += if step % 10 == 0 { 45 } else { 0 };
            pace.update(read_to, true, at_s, 0.02);
        }
        let ideal = 90.0 * 2.03;
        assert!((pace.window() as f64) < 1.4 * ideal, "{}", pace.window());
    }

    #[test]
    fn a_long_pause_costs_no_time_and_leaves_no_memory_of_what_was_before() {
        let mut pace = Pace::new(UNKNOWN, Duration::from_secs(5), 0, 0.0);
        pace.update(100_000, true, 0.5, 0.1);
        pace.update(100_001, true, 1e9, 0.1);
        assert_eq!(pace.window(), WINDOW_MIN);
        assert_eq!(pace.spans.len(), SPANS_MAX);
    }

    #[test]
    fn a_queue_never_holds_less_than_a_few_slots_or_more_than_half_a_mebibyte() {
        assert_eq!(queue_bytes(0, 8), 4 << 10);
        assert_eq!(queue_bytes(80, 8), 10 * SLOT_SIZE);
        assert_eq!(queue_bytes(u64::MAX, 8), 512 << 10);
    }
}
