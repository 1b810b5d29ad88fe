//! The memory of a connection's streams: how much is promised to the peer, lent to arriving data, and left
//! for sending.
//!
//! In: windows of streams as they begin, change and end; bytes that wait to be sent. Out: the windows that
//! memory allows. Both directions share one bound, and a quarter is kept for each. A window is promised here;
//! the receiving half enforces it.

use units::ByteCount;

use super::{
    SLOT_SIZE,
    slab::{SLAB_SIZE, SLAB_SLOTS, SlabPool},
};

/// How many streams the peer may have open at once, with memory to spare.
const STREAMS_MAX: u32 = 4096;
/// This fraction of the memory (one over it) is kept for sending, and as much for receiving.
pub(super) const FLOOR_SHARE: u64 = 4;
/// This fraction (one over it) is left to a connection however much others of the same peer take.
const BESIDE_SHARE: u64 = 16;
/// A new bulk stream is promised this fraction (one over it) of what may still be promised, or of five
/// eighths of the memory if that is less: with 1 GiB the first can fill 1 Gbit/s over 1 s until its window
/// moves. The rest is for further streams, for windows that prove too small, and for the least that any
/// stream gets.
const INITIAL_SHARE: u64 = 4;
/// Slots that a control stream may have outstanding.
pub(crate) const CONTROL_WINDOW: u64 = 64;

/// The memory of a connection, and what its streams use of it.
pub(crate) struct Memory {
    pub(crate) pool: SlabPool,
    /// What it may take beside other connections of the peer, and alone.
    max: u64,
    alone_max: u64,
    /// Slots of memory promised to streams of the peer.
    promised: u64,
    /// Memory that unsent and unacknowledged bytes take.
    send_buffered: u64,
    /// Slots that a bulk stream which we open may use at once.
    initial_credit: u64,
    /// The window for new streams that the peer was last told.
    told_window: u64,
}

impl Memory {
    /// `max` bytes for both directions; the peer lets a bulk stream of ours use `initial_credit` slots at
    /// once.
    pub(crate) fn new(max: u64, initial_credit: u64) -> Self {
        Self {
            pool: SlabPool::new(max - max / FLOOR_SHARE),
            max,
            alone_max: max,
            promised: 0,
            send_buffered: 0,
            initial_credit,
            told_window: first_initial_window(max),
        }
    }

    /// Slots that the bulk stream which the peer opens next may use at once: a share of what is not
    /// promised yet, so that however many readers stall, there is room for one more.
    pub(crate) fn initial_window(&self) -> u64 {
        initial_window(initial_slots(self.max).min(self.room()))
    }

    /// The initial window while nothing is promised: the largest that the peer may ever have been told.
    pub(crate) fn first_initial_window(&self) -> u64 {
        first_initial_window(self.alone_max)
    }

    /// The `count` connections of the same peer other than this one take so many bytes of the memory that is meant for all of
    /// them. A sixteenth is left to each, or less where they are many: half of the memory to all.
    pub(crate) fn set_taken_elsewhere(&mut self, bytes: u64, count: usize) {
        let max = self.alone_max.saturating_sub(bytes);
        let least = self.alone_max / BESIDE_SHARE.max(2 * count as u64);
        let max = max.max(least);
        if max != self.max {
            self.max = max;
            self.bound_pool();
        }
    }

    /// Slots that a bulk stream which we open now may use at once, as the peer said last. Each stream that
    /// opens lowers the number for the next.
    pub(crate) fn take_initial_credit(&mut self) -> u64 {
        let credit = self.initial_credit;
        self.initial_credit = (credit - credit / INITIAL_SHARE).max(CONTROL_WINDOW);
        credit
    }

    /// The peer says how many slots a bulk stream that we open may use at once.
    pub(crate) fn set_initial_credit(&mut self, slots: u64) {
        self.initial_credit = slots.max(CONTROL_WINDOW);
    }

    /// Whether the window for new streams has changed so much that the peer must be told. From then on it
    /// counts as told.
    pub(crate) fn initial_window_is_news(&mut self) -> bool {
        let window = self.initial_window();
        let is_news = window.abs_diff(self.told_window) > self.told_window / 8;
        if is_news {
            self.told_window = window;
        }
        is_news
    }

    /// Promises memory to a new bulk stream with a window of `window` slots.
    pub(crate) fn promise_stream(&mut self, window: u64) {
        self.promise(promised_to_stream(window));
    }

    /// Promises memory for `slots` slots by which a window grows.
    pub(crate) fn promise(&mut self, slots: u64) {
        self.promised += slots;
    }

    /// Takes back the promise for `slots` slots by which a window shrinks.
    pub(crate) fn withdraw(&mut self, slots: u64) {
        self.promised = self.promised.saturating_sub(slots);
    }

    /// Takes back what was promised to a bulk stream with a window of `window` slots: the stream is over.
    pub(crate) fn take_back(&mut self, window: u64) {
        self.promised = self.promised.saturating_sub(promised_to_stream(window));
    }

    /// Slots that may still be promised to streams of the peer.
    pub(crate) fn room(&self) -> u64 {
        slots(self.max - self.sending()).saturating_sub(self.promised)
    }

    /// Slots by which windows that prove too small may grow: room for one more new stream stays.
    pub(crate) fn room_to_widen(&self) -> u64 {
        self.room().saturating_sub(first_initial_window(self.max))
    }

    /// Slots by which a stream with this window may grow when its reader gets faster: at least up to the window
    /// of a new stream.
    pub(crate) fn room_to_refit(&self, window: u64) -> u64 {
        let as_new = self.initial_window().saturating_sub(window);
        self.room_to_widen().max(as_new)
    }

    /// Bytes that unsent and unacknowledged data may take.
    pub(crate) fn send_buffer_max(&self) -> u64 {
        let receiving = self.promised * SLOT_SIZE as u64;
        let floor = self.max / FLOOR_SHARE;
        self.max - receiving.clamp(floor, self.max - floor)
    }

    /// Bytes that unsent and unacknowledged data takes.
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

    /// Bytes that are lent to arriving data or wait to be sent.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.send_buffered + (self.pool.lent() * SLAB_SIZE) as u64
    }

    /// Bounds the pool: a peer may send more than it was promised, which must not take memory from sending.
    fn bound_pool(&mut self) {
        self.pool.set_max(self.max - self.sending());
    }

    /// Bytes that sending takes, or that are kept for it.
    fn sending(&self) -> u64 {
        let floor = self.max / FLOOR_SHARE;
        self.send_buffered.clamp(floor, self.max)
    }
}

/// Slots of memory that a stream with this window may take. Memory is lent by the slab, and the first and the
/// last slab may be used in part only.
fn promised_to_stream(window: u64) -> u64 {
    window + 2 * SLAB_SLOTS
}

/// Slots that fit in `bytes`.
fn slots(bytes: u64) -> u64 {
    bytes / SLOT_SIZE as u64
}

/// Slots that new streams may be promised all together.
fn initial_slots(memory_max: u64) -> u64 {
    slots(memory_max / 8 * 5)
}

fn initial_window(free_slots: u64) -> u64 {
    (free_slots / INITIAL_SHARE).max(CONTROL_WINDOW)
}

/// Slots that a bulk stream may use at once on a new connection whose receiver has `memory_max`
/// bytes.
pub(crate) fn first_initial_window(memory_max: u64) -> u64 {
    initial_window(initial_slots(memory_max))
}

/// Streams that one of `peers` may have open at once without ever waiting for leave to open one more, where all links of
/// a gateway share `memory_max`. The limit that a peer is told moves by quarters, so one quarter may be used up and not
/// told again yet.
pub fn streams_at_once(memory_max: ByteCount, peers: usize) -> usize {
    let of_peer = streams_max(memory_max.bytes() / peers.max(1) as u64);
    (of_peer - of_peer / 4) as usize
}

/// Streams that the peer may have open at once: each must find one slab in half of `memory_max` bytes,
/// and half of those are left for streams that have much to send.
pub(crate) fn streams_max(memory_max: u64) -> u32 {
    let slabs = memory_max / SLAB_SIZE as u64;
    u32::try_from(slabs / 4)
        .unwrap_or(STREAMS_MAX)
        .clamp(16, STREAMS_MAX)
}
