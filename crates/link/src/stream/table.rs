//! Table of all streams of one connection: opens and removes streams, and selects the stream that
//! sends next.

mod limit;
mod repeats;
mod windows;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
};

use self::repeats::RepeatQueue;
use super::{
    COUNT_MAX, ChunkRef, StreamClass, StreamNumber,
    copies::copies_in_round,
    credit_pool::{InitialWindow, WINDOW_FLOOR},
    memory::{CONTROL_WINDOW, StreamMemory, streams_at_first, streams_max},
    recv::{RecvHalf, RecvState},
    send::SendHalf,
    slab::SlabPool,
};
use crate::{
    control_frame::{ControlFrame, ControlQueue},
    id_map::IdMap,
    time::Time,
    wire::frame::Half,
};

/// One stream with its sending half and its receiving half.
pub(crate) struct Stream {
    pub(crate) number: u32,
    pub(crate) class: StreamClass,
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    /// Whether the peer has received everything that this side sent, or both sides abandoned the
    /// sending half.
    pub(crate) send_done: bool,
    /// Whether the receiving half is finished. Either the peer has been notified that this side
    /// received everything, or both sides abandoned the receiving half.
    pub(crate) recv_done: bool,
    /// Initial window of the stream. `None` once the memory of the window has been freed.
    share: Option<InitialWindow>,
    /// Whether the initial window must still be announced to the peer.
    is_share_news: bool,
    /// Code with which the application refused further bytes. While it is set, arriving slots are
    /// discarded.
    pub(crate) stop_code: Option<u32>,
    in_ready_queue: bool,
    /// Whether a frame with the stream's credit waits to be sent.
    pub(crate) credit_queued: bool,
    /// Whether the application was notified that the stream is readable, and has not read since
    /// then.
    pub(crate) reported_readable: bool,
}

/// Stream event for the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The peer opened a stream.
    Incoming { stream: u32, class: StreamClass },
    /// The stream has bytes to read, has ended, or has failed.
    Readable { stream: u32 },
    /// The peer's application read all bytes up to the end.
    SendDone { stream: u32 },
    /// The peer refuses further bytes of the stream.
    Stopped { stream: u32, code: u32 },
}

/// Number of slots that one bulk stream may send before the next bulk stream has its turn.
const QUANTUM_SLOTS: u32 = 32;

/// All streams of a connection.
pub(crate) struct StreamTable {
    places: Vec<Option<Stream>>,
    vacant: Vec<u32>,
    by_number: IdMap<u32, u32>,
    we_initiated: bool,
    next_count: u32,
    /// Total number of streams that the peer permits this side to open.
    peer_limit: u32,
    /// Total number of streams that the peer has opened.
    peer_count: u32,
    /// Values of the count field (see [`StreamNumber`]) for implicitly opened streams. Such a
    /// stream opens because a frame of a later stream arrived first.
    peer_skipped: BTreeSet<u32>,
    peer_open: u32,
    announced_limit: u32,
    ready_control: VecDeque<u32>,
    ready_bulk: VecDeque<u32>,
    quantum_left: u32,
    retransmit: VecDeque<ChunkRef>,
    delayed: BinaryHeap<Reverse<(Time, ChunkRef)>>,
    repeats: RepeatQueue,
    pub(crate) controls: ControlQueue,
    pub(crate) events: VecDeque<StreamEvent>,
    pub(crate) memory: StreamMemory,
    streams_max: u32,
    /// Maximum number of new streams that the peer may open in addition to its earlier streams.
    streams_at_first: u32,
}

/// Limits for the streams of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLimits {
    pub(crate) initial_credit: u64,
    pub(crate) peer_limit: u32,
    /// Memory limit for both directions together, in bytes.
    pub(crate) memory_max: u64,
}

impl StreamTable {
    pub(crate) fn new(we_initiated: bool, limits: StreamLimits) -> Self {
        Self {
            places: Vec::new(),
            vacant: Vec::new(),
            by_number: IdMap::default(),
            we_initiated,
            next_count: 0,
            peer_limit: limits.peer_limit,
            peer_count: 0,
            peer_skipped: BTreeSet::new(),
            peer_open: 0,
            announced_limit: streams_at_first(limits.memory_max),
            ready_control: VecDeque::new(),
            ready_bulk: VecDeque::new(),
            quantum_left: QUANTUM_SLOTS,
            retransmit: VecDeque::new(),
            delayed: BinaryHeap::new(),
            repeats: RepeatQueue::default(),
            controls: ControlQueue::default(),
            events: VecDeque::new(),
            memory: StreamMemory::new(limits.memory_max, limits.initial_credit),
            streams_max: streams_max(limits.memory_max),
            streams_at_first: streams_at_first(limits.memory_max),
        }
    }

    /// Announces credit that ended streams have returned. The announcement contains the number of
    /// the peer's next stream. It is therefore delayed until frames of all earlier streams have
    /// arrived.
    fn announce_credit(&mut self) {
        if self.peer_skipped.is_empty() && self.memory.announce_returned(self.peer_count) {
            self.controls.push(ControlFrame::InitialWindow);
        }
    }

    /// Frees the window memory of a stream that has been read completely, so that the peer's next
    /// stream can use that memory.
    pub(crate) fn return_window(&mut self, number: u32) {
        let by_peer = self.is_by_peer(number);
        let Some(stream) = self.get(number) else {
            return;
        };
        let window = stream.recv.window();
        if let Some(share) = stream.share.take() {
            self.memory.take_back(by_peer, share, window);
            self.raise_limit();
            self.announce_credit();
        }
    }

    /// Whether `number` is the number of a peer-opened stream.
    pub(crate) fn is_by_peer(&self, number: u32) -> bool {
        StreamNumber::decode(number).by_initiator != self.we_initiated
    }

    /// Queues the frame that grants the peer credit on a bulk stream opened by this side. Callers
    /// use it when the application first writes to the stream or ends it.
    pub(crate) fn queue_initial_window(&mut self, number: u32) {
        let is_news = self
            .get(number)
            .is_some_and(|stream| std::mem::take(&mut stream.is_share_news));
        if is_news {
            self.queue_credit(number);
        }
    }

    /// Queues a frame with the credit of a stream, unless such a frame is already queued.
    pub(crate) fn queue_credit(&mut self, number: u32) {
        if let Some(stream) = self.get(number).filter(|stream| !stream.credit_queued) {
            stream.credit_queued = true;
            self.controls.push(ControlFrame::Credit(number));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Stream> {
        let place = *self.by_number.get(&number)?;
        self.places[place as usize].as_mut()
    }

    /// Returns the stream, and the slab pool of its receiving half.
    pub(crate) fn get_with_pool(&mut self, number: u32) -> Option<(&mut Stream, &mut SlabPool)> {
        let place = *self.by_number.get(&number)?;
        Some((self.places[place as usize].as_mut()?, &mut self.memory.pool))
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.places
            .iter()
            .flatten()
            .map(|stream| stream.number)
            .collect()
    }

    /// Opens a stream from this side. Returns `None` if the peer's stream limit or this side's
    /// memory permits no further stream.
    ///
    /// The memory check is needed because a peer may keep finished streams open for a long time.
    pub(crate) fn open(&mut self, class: StreamClass, now_s: f64) -> Option<u32> {
        let open = self.by_number.len() as u32 - self.peer_open;
        let fits = class == StreamClass::Control || self.memory.fits_own_stream();
        if self.next_count >= self.peer_limit.min(COUNT_MAX) || open >= self.streams_max || !fits {
            return None;
        }
        let number = StreamNumber {
            count: self.next_count,
            class,
            by_initiator: self.we_initiated,
        }
        .encode();
        self.next_count += 1;
        self.insert(number, class, now_s);
        Some(number)
    }

    /// Whether the stream numbers of this connection may soon run out. Another connection should
    /// then open the next streams.
    pub(crate) fn is_wearing_out(&self) -> bool {
        self.next_count.max(self.peer_count) >= COUNT_MAX / 2
    }

    /// Changes the state as if half of the stream numbers had been used.
    #[cfg(test)]
    pub(crate) fn wear_out(&mut self) {
        self.next_count = COUNT_MAX / 2;
        self.peer_limit = COUNT_MAX;
    }

    /// Returns the stream `number`. The peer sent this number in a frame. If the stream is new, the
    /// method opens it. Returns `Ok(None)` if the stream is closed.
    ///
    /// # Errors
    /// Returns an error if a stream with this number cannot exist, which is a protocol violation by
    /// the peer.
    pub(crate) fn named_by_peer(
        &mut self,
        number: u32,
        now_s: f64,
    ) -> Result<Option<&mut Stream>, InvalidStream> {
        if self.by_number.contains_key(&number) {
            return Ok(self.get(number));
        }
        let parts = StreamNumber::decode(number);
        if parts.by_initiator == self.we_initiated {
            return if parts.count < self.next_count {
                Ok(None)
            } else {
                Err(InvalidStream)
            };
        }
        if parts.count >= self.announced_limit {
            return Err(InvalidStream);
        }
        if parts.count >= self.peer_count {
            self.peer_skipped.extend(self.peer_count..parts.count);
            self.peer_count = parts.count + 1;
        } else if !self.peer_skipped.remove(&parts.count) {
            return Ok(None);
        }
        self.peer_open += 1;
        self.insert(number, parts.class, now_s);
        self.raise_limit();
        self.announce_credit();
        self.events.push_back(StreamEvent::Incoming {
            stream: number,
            class: parts.class,
        });
        Ok(self.get(number))
    }

    /// Removes the stream if both its halves are done.
    pub(crate) fn remove_if_done(&mut self, number: u32) {
        let Some(place) = self.by_number.get(&number).copied() else {
            return;
        };
        let stream = self.places[place as usize]
            .as_mut()
            .expect("the index is kept with the table");
        if !stream.send_done || !stream.recv_done {
            return;
        }
        stream.recv.release(&mut self.memory.pool);
        let (share, window) = (stream.share, stream.recv.window());
        if stream.in_ready_queue {
            // If the entry stayed in the queue, the next stream with this table index would be
            // queued twice.
            let queue = match stream.class {
                StreamClass::Control => &mut self.ready_control,
                StreamClass::Bulk => &mut self.ready_bulk,
            };
            queue.retain(|ready| *ready != place);
        }
        self.places[place as usize] = None;
        self.vacant.push(place);
        self.by_number.remove(&number);
        let by_peer = self.is_by_peer(number);
        if let Some(share) = share {
            self.memory.take_back(by_peer, share, window);
        }
        if by_peer {
            self.peer_open -= 1;
            self.reserve_streams();
            self.raise_limit();
        }
        self.announce_credit();
    }

    /// Adds the stream to the queue of streams that have new bytes to send.
    pub(crate) fn make_ready(&mut self, number: u32) {
        let Some(place) = self.by_number.get(&number).copied() else {
            return;
        };
        let stream = self.places[place as usize]
            .as_mut()
            .expect("the index is kept with the table");
        if stream.send.end_is_due() {
            self.repeats.begin(place);
            stream.send.mark_end_sent(true);
            self.controls.push(ControlFrame::End(number));
        }
        if stream.in_ready_queue || !stream.send.has_new() {
            return;
        }
        stream.in_ready_queue = true;
        match stream.class {
            StreamClass::Control => self.ready_control.push_back(place),
            StreamClass::Bulk => self.ready_bulk.push_back(place),
        }
    }

    /// Returns the stream that sends the next new slot. Control streams are selected before bulk
    /// streams.
    pub(crate) fn next_new(&mut self) -> Option<&mut Stream> {
        let mut place = self.first_ready(StreamClass::Control);
        if place.is_none() {
            place = self.first_ready(StreamClass::Bulk);
            if place.is_some() && self.quantum_left == 0 && self.ready_bulk.len() > 1 {
                self.ready_bulk.rotate_left(1);
                self.quantum_left = QUANTUM_SLOTS;
                place = self.first_ready(StreamClass::Bulk);
            }
        }
        self.places[place? as usize].as_mut()
    }

    /// Returns the table index of the first stream in the queue of `class` that has new bytes.
    /// Streams before it have no new bytes and are removed from the queue.
    fn first_ready(&mut self, class: StreamClass) -> Option<u32> {
        let queue = match class {
            StreamClass::Control => &mut self.ready_control,
            StreamClass::Bulk => &mut self.ready_bulk,
        };
        loop {
            let place = *queue.front()?;
            if let Some(stream) = self.places[place as usize].as_mut() {
                if stream.in_ready_queue && stream.send.has_new() {
                    return Some(place);
                }
                stream.in_ready_queue = false;
                self.quantum_left = QUANTUM_SLOTS;
            }
            queue.pop_front();
        }
    }

    /// Creates a new slot of at most `len_max` bytes on stream `number`, and appends its bytes to
    /// `out`. [`next_new`](Self::next_new) must have returned that stream. Returns the slot's
    /// identifier for the log of sent packets.
    pub(crate) fn take_new(&mut self, number: u32, len_max: usize, out: &mut Vec<u8>) -> ChunkRef {
        let slot = self.by_number[&number];
        let stream = self.places[slot as usize]
            .as_mut()
            .expect("the index is kept with the table");
        if stream.send.is_settled() {
            self.repeats.begin(slot);
        }
        let index = stream.send.take_new(len_max, out);
        if stream.class == StreamClass::Bulk {
            self.quantum_left = self.quantum_left.saturating_sub(1);
        }
        self.make_ready(number);
        ChunkRef {
            slot,
            stream: number,
            index,
        }
    }

    pub(crate) fn by_ref(&mut self, chunk: ChunkRef) -> Option<&mut Stream> {
        self.places
            .get_mut(chunk.slot as usize)?
            .as_mut()
            .filter(|stream| stream.number == chunk.stream)
    }

    /// Queues a lost slot for retransmission. If `half` is given, only that half of the slot was
    /// lost.
    ///
    /// Later retransmission rounds send more copies, one every `spacing_s` seconds. At the tail of
    /// a stream, at least `tail_copies` copies are sent if no stream has new bytes to send.
    pub(crate) fn on_lost(
        &mut self,
        chunk: ChunkRef,
        half: Option<Half>,
        now: Time,
        spacing_s: f64,
        loss: f64,
        tail_copies: u8,
    ) {
        let is_idle = self.next_new().is_none();
        let Some(stream) = self.by_ref(chunk) else {
            return;
        };
        let round = match half {
            Some(half) => stream.send.on_half_lost(chunk.index, half),
            None => stream.send.on_lost(chunk.index),
        };
        let Some(round) = round else {
            return;
        };
        let mut copies = copies_in_round(round, loss, stream.send.is_window_short());
        if is_idle && stream.send.is_tail() {
            copies = copies.max(u32::from(tail_copies));
        }
        stream.send.set_queued(chunk.index, copies);
        self.retransmit.push_back(chunk);
        for copy in 1..copies {
            let due = now.after_seconds(spacing_s * f64::from(copy));
            self.delayed.push(Reverse((due, chunk)));
        }
    }

    /// Handles the arrival of one half of a slot. Queues the slot again if its other half is
    /// neither in flight nor queued.
    pub(crate) fn on_half_arrived(&mut self, chunk: ChunkRef, half: Half) {
        let Some(stream) = self.by_ref(chunk) else {
            return;
        };
        let (freed, is_lost) = stream.send.on_half_arrived(chunk.index, half);
        if is_lost {
            stream.send.set_queued(chunk.index, 1);
            self.retransmit.push_back(chunk);
        }
        self.memory.remove_send_buffered(freed);
    }

    /// Returns the next slot to retransmit, and the length of the slot.
    pub(crate) fn next_again(&mut self, now: Time) -> Option<(ChunkRef, usize)> {
        while let Some(Reverse((due, chunk))) = self.delayed.peek().copied() {
            if due > now {
                break;
            }
            self.delayed.pop();
            self.retransmit.push_back(chunk);
        }
        while let Some(chunk) = self.retransmit.front().copied() {
            if let Some(len) = self.missing_len(chunk) {
                return Some((chunk, len));
            }
            self.retransmit.pop_front();
        }
        None
    }

    /// Returns the length of a slot, or `None` if the slot has arrived.
    fn missing_len(&mut self, chunk: ChunkRef) -> Option<usize> {
        self.by_ref(chunk)?.send.missing_len(chunk.index)
    }

    /// Removes a slot from the front of the retransmission queue, after
    /// [`next_again`](Self::next_again) has returned it. Returns whether the slot was in the queue.
    /// A slot from [`next_repeat`](Self::next_repeat) is never in the queue.
    pub(crate) fn pop_again_if_front(&mut self, chunk: ChunkRef) -> bool {
        let is_front = self.retransmit.front() == Some(&chunk);
        if is_front {
            self.retransmit.pop_front();
            if let Some(stream) = self.by_ref(chunk) {
                stream.send.unqueue(chunk.index);
            }
        }
        is_front
    }

    /// Whether a slot waits to be sent. Pacing and the congestion window apply to such slots.
    pub(crate) fn has_data(&mut self, now: Time) -> bool {
        self.next_again(now).is_some() || self.next_new().is_some()
    }

    /// Returns the number of bytes that the next `streams_max` streams may send for the first time.
    /// The result is at most `bytes_max`.
    pub(crate) fn new_bytes(&mut self, bytes_max: usize, streams_max: usize) -> usize {
        // Streams without new bytes leave the queue.
        self.next_new();
        let ready = self.ready_control.iter().chain(&self.ready_bulk);
        let mut bytes = 0;
        for place in ready.take(streams_max) {
            let stream = self.places[*place as usize].as_ref();
            bytes += stream.map_or(0, |stream| stream.send.new_bytes());
            if bytes >= bytes_max {
                return bytes_max;
            }
        }
        bytes
    }

    /// Whether a control stream has new bytes to send.
    pub(crate) fn has_new_control(&mut self) -> bool {
        self.first_ready(StreamClass::Control).is_some()
    }

    /// Returns the time at which the next delayed copy is due. Drops earlier copies of slots that
    /// have arrived.
    pub(crate) fn next_delayed(&mut self) -> Option<Time> {
        while let Some(Reverse((due, chunk))) = self.delayed.peek().copied() {
            if self.missing_len(chunk).is_some() {
                return Some(due);
            }
            self.delayed.pop();
        }
        None
    }

    /// Notifies the application that a stream is readable, at most once between two reads.
    pub(crate) fn report_readable(&mut self, number: u32) {
        let Some(stream) = self.get(number) else {
            return;
        };
        let worth = stream.recv.is_readable() || stream.recv.state() != RecvState::Open;
        if worth && !stream.reported_readable && stream.stop_code.is_none() {
            stream.reported_readable = true;
            self.events
                .push_back(StreamEvent::Readable { stream: number });
        }
    }

    fn insert(&mut self, number: u32, class: StreamClass, now_s: f64) {
        // Both directions of a stream get a window. Each side grants slots for the direction in
        // which it receives.
        let parts = StreamNumber::decode(number);
        let by_peer = parts.by_initiator != self.we_initiated;
        let share = (class == StreamClass::Bulk).then(|| self.memory.promise_stream(by_peer));
        let credit = match class {
            StreamClass::Control => CONTROL_WINDOW,
            StreamClass::Bulk if by_peer => WINDOW_FLOOR,
            StreamClass::Bulk => self.memory.take_peer_credit(parts.count),
        };
        let recv = match share {
            None => RecvHalf::new(CONTROL_WINDOW, CONTROL_WINDOW, CONTROL_WINDOW, now_s),
            Some(share) if by_peer => {
                // The peer's streams may have taken their shares in another order.
                let limit = self.memory.first_initial_window();
                RecvHalf::new(share.window, WINDOW_FLOOR, limit, now_s)
            }
            Some(share) => RecvHalf::new(share.window, WINDOW_FLOOR, WINDOW_FLOOR, now_s),
        };
        let stream = Stream {
            number,
            class,
            send: SendHalf::new(credit),
            recv,
            send_done: false,
            share,
            is_share_news: share.is_some() && !by_peer,
            recv_done: false,
            stop_code: None,
            in_ready_queue: false,
            credit_queued: false,
            reported_readable: false,
        };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.places[place as usize] = Some(stream);
                place
            }
            None => {
                self.places.push(Some(stream));
                (self.places.len() - 1) as u32
            }
        };
        self.by_number.insert(number, place);
    }
}

/// Error: the peer used the number of a stream that cannot exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidStream;

#[cfg(test)]
mod tests;
