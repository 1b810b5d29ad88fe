//! Memory of a connection's streams: credit for the peer, slabs for arriving data, and bytes to
//! send.
//!
//! The input is windows of streams as they begin, change and end, and bytes that wait to be sent.
//! The output is the windows that memory permits. Both directions share one limit, and a quarter is
//! kept for each. This module grants windows, and the receiving half enforces them.
//!
//! Three parts of the memory are for receiving. Credit never exceeds them:
//!
//! - a pool for the streams that the peer opens, reserved for good, since the peer takes its shares
//!   without a request;
//! - a pool for streams of ours, where the peer learns its share by a credit frame (growing windows
//!   may use half of its free part);
//! - a rest for the least window of every stream that is open or that the peer may open, and for
//!   windows that grow.
//!
//! Any reader may stall, and then holds its window. A window therefore follows the need of its
//! reader, the more closely the less memory is free. A window beyond the need narrows. Growth falls
//! with the cube of the free part, so that it never uses up the rest.

use units::ByteCount;

use super::{
    SLOT_SIZE,
    credit_pool::{
        AnnouncedPool, Announcement, CreditPool, InitialWindow, POOL_MAX, PeerPool, WINDOW_FLOOR,
    },
    recv::WindowShortage,
    slab::{SLAB_SIZE, SLAB_SLOTS, SlabPool},
};

/// Maximum number of streams that the peer may have open at once, with memory to spare.
const STREAMS_MAX: u32 = 4096;
/// Divisor of the memory that gives the part kept for sending, and the same part for receiving.
pub(super) const FLOOR_SHARE: u64 = 4;
/// Divisor of the memory that gives the part left to a connection, however much others of the same
/// peer take.
const BESIDE_SHARE: u64 = 16;
/// Sixteenths of the memory in the pool of streams that the peer opens. With 1 GiB the first stream
/// has 160 MiB, which fill 1 Gbit/s over 1 s until its window moves.
const PEER_POOL_SIXTEENTHS: u64 = 5;
/// Sixteenths of the memory in the pool of streams that we open.
const OWN_POOL_SIXTEENTHS: u64 = 1;
/// Sixteenths of the memory for the least windows and for growth.
const REST_SIXTEENTHS: u64 = 6;
/// Divisor of the peer's most streams that gives the number for the start, before the peer receives
/// a new limit.
const PEER_BURST_SHARE: u32 = 8;
/// Divisor of the most streams that gives the number of our streams for which memory is always
/// reserved.
const OWN_BURST_SHARE: u32 = 24;
/// Least number of streams that the peer may open at first, however little memory there is.
const STREAMS_AT_FIRST_MIN: u32 = 16;
/// Divisor of the room for growth that gives the part left over when a window grows.
const GROWTH_LEAVES: u64 = 4;
/// Divisor of all receive memory that gives the part a stream keeps without need while all is free.
const KEPT_SHARE: f64 = 32.0;
/// Slots that buffers behind a stalled reader may take, 512 KiB: queues, and the kernel's buffers
/// at both ends.
const SWALLOWED_SLOTS: u64 = 362;
/// Memory that every bulk stream takes, in slots: its least window. The pool grants whole slabs,
/// and the first and the last slab may be used only in part.
const STREAM_SLOTS: u64 = WINDOW_FLOOR + 2 * SLAB_SLOTS;
/// Memory for each stream that the peer may have open, in bytes.
const BYTES_PER_STREAM: u64 = 4 * 64 * SLOT_SIZE as u64;
/// Slots that a control stream may have outstanding.
pub(crate) const CONTROL_WINDOW: u64 = 64;

/// Memory of a connection, and its use by streams.
pub(crate) struct StreamMemory {
    pub(crate) pool: SlabPool,
    /// Limits of the memory: beside other connections of the peer, and alone.
    max: u64,
    alone_max: u64,
    /// Credit of streams that the peer opens, and credit of streams that we open.
    peer_opened: AnnouncedPool,
    own: CreditPool,
    /// Bulk streams that have not been read to their end, in all and opened by us.
    streams: u64,
    own_streams: u64,
    /// Streams of the peer that may be open at once, including streams that it may still open.
    peer_streams_allowed: u64,
    /// Slots by which windows exceed their initial size.
    grown: u64,
    /// Memory of unsent and unacknowledged bytes.
    send_buffered: u64,
    /// Credit from the peer for streams that we open.
    peer_pool: PeerPool,
    announced: Announcement,
}

impl StreamMemory {
    /// Creates the state for `max` bytes in both directions. The peer lets our first bulk stream
    /// use `first_credit` slots at once.
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

    /// Grants memory to a new bulk stream, which the peer has opened or we have.
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

    /// Takes back the memory of an ended bulk stream that began with `share`.
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

    /// Sets the number of streams that the peer may have open at once, and reserves memory for
    /// their least windows.
    pub(super) fn allow_peer_streams(&mut self, streams: u64) {
        self.peer_streams_allowed = streams;
    }

    /// Returns the number of additional streams that the peer may get.
    pub(super) fn room_for_peer_streams(&self) -> u64 {
        self.room() / STREAM_SLOTS
    }

    /// Whether the least window of one more bulk stream of ours fits.
    pub(super) fn fits_own_stream(&self) -> bool {
        self.own_streams < self.own_burst() || self.room() >= STREAM_SLOTS
    }

    /// Returns the number of bulk streams of ours for which memory is reserved, at least one.
    fn own_burst(&self) -> u64 {
        u64::from(streams_max(self.alone_max) / OWN_BURST_SHARE).max(1)
    }

    /// Changes the window of a stream that began with `share`. A window below the share gives the
    /// rest of it back.
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

    /// Returns the free part of the memory available to a stream. The stream's own memory counts as
    /// free.
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

    /// Returns the window that a stream may keep without need while the part `free` of memory is
    /// free.
    pub(crate) fn window_without_need(&self, free: f64) -> u64 {
        let all = self.room() + self.grown + self.peer_opened.size();
        WINDOW_FLOOR + (all as f64 * free.powi(3) / KEPT_SHARE) as u64
    }

    /// Returns the largest initial window of a stream of the peer.
    pub(crate) fn first_initial_window(&self) -> u64 {
        first_initial_window(self.alone_max)
    }

    /// Sets the bytes that the `count` other connections of the same peer take of the memory for
    /// all of them.
    ///
    /// Each connection keeps at least a sixteenth, or less if they are many: half of the memory for
    /// all.
    pub(crate) fn set_taken_elsewhere(&mut self, bytes: u64, count: usize) {
        let max = self.alone_max.saturating_sub(bytes);
        let least = self.alone_max / BESIDE_SHARE.max(2 * count as u64);
        let max = max.max(least);
        if max != self.max {
            self.max = max;
            self.bound_pool();
        }
    }

    /// Takes the initial credit of a new bulk stream of ours, the `count`th stream that we open, in
    /// slots.
    pub(crate) fn take_peer_credit(&mut self, count: u32) -> u64 {
        self.peer_pool.take(count)
    }

    /// Stores the peer's announcement of the initial credit for streams that we open.
    pub(crate) fn on_announcement(&mut self, announcement: Announcement) {
        self.peer_pool.announce(announcement);
    }

    /// Returns whether the peer must receive an announcement of credit that ended streams have
    /// returned. The peer has opened `peer_count` streams so far, and all of them have arrived
    /// here.
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

    /// Returns the last announcement to the peer.
    pub(crate) fn announced(&self) -> Announcement {
        self.announced
    }

    /// Returns the slots by which all windows together may grow.
    pub(super) fn room(&self) -> u64 {
        let room = (self.rest() + self.own.free() / 2).saturating_sub(self.taken_of_rest());
        room.min(slots(self.max - self.sending()).saturating_sub(self.promised()))
    }

    /// Returns the slots that least windows and growth take, including the least windows of streams
    /// that may begin.
    fn taken_of_rest(&self) -> u64 {
        let streams = self.peer_streams_allowed + self.own_streams.max(self.own_burst());
        self.grown + streams * STREAM_SLOTS
    }

    /// Returns the slots by which growth exceeds the memory reserved for it.
    fn overgrown(&self) -> u64 {
        self.taken_of_rest().saturating_sub(self.rest())
    }

    /// Returns the slots for least windows and growth.
    fn rest(&self) -> u64 {
        slots(self.max / 16 * REST_SIXTEENTHS)
    }

    /// Returns the slots by which the window of a stream may grow now.
    pub(crate) fn room_to_grow(&self) -> u64 {
        self.room() - self.room() / GROWTH_LEAVES
    }

    /// Returns the widest window for a stream that began with `share`, has `window` now, and is
    /// short of it.
    ///
    /// Growth falls with the cube of the free part of the room, in which the stream's own growth
    /// counts as free. The window also follows the slots that prove the reader, and the square of
    /// the free part. The first slots fill buffers behind a stalled reader too, so they count only
    /// while more than half of the room is free.
    pub(crate) fn window_max(
        &self,
        share: InitialWindow,
        window: u64,
        shortage: WindowShortage,
    ) -> u64 {
        let free = self.free_room(share, window);
        let proven_max = match shortage {
            WindowShortage::Hole { highest } => 4.0 * highest as f64 * free * free,
            WindowShortage::Reader { read } => {
                let free_for_unproven = (2.0 * free - 1.0).max(0.0);
                let unproven = read.min(SWALLOWED_SLOTS);
                let proven = (read - unproven) as f64 * free * free;
                2.0 * (proven + unproven as f64 * free_for_unproven * free_for_unproven)
            }
        };
        (WINDOW_FLOOR + proven_max as u64).min(self.grown_max(share, window))
    }

    /// Returns the widest window that growth may lead to.
    fn grown_max(&self, share: InitialWindow, window: u64) -> u64 {
        let all = self.room() + self.grown;
        share.window + (all as f64 * self.free_room(share, window).powi(3)) as u64
    }

    /// Returns the free part of the room for growth, in which the growth of the stream itself
    /// counts as free.
    fn free_room(&self, share: InitialWindow, window: u64) -> f64 {
        let room = self.room();
        let own = window.saturating_sub(share.window);
        (room + own) as f64 / (room + self.grown).max(1) as f64
    }

    /// Returns the slots that are granted to streams of the peer, or reserved for them.
    fn promised(&self) -> u64 {
        let own = self.own.size() - self.own.free();
        self.peer_opened.size() + own + self.grown + self.streams * STREAM_SLOTS
    }

    /// Returns the most bytes of unsent and unacknowledged data.
    pub(crate) fn send_buffer_max(&self) -> u64 {
        let receiving = self.promised() * SLOT_SIZE as u64;
        let floor = self.max / FLOOR_SHARE;
        self.max - receiving.clamp(floor, self.max - floor)
    }

    /// Returns the bytes of unsent and unacknowledged data.
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

    /// Returns the bytes of slabs in use and of data to be sent.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.send_buffered + (self.pool.lent() * SLAB_SIZE) as u64
    }

    /// Limits the pool. A peer may send more than its credit, which must not take memory from
    /// sending.
    fn bound_pool(&mut self) {
        self.pool.set_max(self.max - self.sending());
    }

    /// Returns the bytes that sending takes, or that are kept for it.
    fn sending(&self) -> u64 {
        let floor = self.max / FLOOR_SHARE;
        self.send_buffered.clamp(floor, self.max)
    }
}

/// Returns the slots that fit in `bytes`.
fn slots(bytes: u64) -> u64 {
    bytes / SLOT_SIZE as u64
}

/// Returns the slots in the pool of streams that the peer opens.
fn peer_pool_size(memory_max: u64) -> u64 {
    slots(memory_max / 16 * PEER_POOL_SIXTEENTHS).min(POOL_MAX)
}

/// Returns the slots that the first bulk stream may use at once on a new connection whose receiver
/// has `memory_max` bytes.
pub(crate) fn first_initial_window(memory_max: u64) -> u64 {
    CreditPool::new(peer_pool_size(memory_max)).next_window()
}

/// Returns the streams that one of `peers` may have open at once without waiting for permission to
/// open another.
///
/// All links of a gateway share `memory_max`. The limit sent to a peer moves by quarters, so one
/// quarter may be used up before the next update.
pub fn streams_at_once(memory_max: ByteCount, peers: usize) -> usize {
    let of_peer = streams_max(memory_max.bytes() / peers.max(1) as u64);
    (of_peer - of_peer / 4) as usize
}

/// Returns the number of streams that the peer may open before it receives a new limit. Windows
/// that grow leave room for them.
pub(crate) fn streams_at_first(memory_max: u64) -> u32 {
    (streams_max(memory_max) / PEER_BURST_SHARE).max(STREAMS_AT_FIRST_MIN)
}

/// Returns the number of streams that the peer may have open at once. The least windows of all fit
/// in a quarter of `memory_max` bytes.
pub(crate) fn streams_max(memory_max: u64) -> u32 {
    u32::try_from(memory_max / BYTES_PER_STREAM)
        .unwrap_or(STREAMS_MAX)
        .clamp(16, STREAMS_MAX)
}
