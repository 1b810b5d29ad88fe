//! Memory of the streams of one connection: credit for the peer, slabs for arriving data, and bytes
//! to send.
//!
//! Input: the windows of streams when they begin, change and end, and the number of bytes that wait
//! to be sent. Output: the windows that memory permits. Both directions share one limit, and a
//! quarter of it is reserved for each direction. This module computes the windows, and the
//! receiving half of a stream enforces them.
//!
//! The credit of the peer never exceeds the memory for receiving. That memory is the sum of three
//! parts:
//!
//! - A pool for the streams that the peer opens. It is reserved permanently, since the peer takes
//!   its shares without a request.
//! - A pool for the streams that this side opens. The peer receives each share in a credit frame.
//!   Growing windows may use half of the free slots of this pool.
//! - The remaining memory. It holds the least window of every stream that is open or that the peer
//!   may open, and the growth of windows.
//!
//! A reader that stalls keeps the memory of its window. Each window therefore follows the need of
//! its reader, and follows it more closely when less memory is free. A window larger than the need
//! shrinks. The permitted growth is proportional to the cube of the free fraction, so that growth
//! never uses up the remaining memory.

use units::ByteCount;

use super::{
    SLOT_SIZE,
    credit_pool::{
        AnnouncedPool, Announcement, CreditPool, InitialWindow, POOL_MAX, PeerPool, WINDOW_FLOOR,
    },
    recv::WindowShortage,
    slab::{SLAB_SIZE, SLAB_SLOTS, SlabPool},
    window_need::gap_share,
};

/// Maximum number of streams that the peer may have open at once, even if more memory is free.
const STREAMS_MAX: u32 = 4096;
/// Divisor of the memory limit. The quotient is the memory that is reserved for sending. The same
/// amount is reserved for receiving.
pub(super) const FLOOR_SHARE: u64 = 4;
/// Divisor of the memory limit. A connection keeps at least the quotient, however much memory the
/// peer's other connections use. With more than eight other connections it keeps less.
const BESIDE_SHARE: u64 = 16;
/// Size of the pool for peer-opened streams, in sixteenths of the memory. With 1 GiB of memory the
/// first stream has 160 MiB. That is enough to fill a path of 1 Gbit/s and 1 s until the first
/// credit frame arrives.
const PEER_POOL_SIXTEENTHS: u64 = 5;
/// Size of the pool for streams that this side opens, in sixteenths of the memory.
const OWN_POOL_SIXTEENTHS: u64 = 1;
/// Memory for the least windows and for the growth of windows, in sixteenths of the memory.
const REST_SIXTEENTHS: u64 = 6;
/// Divisor of the maximum number of the peer's streams. The quotient is the number of streams that
/// the peer may open before it receives a higher limit.
const PEER_BURST_SHARE: u32 = 8;
/// Divisor of the maximum number of streams. The quotient is the number of this side's own streams
/// for which memory is always reserved.
const OWN_BURST_SHARE: u32 = 24;
/// Least number of streams that the peer may open before it receives a higher limit, even with
/// little memory.
const STREAMS_AT_FIRST_MIN: u32 = 16;
/// Divisor of the memory that is free for growth. A window that grows leaves the quotient free for
/// other windows.
const GROWTH_LEAVES: u64 = 4;
/// Divisor of all receive memory. While all memory is free, a stream may keep the quotient as its
/// window even if its reader needs less.
const KEPT_SHARE: f64 = 32.0;
/// Number of slots (512 KiB) that buffers may absorb although the reader has stalled. These buffers
/// are queues of the gateway and the kernel's socket buffers at both ends.
const SWALLOWED_SLOTS: u64 = 362;
/// Memory for the least window of a bulk stream, in slots. The slab pool grants only whole slabs,
/// and the stream may use only a part of its first slab and of its last slab.
const STREAM_SLOTS: u64 = WINDOW_FLOOR + 2 * SLAB_SLOTS;
/// Divisor of the memory limit in bytes. The quotient is the maximum number of streams that the
/// peer may have open.
const BYTES_PER_STREAM: u64 = 4 * 64 * SLOT_SIZE as u64;
/// Window of a control stream, in slots.
pub(crate) const CONTROL_WINDOW: u64 = 64;

/// Memory limits of one connection, and the memory that its streams use.
pub(crate) struct StreamMemory {
    pub(crate) pool: SlabPool,
    /// Memory limits of this connection in bytes. `max` leaves room for the peer's other
    /// connections, and `alone_max` is the limit without other connections.
    max: u64,
    alone_max: u64,
    /// Pools of initial credit: one for streams that the peer opens, and one for streams that this
    /// side opens.
    peer_opened: AnnouncedPool,
    own: CreditPool,
    /// Number of bulk streams that have not been read to their end. `streams` counts all of them,
    /// and `own_streams` counts only streams that this side opened.
    streams: u64,
    own_streams: u64,
    /// Number of peer-opened streams for which memory is reserved: open streams, and streams that
    /// the peer may still open.
    peer_streams_allowed: u64,
    /// Number of slots by which windows exceed their initial windows, summed over all streams.
    grown: u64,
    /// Number of bytes that are stored because they are unsent or unacknowledged.
    send_buffered: u64,
    /// Credit that the peer grants to streams that this side opens.
    peer_pool: PeerPool,
    announced: Announcement,
}

impl StreamMemory {
    /// Creates the state. `max` is the memory limit in bytes for both directions together. The peer
    /// permits this side's first bulk stream to use `first_credit` slots at once.
    pub(crate) fn new(max: u64, first_credit: u64) -> Self {
        let peer_opened = AnnouncedPool::new(peer_pool_size(max));
        let announced = Announcement {
            from: 0,
            free: peer_opened.free(),
        };
        Self {
            pool: SlabPool::new(max - max / FLOOR_SHARE),
            max,
            alone_max: max,
            peer_opened,
            own: CreditPool::new(slots(max / 16 * OWN_POOL_SIXTEENTHS)),
            streams: 0,
            own_streams: 0,
            peer_streams_allowed: u64::from(streams_at_first(max)),
            grown: 0,
            send_buffered: 0,
            peer_pool: PeerPool::new(first_credit),
            announced,
        }
    }

    /// Reserves memory for a new bulk stream and returns its initial window. `by_peer` states
    /// whether the peer opened the stream.
    pub(crate) fn promise_stream(&mut self, by_peer: bool) -> InitialWindow {
        self.streams += 1;
        if by_peer {
            self.peer_opened.take()
        } else {
            self.own_streams += 1;
            // Windows that have grown may hold a part of the pool.
            let left = self.own.free().saturating_sub(self.overgrown());
            self.own.take_at_most(left / 2)
        }
    }

    /// Frees the memory of an ended bulk stream. The stream began with the window `share` and ended
    /// with `window` slots.
    pub(crate) fn take_back(&mut self, by_peer: bool, share: InitialWindow, window: u64) {
        self.streams -= 1;
        self.grown -= window.saturating_sub(share.window);
        if by_peer {
            self.peer_opened.give_back(share.taken);
        } else {
            self.own_streams -= 1;
            self.own.give_back(share.taken);
        }
    }

    /// Sets the number of streams that the peer may have open at once, and reserves memory for the
    /// least windows of these streams.
    pub(super) fn allow_peer_streams(&mut self, streams: u64) {
        self.peer_streams_allowed = streams;
    }

    /// Returns how many additional streams of the peer would fit into the free memory.
    pub(super) fn room_for_peer_streams(&self) -> u64 {
        self.room() / STREAM_SLOTS
    }

    /// Whether memory permits this side to open one more bulk stream with the least window.
    pub(super) fn fits_own_stream(&self) -> bool {
        self.own_streams < self.own_burst() || self.room() >= STREAM_SLOTS
    }

    /// Returns the number of this side's own bulk streams for which memory is always reserved, at
    /// least one.
    fn own_burst(&self) -> u64 {
        u64::from(streams_max(self.alone_max) / OWN_BURST_SHARE).max(1)
    }

    /// Changes the window of a stream from `before` to `after` slots. If `after` is smaller than
    /// the initial window `share`, the difference returns to the pool.
    pub(crate) fn refit(
        &mut self,
        by_peer: bool,
        share: &mut InitialWindow,
        before: u64,
        after: u64,
    ) {
        self.grown -= before.saturating_sub(share.window);
        let returned = share.window.saturating_sub(after).min(share.taken);
        share.window -= returned;
        share.taken -= returned;
        if by_peer {
            self.peer_opened.give_back(returned);
        } else {
            self.own.give_back(returned);
        }
        self.grown += after.saturating_sub(share.window);
    }

    /// Returns the fraction of memory that is free for one stream. The memory that the stream
    /// itself uses counts as free.
    pub(crate) fn free_part(&self, by_peer: bool, share: InitialWindow, window: u64) -> f64 {
        let own = window.saturating_sub(share.window);
        let (free, all) = (self.room() + own, self.room() + self.grown);
        let (pool_free, pool) = match by_peer {
            true => (
                self.peer_opened.unused() + share.taken,
                self.peer_opened.size(),
            ),
            false => (0, 0),
        };
        (free + pool_free) as f64 / (all + pool).max(1) as f64
    }

    /// Returns the window in slots that a stream may keep even if its reader needs less. `free` is
    /// the fraction of memory that is free.
    pub(crate) fn window_without_need(&self, free: f64) -> u64 {
        let all = self.room() + self.grown + self.peer_opened.size();
        WINDOW_FLOOR + (all as f64 * free.powi(3) / KEPT_SHARE) as u64
    }

    /// Returns the largest initial window of a peer-opened stream, in slots.
    pub(crate) fn first_initial_window(&self) -> u64 {
        first_initial_window(self.alone_max)
    }

    /// Sets the memory that the peer's `count` other connections use, in bytes. All connections of
    /// a peer share one limit.
    ///
    /// A connection always keeps at least a sixteenth of the shared limit. With more than eight
    /// other connections it keeps less, so that these minimums take at most half of the limit.
    pub(crate) fn set_taken_elsewhere(&mut self, bytes: u64, count: usize) {
        let max = self.alone_max.saturating_sub(bytes);
        let least = self.alone_max / BESIDE_SHARE.max(2 * count as u64);
        let max = max.max(least);
        if max != self.max {
            self.max = max;
            self.bound_pool();
        }
    }

    /// Returns the initial credit, in slots, of a new bulk stream that this side opens. Removes
    /// this credit from the peer's pool. `count` is the number of the stream.
    pub(crate) fn take_peer_credit(&mut self, count: u32) -> u64 {
        self.peer_pool.take(count)
    }

    /// Stores the peer's announcement of initial credit for streams that this side opens.
    pub(crate) fn on_announcement(&mut self, announcement: Announcement) {
        self.peer_pool.announce(announcement);
    }

    /// Makes credit of ended streams available again. Returns whether the peer must receive an
    /// announcement. The peer has opened `peer_count` streams so far, and frames of all these
    /// streams have arrived.
    pub(crate) fn announce_returned(&mut self, peer_count: u32) -> bool {
        let is_news = self.peer_opened.release_returned();
        if is_news {
            self.announced = Announcement {
                from: peer_count,
                free: self.peer_opened.free(),
            };
        }
        is_news
    }

    /// Returns the last announcement that was prepared for the peer.
    pub(crate) fn announced(&self) -> Announcement {
        self.announced
    }

    /// Returns the number of slots by which all windows together may still grow.
    pub(super) fn room(&self) -> u64 {
        let room = (self.rest() + self.own.free() / 2).saturating_sub(self.taken_of_rest());
        room.min(slots(self.max - self.sending()).saturating_sub(self.promised()))
    }

    /// Returns the number of slots that are used by the least windows and by the growth of windows.
    /// The least windows of streams that may still begin are included.
    fn taken_of_rest(&self) -> u64 {
        let streams = self.peer_streams_allowed + self.own_streams.max(self.own_burst());
        self.grown + streams * STREAM_SLOTS
    }

    /// Returns the number of slots by which least windows and growth together exceed the memory
    /// reserved for them.
    fn overgrown(&self) -> u64 {
        self.taken_of_rest().saturating_sub(self.rest())
    }

    /// Returns the number of slots reserved for least windows and for the growth of windows.
    fn rest(&self) -> u64 {
        slots(self.max / 16 * REST_SIXTEENTHS)
    }

    /// Returns the number of slots by which the window of one stream may grow now.
    pub(crate) fn room_to_grow(&self) -> u64 {
        self.room() - self.room() / GROWTH_LEAVES
    }

    /// Returns the maximum window in slots for a stream whose present window is too small. The
    /// stream began with `share` and now has `window`.
    ///
    /// The growth of a window is limited by the cube of the free fraction of the growth memory. The
    /// stream's own growth counts as free.
    ///
    /// A second limit is proportional to the square of the free fraction. It is also proportional
    /// to the number of slots that were read. If a slot is missing, the number of arrived slots
    /// counts instead. Buffers absorb the first slots even if the reader has stalled. These slots
    /// therefore count only while more than half of the growth memory is free.
    pub(crate) fn window_max(
        &self,
        share: InitialWindow,
        window: u64,
        shortage: WindowShortage,
    ) -> u64 {
        let free = self.free_room(share, window);
        let proven_max = match shortage {
            // A window that widens doubles. It may then be twice as large as the gap needs.
            WindowShortage::Hole { highest } => {
                2.0 * gap_share(free) * highest as f64 * free * free
            }
            WindowShortage::Reader { read } => {
                let free_for_unproven = (2.0 * free - 1.0).max(0.0);
                let unproven = read.min(SWALLOWED_SLOTS);
                let proven = (read - unproven) as f64 * free * free;
                2.0 * (proven + unproven as f64 * free_for_unproven * free_for_unproven)
            }
        };
        WINDOW_FLOOR
            .saturating_add(proven_max as u64)
            .min(self.grown_max(share, window))
    }

    /// Returns the maximum window of a stream, in slots, that the memory for growth permits.
    fn grown_max(&self, share: InitialWindow, window: u64) -> u64 {
        let all = self.room() + self.grown;
        share.window + (all as f64 * self.free_room(share, window).powi(3)) as u64
    }

    /// Returns the free fraction of the memory for growth. The growth of the stream itself counts
    /// as free.
    fn free_room(&self, share: InitialWindow, window: u64) -> f64 {
        let room = self.room();
        let own = window.saturating_sub(share.window);
        (room + own) as f64 / (room + self.grown).max(1) as f64
    }

    /// Returns the number of slots that are granted to the peer or reserved for its streams.
    fn promised(&self) -> u64 {
        let own = self.own.size() - self.own.free();
        self.peer_opened.size() + own + self.grown + self.streams * STREAM_SLOTS
    }

    /// Returns the maximum number of bytes that may be unsent or unacknowledged.
    pub(crate) fn send_buffer_max(&self) -> u64 {
        let receiving = self.promised() * SLOT_SIZE as u64;
        let floor = self.max / FLOOR_SHARE;
        self.max - receiving.clamp(floor, self.max - floor)
    }

    /// Returns the number of bytes that are unsent or unacknowledged.
    pub(crate) fn send_buffered(&self) -> u64 {
        self.send_buffered
    }

    pub(crate) fn add_send_buffered(&mut self, bytes: usize) {
        self.send_buffered += bytes as u64;
        self.bound_pool();
    }

    pub(crate) fn remove_send_buffered(&mut self, bytes: usize) {
        self.send_buffered -= bytes as u64;
        self.bound_pool();
    }

    /// Returns the memory in use, in bytes: slabs of arrived data, and data to be sent.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.send_buffered + (self.pool.lent() * SLAB_SIZE) as u64
    }

    /// Limits the slab pool to the memory that sending does not use. A peer that sends beyond its
    /// credit thus cannot use up the memory for sending.
    fn bound_pool(&mut self) {
        self.pool.set_max(self.max - self.sending());
    }

    /// Returns the larger of two numbers: the bytes of buffered data to send, and the bytes
    /// reserved for sending.
    fn sending(&self) -> u64 {
        let floor = self.max / FLOOR_SHARE;
        self.send_buffered.clamp(floor, self.max)
    }
}

/// Returns the number of slots that fit in `bytes`.
fn slots(bytes: u64) -> u64 {
    bytes / SLOT_SIZE as u64
}

/// Returns the size in slots of the pool for peer-opened streams.
fn peer_pool_size(memory_max: u64) -> u64 {
    slots(memory_max / 16 * PEER_POOL_SIXTEENTHS).min(POOL_MAX)
}

/// Returns the initial window, in slots, for the first bulk stream on a new connection. The
/// receiver has `memory_max` bytes of memory.
pub(crate) fn first_initial_window(memory_max: u64) -> u64 {
    CreditPool::new(peer_pool_size(memory_max)).next_window()
}

/// Returns how many streams a peer may open at once without waiting for a higher limit.
///
/// `peers` is the number of links that share `memory_max`. A gateway raises a peer's stream limit
/// only in steps, so the result is three quarters of the maximum number of streams.
pub fn streams_at_once(memory_max: ByteCount, peers: usize) -> usize {
    let of_peer = streams_max(memory_max.bytes() / peers.max(1) as u64);
    (of_peer - of_peer / 4) as usize
}

/// Returns the number of streams that the peer may open before it receives a higher limit. Growing
/// windows leave enough memory for these streams.
pub(crate) fn streams_at_first(memory_max: u64) -> u32 {
    (streams_max(memory_max) / PEER_BURST_SHARE).max(STREAMS_AT_FIRST_MIN)
}

/// Returns the maximum number of streams that the peer may have open at once. The least windows of
/// all these streams fit into a quarter of `memory_max` bytes.
pub(crate) fn streams_max(memory_max: u64) -> u32 {
    u32::try_from(memory_max / BYTES_PER_STREAM)
        .unwrap_or(STREAMS_MAX)
        .clamp(16, STREAMS_MAX)
}
