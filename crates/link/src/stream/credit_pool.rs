//! Pool of credit from which each new stream receives its initial window.
//!
//! Input: the start and the end of streams. Output: the initial window of each new stream. Sender
//! and receiver compute the same window, so a new stream needs no credit frame before its first
//! packet.
//!
//! The share of a new stream is proportional to the square of the free fraction of the pool. After
//! n streams that never end, about 2 / n of the pool is free. The pool therefore never becomes
//! empty (a dynamic threshold, after Choudhury and Hahne, 1998). If shares were proportional to the
//! free fraction itself, the free fraction would fall exponentially.

use std::collections::VecDeque;

/// Slots that every bulk stream may use at once, even if little memory is free.
pub(crate) const WINDOW_FLOOR: u64 = 16;
/// Divisor of the full pool. The quotient is the share of the first stream.
///
/// The divisor must be at least 2. If the receiver's pool has more free slots than the sender's
/// copy, it still has more after each share. A sender that missed an announcement therefore never
/// assumes more credit than exists.
const FIRST_SHARE: u64 = 2;
/// Maximum size of the pool for peer-opened streams: 2^25 slots, 48 GB. Sender and receiver must
/// apply the same limit.
pub(crate) const POOL_MAX: u64 = 1 << 25;
/// Maximum number of opened streams that the sender stores until the next announcement arrives. A
/// receiver permits at most this number of open streams.
const OPENED_MAX: usize = 4096;

/// Pool of slots from which each new stream takes a share.
#[derive(Debug, Clone)]
pub(crate) struct CreditPool {
    size: u64,
    free: u64,
}

/// Initial window of a new stream, and the part of it that came from the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InitialWindow {
    /// Slots that the stream may use at its start.
    pub(crate) window: u64,
    /// Slots that the window took from the pool. They return to the pool when the stream ends or
    /// needs a smaller window.
    pub(crate) taken: u64,
}

impl CreditPool {
    /// Creates a full pool of `slots` slots. The number is rounded down to a multiple of
    /// [`FIRST_SHARE`], so that the size of the pool can be computed from the first share.
    pub(crate) fn new(slots: u64) -> Self {
        let size = slots / FIRST_SHARE * FIRST_SHARE;
        Self { size, free: size }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Returns the initial window that the next stream would receive, in slots.
    pub(crate) fn next_window(&self) -> u64 {
        WINDOW_FLOOR + self.next_share()
    }

    /// Removes the share of a new stream from the pool and returns its initial window.
    pub(crate) fn take(&mut self) -> InitialWindow {
        self.take_at_most(u64::MAX)
    }

    /// Removes the share of a new stream from the pool, but at most `most` slots. Returns the
    /// initial window of the stream.
    pub(crate) fn take_at_most(&mut self, most: u64) -> InitialWindow {
        let taken = self.next_share().min(most);
        self.free -= taken;
        InitialWindow {
            window: WINDOW_FLOOR + taken,
            taken,
        }
    }

    /// Returns the `taken` slots of a stream to the pool.
    pub(crate) fn give_back(&mut self, taken: u64) {
        self.free = (self.free + taken).min(self.size);
    }

    /// Returns the share of the next stream in slots. A share below [`WINDOW_FLOOR`] is rounded
    /// down to zero.
    fn next_share(&self) -> u64 {
        let free = u128::from(self.free);
        let size = u128::from(self.size.max(1));
        let share = (free * free / (size * u128::from(FIRST_SHARE))) as u64;
        if share < WINDOW_FLOOR { 0 } else { share }
    }
}

/// Receiver's pool for the streams that the peer opens. The receiver announces its free slots to
/// the peer.
#[derive(Debug)]
pub(crate) struct AnnouncedPool {
    pool: CreditPool,
    /// Slots that streams have returned, and that no announcement has included yet.
    returned: u64,
}

/// Content of an announcement: the number of free slots in the pool when stream `from` opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// First stream to which the announcement applies. The number counts the streams that the peer
    /// has opened.
    pub(crate) from: u32,
    /// Number of free slots in the pool just before stream `from` takes its share.
    pub(crate) free: u64,
}

impl AnnouncedPool {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            pool: CreditPool::new(size),
            returned: 0,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.pool.size()
    }

    pub(crate) fn free(&self) -> u64 {
        self.pool.free()
    }

    /// Returns the number of free slots in the pool, including returned slots that have not been
    /// announced yet.
    pub(crate) fn unused(&self) -> u64 {
        self.pool.free() + self.returned
    }

    pub(crate) fn take(&mut self) -> InitialWindow {
        self.pool.take()
    }

    pub(crate) fn give_back(&mut self, taken: u64) {
        self.returned += taken;
    }

    /// Makes the returned slots available for new streams if their number justifies an
    /// announcement, or if the pool is full again. If the result is true, the slots are available
    /// and an announcement is due.
    pub(crate) fn release_returned(&mut self) -> bool {
        let is_full_again = self.returned > 0 && self.unused() == self.pool.size();
        if self.returned <= self.pool.free() / 8 && !is_full_again {
            return false;
        }
        self.pool.give_back(std::mem::take(&mut self.returned));
        true
    }
}

/// Sender's copy of the peer's pool. It gives the initial credit of each stream that this side
/// opens.
#[derive(Debug)]
pub(crate) struct PeerPool {
    pool: CreditPool,
    /// First stream to which the last announcement applies.
    from: u32,
    /// Numbers of the bulk streams that this side has opened and that the last announcement does
    /// not include. The receiver may have sent the announcement before the first packets of these
    /// streams arrived.
    opened: VecDeque<u32>,
    /// Free slots in the newest announcement. `None` once the announcement has been applied, which
    /// happens when the next stream opens.
    announced: Option<u64>,
}

impl PeerPool {
    /// Creates the copy of a peer's pool. The first stream of the connection may use `first_window`
    /// slots.
    pub(crate) fn new(first_window: u64) -> Self {
        Self {
            pool: CreditPool::new(pool_size(first_window)),
            from: 0,
            opened: VecDeque::new(),
            announced: None,
        }
    }

    /// Returns the initial window of a new bulk stream, in slots. Removes the share of the stream
    /// from the pool. `count` is the number of the stream among all streams that this side opened.
    pub(crate) fn take(&mut self, count: u32) -> u64 {
        self.apply_announcement();
        if self.opened.len() == OPENED_MAX {
            self.opened.pop_front();
        }
        self.opened.push_back(count);
        self.pool.take().window
    }

    /// Stores an announcement from the peer. [`take`](Self::take) applies it when the next stream
    /// opens.
    pub(crate) fn announce(&mut self, announcement: Announcement) {
        if announcement.from < self.from {
            return;
        }
        self.from = announcement.from;
        while self
            .opened
            .front()
            .is_some_and(|count| *count < announcement.from)
        {
            self.opened.pop_front();
        }
        self.announced = Some(announcement.free.min(self.pool.size));
    }

    /// Sets the free slots to the announced number, and subtracts the shares of streams that the
    /// announcement does not include. A peer may send announcements at any rate, so this work is
    /// done only when a stream opens.
    fn apply_announcement(&mut self) {
        let Some(free) = self.announced.take() else {
            return;
        };
        self.pool.free = free;
        for _ in 0..self.opened.len() {
            if self.pool.take().taken == 0 {
                break;
            }
        }
    }
}

/// Returns the size in slots of a pool whose first stream may use `first_window` slots.
fn pool_size(first_window: u64) -> u64 {
    let first_share = first_window
        .saturating_sub(WINDOW_FLOOR)
        .min(POOL_MAX / FIRST_SHARE);
    first_share.saturating_mul(FIRST_SHARE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn streams_that_never_end_leave_a_part_in_proportion_to_one_over_their_number() {
        let mut pool = CreditPool::new(1 << 20);
        assert_eq!(pool.take().taken, 1 << 19);
        for streams in 2..=150_u64 {
            pool.take();
            let expected = 2.0 / (streams as f64 + 3.0);
            let free = pool.free() as f64 / pool.size() as f64;
            assert!(
                free > 0.6 * expected && free < 1.4 * expected,
                "{streams}: {free}"
            );
        }
        assert!(pool.next_window() > 2 * WINDOW_FLOOR);
    }

    proptest! {
        /// Opens, shrinks and ends streams, and delivers announcements late or never. The sender
        /// must never assume more credit for all streams together than the receiver's pool holds.
        #[test]
        fn what_the_sender_assumes_is_reserved_by_the_receiver(
            steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>()), 1..300),
            size in 100_u64..1 << 24,
        ) {
            let mut receiver = AnnouncedPool::new(size);
            let size = receiver.size();
            let mut sender = PeerPool::new(CreditPool::new(size).next_window());
            let (mut count, mut seen) = (0, 0);
            // Windows assumed by the sender, and shares held by the receiver.
            let mut assumed = Vec::new();
            let mut held = VecDeque::new();
            let mut announcements = Vec::new();
            for (step, index) in steps {
                match step {
                    0 => {
                        assumed.push(sender.take(count) - WINDOW_FLOOR);
                        count += 1;
                    }
                    1 if seen < count => {
                        let share = receiver.take();
                        prop_assert!(share.taken >= assumed[seen as usize], "stream {seen}");
                        held.push_back((seen, share.taken));
                        seen += 1;
                    }
                    2 if !held.is_empty() => {
                        // The stream ends, or needs less.
                        let at = index.index(held.len());
                        let (stream, taken): (u32, u64) = held.remove(at).expect("it is there");
                        let kept = if index.index(2) == 0 { 0 } else { taken / 3 };
                        let assumed = &mut assumed[stream as usize];
                        *assumed = kept.min(*assumed);
                        if kept > 0 {
                            held.push_back((stream, kept));
                        }
                        receiver.give_back(taken - kept);
                        if receiver.release_returned() {
                            announcements.push(Announcement { from: seen, free: receiver.free() });
                        }
                    }
                    3 if !announcements.is_empty() => {
                        // Any announcement may arrive, and all earlier announcements are lost.
                        let at = index.index(announcements.len());
                        sender.announce(announcements[at]);
                        announcements.drain(..=at);
                    }
                    _ => {}
                }
                sender.apply_announcement();
                let all = assumed.iter().sum::<u64>() + sender.pool.free();
                prop_assert!(all <= size, "{all} of {size}");
            }
        }
    }
}
