//! Sending part of a connection: the contents of datagrams.
//!
//! Input: the interest that a datagram serves. Output: that datagram, or a batch of datagrams of
//! equal size if the interest is data. The order of interests is in [`interest`](super::interest).
//!
//! Data consists of control frames and slots. Lost slots are sent first, and new slots second. If
//! the path would otherwise be idle, unacknowledged slots are repeated. The module
//! [`recovery`](crate::recovery) detects losses.

use std::net::SocketAddr;

use super::{Connection, ip_overhead, repeat::FLIGHT_INTERVAL};
use crate::{
    control_frame::{ControlFrame, ECHOES_PER_REPORT},
    handshake::EncryptionLevel,
    recovery::{Item, PacketContents},
    stream::ChunkRef,
    time::Time,
    wire::{
        frame::{self, CONTROL_SIZE_MAX, Frame},
        packet::{self, HEADER_SIZE, TAG_SIZE},
    },
};

/// Datagrams to one address, stored consecutively in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Destination address of the datagrams.
    pub to: SocketAddr,
    /// Size of each datagram in bytes. Only the last datagram may be shorter.
    pub segment_bytes: usize,
}

/// Minimum number of packets of a packet train. The time in which the packets of a train arrive
/// shows the capacity of the path. Before the first data, a few commands and keep-alives are sent,
/// but not together. Because of the minimum, they form no train.
///
/// At 384 Mbit/s or less, a train of this length takes longer than the resolution of the receiver's
/// timer (0.5 ms). On a faster path, such a train gives only a lower bound of the capacity.
const TRAIN_PACKETS_MIN: usize = 16;

/// Maximum number of unused bytes in a packet that counts as full.
const BATCH_SLACK: usize = 8;

/// Contents that the congestion window permits in the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendWindow {
    Open,
    /// Only control frames and slots of control streams may be sent, because the window does not
    /// apply to them. Such packets must contain no bulk slots. Otherwise a peer that sends no
    /// reports could provoke control frames, and thereby bulk slots beyond the window.
    ForControl,
    /// The window is full, and no control contents wait to be sent.
    Shut,
}

/// Number of streams whose new bytes are counted before bytes may leave without pacing. The limit
/// bounds the work of a count.
const UNPACED_STREAMS_MAX: usize = 32;

impl Connection {
    /// Whether an operator's rate cap is below the rate of the congestion controller.
    pub(super) fn is_capped(&self) -> bool {
        self.rate_max.bytes_per_s() < self.path.controller.rate_bytes_per_s()
    }

    /// Increases the pacer's budget for the time until `now`. Starts a packet train if the
    /// controller requests a train and enough data are waiting. Permits a few new bytes without
    /// pacing if the controller permits it.
    fn earn(&mut self, now: Time) {
        let rate = self
            .path
            .controller
            .rate_bytes_per_s()
            .min(self.rate_max.bytes_per_s());
        self.path.pacer.update(now, rate);
        self.begin_train(now);
        self.permit_unpaced();
    }

    /// Writes a batch of data packets, as far as the pacer and the congestion window permit.
    pub(super) fn write_data(
        &mut self,
        out: &mut Vec<u8>,
        count_max: usize,
        now: Time,
    ) -> Option<Transmit> {
        self.earn(now);
        let start = out.len();
        let mut segment_bytes = self.path.mtu.payload_bytes();
        for count in 0..count_max {
            let before = out.len();
            if !self.path.pacer.may_send() {
                break;
            }
            let window = self.window();
            if window == SendWindow::Shut
                || !self.write_data_packet(out, segment_bytes, window, now)
            {
                break;
            }
            let len = out.len() - before;
            // A batch contains only full packets, because the size of a short packet would apply to
            // all later packets of the batch.
            let is_full = len + BATCH_SLACK >= self.path.mtu.payload_bytes();
            let is_last = !is_full || (count > 0 && len < segment_bytes);
            if count == 0 {
                segment_bytes = len;
            }
            if is_last {
                break;
            }
        }
        (out.len() > start).then_some(Transmit {
            to: self.path.remote,
            segment_bytes,
        })
    }

    /// Writes the initiator's last handshake flight again. Returns `None` once the peer has
    /// confirmed the flight.
    pub(super) fn write_flight(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let flight = self.unconfirmed.as_mut()?;
        flight.next = now + FLIGHT_INTERVAL.max(self.path.rtt.smoothed() / 8);
        let start = out.len();
        flight
            .handshake
            .0
            .put_packet(out, self.peer_id, EncryptionLevel::Handshake, 0);
        self.liveness.on_sent(false, now);
        Some(Transmit {
            to: self.path.remote,
            segment_bytes: out.len() - start,
        })
    }

    /// Writes a packet with a report of arrived packets.
    pub(super) fn write_report(&mut self, out: &mut Vec<u8>, now: Time) -> Transmit {
        let to = self.path.remote;
        let start = self.begin_packet(out);
        // If an idle path carries only the peer's keep-alives, this side must send a packet itself
        // to measure the path.
        let asks = self.path.rtt.take_wish(now);
        if asks {
            Frame::Ping.put(out);
        }
        let space = start + self.path.mtu.payload_bytes() - TAG_SIZE - 1 - out.len();
        frame::put_feedback_type(out);
        let echoes = ECHOES_PER_REPORT.min(self.streams.controls.echoes());
        let reserved = echoes * CONTROL_SIZE_MAX;
        self.received.write_report(out, space - reserved, now);
        self.put_echoes(out, start + self.path.mtu.payload_bytes() - TAG_SIZE);
        let segment_bytes =
            self.end_packet(out, start, asks, false, PacketContents::default(), now);
        self.stats.feedback_bytes += (segment_bytes + ip_overhead(&to)) as u64;
        Transmit { to, segment_bytes }
    }

    /// Writes a padded packet that tests whether the path carries packets of this size.
    pub(super) fn write_mtu_probe(&mut self, out: &mut Vec<u8>, now: Time) -> Transmit {
        let to = self.path.remote;
        let size = self.path.mtu.take_probe(now, self.path.rtt.smoothed());
        let start = self.begin_packet(out);
        Frame::Ping.put(out);
        out.resize(start + size - TAG_SIZE, 0);
        let mut contents = PacketContents::default();
        let packet_bytes = size + ip_overhead(&to);
        contents.push(Item::Control(ControlFrame::MtuProbe(packet_bytes as u16)));
        let segment_bytes = self.end_packet(out, start, false, false, contents, now);
        Transmit { to, segment_bytes }
    }

    pub(super) fn write_single(
        &mut self,
        out: &mut Vec<u8>,
        to: SocketAddr,
        frame: &Frame<'_>,
        now: Time,
    ) -> Transmit {
        let start = self.begin_packet(out);
        frame.put(out);
        let eliciting = matches!(frame, Frame::Ping);
        let segment_bytes =
            self.end_packet(out, start, eliciting, false, PacketContents::default(), now);
        Transmit { to, segment_bytes }
    }

    pub(super) fn has_data(&mut self, now: Time) -> bool {
        // The call of `streams.has_data` also queues delayed copies that are due, so it must come
        // first.
        self.streams.has_data(now) || !self.streams.controls.is_empty()
    }

    pub(super) fn window(&mut self) -> SendWindow {
        if (self.sent.bytes_in_flight() as f64) < self.path.controller.window_bytes() {
            SendWindow::Open
        } else if self.streams.has_new_control() || !self.streams.controls.is_empty() {
            SendWindow::ForControl
        } else {
            SendWindow::Shut
        }
    }

    /// Returns the number of packets of a train to start now, or zero for no train.
    ///
    /// The packets must be sent at once, so the train contains only data that wait for their first
    /// transmission. No train is sent under a rate cap, since trains bypass the pacer.
    pub(super) fn train_to_begin(&mut self) -> usize {
        if self.is_capped() {
            return 0;
        }
        let in_flight = self.sent.bytes_in_flight() as f64;
        let room = self.path.controller.window_bytes() - in_flight;
        let wanted = self.path.controller.train_wanted(room);
        if wanted == 0 {
            return 0;
        }
        let payload_bytes = self.path.mtu.payload_bytes();
        let new_bytes = self.streams.new_bytes(wanted * payload_bytes, wanted);
        let packets = new_bytes / payload_bytes;
        if packets < TRAIN_PACKETS_MIN {
            return 0;
        }
        packets
    }

    fn begin_train(&mut self, now: Time) {
        let packets = self.train_to_begin();
        if packets > 0 {
            let now_s = now.seconds_since(Time::default());
            self.path.controller.on_train_begun(packets, now_s);
            self.path.train_left = packets;
            self.path.pacer.allow(self.wire_bytes(packets));
        }
    }

    /// Returns the size on the wire of a number of full packets, in bytes.
    fn wire_bytes(&self, packets: usize) -> f64 {
        let packet_bytes = self.path.mtu.payload_bytes() + ip_overhead(&self.path.remote);
        (packets * packet_bytes) as f64
    }

    /// Permits new bytes to leave at once, if the controller permits them all in flight without
    /// pacing.
    fn permit_unpaced(&mut self) {
        let room = self.path.controller.unpaced_bytes() - self.sent.bytes_in_flight() as f64;
        if room < 1.0 || self.is_capped() {
            return;
        }
        // The count ends at the limit, so a lower count covers all new bytes of these streams.
        let room = room as usize;
        let waiting = self.streams.new_bytes(room, UNPACED_STREAMS_MAX);
        if waiting > 0 && waiting < room {
            let packets = waiting.div_ceil(self.path.mtu.payload_bytes());
            self.path.pacer.allow_at_least(self.wire_bytes(packets));
        }
    }

    /// Appends one packet of control frames and slots, at most `size_max` bytes. Returns `false`
    /// and writes nothing if there are no contents.
    fn write_data_packet(
        &mut self,
        out: &mut Vec<u8>,
        size_max: usize,
        window: SendWindow,
        now: Time,
    ) -> bool {
        let start = self.begin_packet(out);
        let end_max = start + size_max - TAG_SIZE;
        let mut contents = PacketContents::default();
        let is_full_size = size_max == self.path.mtu.payload_bytes();
        let slots = (is_full_size, window);
        loop {
            self.put_controls(out, end_max, &mut contents);
            if contents.first.is_some() {
                self.streams.raise_limit();
            }
            self.put_slots(out, end_max, slots, &mut contents, now);
            // A pass of repeats that finds no slot may queue the end record of a stream as a
            // control frame.
            if contents.first.is_some() || self.streams.controls.is_empty() {
                break;
            }
        }
        if contents.first.is_none() {
            out.truncate(start);
            // A full packet was permitted, but no data were waiting. The application thus limited
            // the sender.
            if is_full_size {
                self.app_limited_until = self.sent.next_number();
            }
            return false;
        }
        let in_train = self.path.train_left > 0;
        self.path.train_left = self.path.train_left.saturating_sub(1);
        self.end_packet(out, start, true, in_train, contents, now);
        true
    }

    /// Fills the packet up to offset `end_max` with slots. All slots except the last are written
    /// with their length.
    fn put_slots(
        &mut self,
        out: &mut Vec<u8>,
        end_max: usize,
        (is_full_size, window): (bool, SendWindow),
        contents: &mut PacketContents,
        now: Time,
    ) {
        /// Minimum free space in bytes for which another slot is added to the packet.
        const SPACE_MIN: usize = 64;
        /// Size of the length field of a slot that does not extend to the end of the packet, in
        /// bytes.
        const LEN_SIZE: usize = 2;
        while out.len() + SPACE_MIN <= end_max {
            let space = end_max - out.len();
            if window == SendWindow::ForControl && !self.streams.has_new_control() {
                return;
            }
            if !self.streams.has_new_control()
                && let Some((chunk, len)) = self.again(now, contents)
            {
                let header = frame::chunk_header_size(chunk.stream, chunk.index);
                if header + len > space {
                    // The slot does not fit into an empty packet, because it was cut when the path
                    // MTU was larger.
                    if contents.first.is_none() && is_full_size {
                        self.put_half(out, chunk, len, contents);
                    }
                    return;
                }
                let to_end = header + len + LEN_SIZE + SPACE_MIN > space;
                let is_repeat = !self.streams.pop_again_if_front(chunk);
                if to_end {
                    frame::put_chunk_to_end(out, chunk.stream, chunk.index);
                } else {
                    frame::put_chunk(out, chunk.stream, chunk.index, len);
                }
                let stream = self.streams.by_ref(chunk).expect("the slot was just found");
                stream.send.take_again(chunk.index, out);
                self.stats.payload_again += len as u64;
                self.stats.payload_repeated += if is_repeat { len as u64 } else { 0 };
                contents.push(Item::Chunk(chunk));
                if to_end {
                    return;
                }
                continue;
            }
            let Some(stream) = self.streams.next_new() else {
                return;
            };
            let (number, index) = (stream.number, stream.send.next_index());
            let header = frame::chunk_header_size(number, index);
            let unsent = stream.send.unsent_bytes();
            let to_end = header + unsent + LEN_SIZE + SPACE_MIN > space;
            let len = if to_end {
                frame::put_chunk_to_end(out, number, index);
                (space - header).min(unsent).min(crate::stream::SLOT_SIZE)
            } else {
                frame::put_chunk(out, number, index, unsent);
                unsent
            };
            let chunk = self.streams.take_new(number, len, out);
            self.stats.payload_sent += len as u64;
            contents.push(Item::Chunk(chunk));
            if to_end {
                return;
            }
        }
    }

    /// Appends one half of a slot that has `len` bytes in total.
    fn put_half(
        &mut self,
        out: &mut Vec<u8>,
        chunk: ChunkRef,
        len: usize,
        contents: &mut PacketContents,
    ) {
        let stream = self.streams.by_ref(chunk).expect("the slot was just found");
        let (half, is_last) = stream.send.next_half(chunk.index);
        frame::put_half(out, chunk.stream, chunk.index, len, half);
        stream.send.take_half(chunk.index, out);
        let is_repeat = is_last && !self.streams.pop_again_if_front(chunk);
        let bytes = half.of(len).len() as u64;
        self.stats.payload_again += bytes;
        self.stats.payload_repeated += if is_repeat { bytes } else { 0 };
        contents.push(Item::Half(chunk, half));
    }

    /// Appends a packet with an arbitrary payload, as a faulty or hostile peer might send it.
    #[cfg(any(test, feature = "fuzzing", feature = "sim"))]
    pub(crate) fn write_payload(&mut self, out: &mut Vec<u8>, payload: &[u8], now: Time) {
        let start = self.begin_packet(out);
        out.extend_from_slice(payload);
        self.end_packet(out, start, false, false, PacketContents::default(), now);
    }

    fn begin_packet(&mut self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let phase = self.keys.phase_for_sealing();
        packet::put_data_header(out, self.peer_id, self.sent.next_number(), phase);
        debug_assert_eq!(out.len() - start, HEADER_SIZE);
        start
    }

    /// Encrypts the packet and adds it to the log of sent packets. Returns the length of the
    /// packet.
    fn end_packet(
        &mut self,
        out: &mut Vec<u8>,
        start: usize,
        eliciting: bool,
        in_train: bool,
        contents: PacketContents,
        now: Time,
    ) -> usize {
        let number = self.sent.next_number();
        #[cfg(feature = "sim")]
        self.forge(out, start);
        self.keys.seal(out, start, number);
        let len = out.len() - start;
        let wire_bytes = len + ip_overhead(&self.path.remote);
        self.sent
            .push(now, wire_bytes, eliciting, in_train, contents);
        if eliciting {
            self.tail_repeater.look_again();
            self.path
                .controller
                .on_sent(number, wire_bytes, now.seconds_since(Time::default()));
            self.path.pacer.on_sent(wire_bytes);
        }
        self.liveness.on_sent(eliciting, now);
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += wire_bytes as u64;
        len
    }
}
