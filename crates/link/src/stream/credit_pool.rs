//! Initial credit of new streams: a pool of which each stream takes a share.
//!
//! The input is streams that begin and end. The output is the initial window of a new stream.
//! Sender and receiver run the same arithmetic, so a new stream needs no credit frame before its
//! first packet.
//!
//! A share falls with the square of the free part of the pool. After n streams that never end,
//! about 2 / n of the pool is free. The pool therefore never runs dry (a dynamic threshold, after
//! Choudhury and Hahne, 1998). With shares in proportion to the free part, the free part would fall
//! exponentially.

use std::collections::VecDeque;

/// Slots that every bulk stream may use at once, even if little memory is left.
pub(crate) const WINDOW_FLOOR: u64 = 16;
/// Divisor of a full pool that gives the share of the first stream.
///
/// With a larger share, a fuller pool would have less left after the next stream. A sender that
/// missed an announcement would then assume too much.
const FIRST_SHARE: u64 = 2;
/// Largest pool of peer-opened streams in slots, 48 GB. Sender and receiver must apply the same
/// limit.
pub(crate) const POOL_MAX: u64 = 1 << 25;
/// Maximum number of streams stored until the receiver's next announcement: as many as a receiver
/// permits at once.
const OPENED_MAX: usize = 4096;

/// Slots that new streams share.
#[derive(Debug, Clone)]
pub(crate) struct CreditPool {
    size: u64,
    free: u64,
}

/// Initial window of a new stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InitialWindow {
    /// Slots that the stream may use at once.
    pub(crate) window: u64,
    /// Slots that the pool gets back when the stream ends or needs fewer.
    pub(crate) taken: u64,
}

impl CreditPool {
    /// Creates a full pool of `slots` slots, rounded down so that the first share determines the
    /// size.
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

    /// Returns the initial window of the next stream, in slots.
    pub(crate) fn next_window(&self) -> u64 {
        WINDOW_FLOOR + self.next_share()
    }

    /// Takes the share of a new stream.
    pub(crate) fn take(&mut self) -> InitialWindow {
        self.take_at_most(u64::MAX)
    }

    /// Takes the share of a new stream, but at most `most` slots.
    pub(crate) fn take_at_most(&mut self, most: u64) -> InitialWindow {
        let taken = self.next_share().min(most);
        self.free -= taken;
        InitialWindow {
            window: WINDOW_FLOOR + taken,
            taken,
        }
    }

    /// Returns a stream's [share](Self::take) to the pool.
    pub(crate) fn give_back(&mut self, taken: u64) {
        self.free = (self.free + taken).min(self.size);
    }

    /// Returns the share of the next stream. A share below the floor is not worth taking.
    fn next_share(&self) -> u64 {
        let free = u128::from(self.free);
        let size = u128::from(self.size.max(1));
        let share = (free * free / (size * u128::from(FIRST_SHARE))) as u64;
        if share < WINDOW_FLOOR { 0 } else { share }
    }
}

/// Pool of the receiver for streams that the peer opens.
#[derive(Debug)]
pub(crate) struct AnnouncedPool {
    pool: CreditPool,
    /// Slots that ended streams have returned since the last announcement.
    returned: u64,
}

/// Content of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// First stream for which the announcement holds, as a count of streams that the peer opens.
    pub(crate) from: u32,
    /// Free slots of the pool before that stream.
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

    /// Returns the free slots, including slots that wait for an announcement.
    pub(crate) fn unused(&self) -> u64 {
        self.pool.free() + self.returned
    }

    pub(crate) fn take(&mut self) -> InitialWindow {
        self.pool.take()
    }

    pub(crate) fn give_back(&mut self, taken: u64) {
        self.returned += taken;
    }

    /// Frees the slots that streams have returned, if that is worth an announcement, or if the pool
    /// is full again.
    pub(crate) fn release_returned(&mut self) -> bool {
        let is_full_again = self.returned > 0 && self.unused() == self.pool.size();
        if self.returned <= self.pool.free() / 8 && !is_full_again {
            return false;
        }
        self.pool.give_back(std::mem::take(&mut self.returned));
        true
    }
}

/// Sender's copy of the peer's pool: initial credit of the streams that we open.
#[derive(Debug)]
pub(crate) struct PeerPool {
    pool: CreditPool,
    /// First stream for which the last announcement holds.
    from: u32,
    /// Counts of the bulk streams that we have opened since. The receiver may have made the newest
    /// announcement before it learned of them.
    opened: VecDeque<u32>,
    /// Free slots in the newest announcement, until the next stream takes them.
    announced: Option<u64>,
}

impl PeerPool {
    /// Creates the pool of a peer whose first stream may use `first_window` slots.
    pub(crate) fn new(first_window: u64) -> Self {
        Self {
            pool: CreditPool::new(pool_size(first_window)),
            from: 0,
            opened: VecDeque::new(),
            announced: None,
        }
    }

    /// Takes the initial window of a new bulk stream, the `count`th stream of ours.
    pub(crate) fn take(&mut self, count: u32) -> u64 {
        self.apply_announcement();
        if self.opened.len() == OPENED_MAX {
            self.opened.pop_front();
        }
        self.opened.push_back(count);
        self.pool.take().window
    }

    /// Stores an announcement of the peer. Streams opened meanwhile have taken their shares
    /// already.
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

    /// Subtracts the shares of streams opened meanwhile from the announced slots. A peer may
    /// announce at any rate, so this work waits for the next stream.
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

/// Returns the size of the pool whose first stream may use `first_window` slots.
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
        /// Streams begin, shrink and end, and announcements arrive late or never. The sender never
        /// assumes more for all streams together than the receiver's pool holds.
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
                        // Any of them arrives, and earlier ones never do.
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
