//! The sending side of a connection: which datagram goes next, and when.
//!
//! In this order: the handshake flight until the peer confirms it, answers to challenges, reports,
//! probes. Then, paced and within the window, control frames and slots: slots that were given up, new ones, and
//! when the line would be idle those that have not been acknowledged yet. Loss is detected in
//! [`recovery`](crate::recovery).

use std::{net::SocketAddr, time::Duration};

use super::{
    Connection, ConnectionEnd, ip_overhead,
    path::Candidate,
    repeat::{FLIGHT_INTERVAL, RepeatsLeft},
};
use crate::{
    control_frame::Control,
    handshake::Level,
    recovery::{Contents, Item},
    stream::ChunkRef,
    time::Time,
    wire::{
        frame::{self, CONTROL_SIZE_MAX, Frame},
        packet::{self, HEADER_SIZE, TAG_SIZE},
    },
};

/// Datagrams to one address, end to end in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The address that they go to.
    pub to: SocketAddr,
    /// The size of each datagram; the last one may be shorter.
    pub segment_bytes: usize,
}

/// Frames with credit or ends of reading that wait to be repeated beside reports, at most.
const ECHOES_MAX: usize = 64;
const ECHOES_PER_REPORT: usize = 8;
/// Time between two copies of a close: longer than most bursts of losses.
const CLOSE_APART: Duration = Duration::from_millis(40);
/// Packets this much below the full size still count as full.
const BATCH_SLACK: usize = 8;

impl Connection {
    /// Appends datagrams of equal size to `out`, `count_max` at most. `None` when nothing is to be
    /// sent now. Data waits while `is_held` by the cap on all connections together.
    pub(crate) fn poll_transmit(
        &mut self,
        out: &mut Vec<u8>,
        count_max: usize,
        is_held: bool,
        now: Time,
    ) -> Option<Transmit> {
        if self.closed.is_some() {
            return None;
        }
        if let Some(transmit) = self.transmit_challenge(out, now) {
            return Some(transmit);
        }
        if !self.path.is_remote_proven {
            return None;
        }
        if self.close.is_some() {
            return self.transmit_close(out, now);
        }
        if let Some(transmit) = self.transmit_unpaced(out, now) {
            return Some(transmit);
        }
        if self.silent_since.is_some() || is_held {
            return None;
        }
        let rate = self
            .path
            .controller
            .rate_bytes_per_s()
            .min(self.rate_max.bytes_per_s());
        self.path.pacer.update(now, rate);
        self.begin_train();
        let start = out.len();
        let mut segment_bytes = self.path.mtu.payload_bytes();
        for count in 0..count_max {
            let before = out.len();
            if !self.may_send_data() || !self.write_data_packet(out, segment_bytes, now) {
                break;
            }
            let len = out.len() - before;
            // Only full packets make a batch: a short one must not set the size of the rest.
            let is_full = len + BATCH_SLACK >= self.path.mtu.payload_bytes();
            let is_last = !is_full || (count > 0 && len < segment_bytes);
            if count == 0 {
                segment_bytes = len;
            }
            if is_last {
                break;
            }
        }
        (out.len() > start).then(|| self.transmit(self.path.remote, segment_bytes))
    }

    /// When [`poll_transmit`](Self::poll_transmit) or [`on_timeout`](Self::on_timeout) next has
    /// something to do; data is held until `held_until`.
    pub(crate) fn next_timeout(&mut self, held_until: Time, now: Time) -> Time {
        if self.closed.is_some() {
            // The endpoint is to take note.
            return now;
        }
        let mut next = self.last_heard + self.idle_timeout;
        let mut consider = |time: Option<Time>| next = next.min(time.unwrap_or(Time::NEVER));
        consider(self.path.candidate.as_ref().map(Candidate::next_challenge));
        consider(self.path.response.map(|_| now));
        if !self.path.is_remote_proven {
            return next;
        }
        if let Some(close) = &self.close {
            consider(Some(close.next));
            return next;
        }
        consider(self.unconfirmed.as_ref().map(|flight| flight.next));
        consider(self.received.report_due());
        consider(self.doubtful.map(|doubtful| doubtful.end));
        if self.silent_since.is_some() {
            // Nothing else is sent meanwhile, so nothing else is due.
            consider(Some(self.next_probe));
            return next;
        }
        consider(Some(self.last_sent + self.keep_alive));
        consider(self.next_doubt());
        consider(self.path.mtu.probe_due());
        consider(self.silence_deadline());
        consider(self.streams.next_delayed());
        if self.ping_wanted {
            consider(Some(now));
        }
        if self.has_data(now) {
            if self.window_open() {
                consider(Some(self.path.pacer.next_send().max(held_until)));
            }
        } else if self.repeats() && self.window_open() {
            consider(match self.repeats_left {
                RepeatsLeft::Some => Some(self.path.pacer.next_send().max(held_until)),
                RepeatsLeft::NextPass => {
                    let pass = self.repeat_pass + self.repeat_interval();
                    Some(pass.max(self.path.pacer.next_send()).max(held_until))
                }
                RepeatsLeft::None => None,
            });
        }
        next
    }

    /// Another copy of the close, and nothing else any more.
    fn transmit_close(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let close = self.close.as_mut().filter(|close| close.next <= now)?;
        close.copies = close.copies.saturating_sub(1);
        close.next = now + CLOSE_APART;
        let (code, is_last) = (close.code, close.copies == 0);
        if is_last {
            self.closed = Some(ConnectionEnd::ByUs);
        }
        Some(self.write_single(out, self.path.remote, &Frame::Close { code }, now))
    }

    fn transmit_unpaced(&mut self, out: &mut Vec<u8>, now: Time) -> Option<Transmit> {
        let to = self.path.remote;
        if self
            .unconfirmed
            .as_ref()
            .is_some_and(|flight| flight.next <= now)
        {
            let len = self.write_flight(out, now);
            return Some(Transmit {
                to,
                segment_bytes: len,
            });
        }
        if self.received.report_due().is_some_and(|due| due <= now) {
            let start = self.begin_packet(out);
            // Where only the peer's keep-alives cross an idle path, nothing else would measure it for us.
            let asks = self.path.rtt.take_wish(now);
            if asks {
                Frame::Ping.put(out);
            }
            let space = start + self.path.mtu.payload_bytes() - TAG_SIZE - 1 - out.len();
            frame::put_feedback_type(out);
            let reserved = ECHOES_PER_REPORT.min(self.echoes.len()) * CONTROL_SIZE_MAX;
            self.received.write_report(out, space - reserved, now);
            self.put_echoes(out, start + self.path.mtu.payload_bytes() - TAG_SIZE);
            let len = self.end_packet(out, start, asks, false, Contents::default(), now);
            self.stats.feedback_bytes += (len + ip_overhead(&to)) as u64;
            return Some(self.transmit(to, len));
        }
        if self.silent_since.is_some() {
            if self.next_probe > now {
                return None;
            }
            self.next_probe = now + self.probe_pause(now);
            return Some(self.write_single(out, to, &Frame::Ping, now));
        }
        if self.path.mtu.probe_due().is_some_and(|due| due <= now) {
            let size = self.path.mtu.take_probe(now, self.path.rtt.smoothed());
            let start = self.begin_packet(out);
            Frame::Ping.put(out);
            out.resize(start + size - TAG_SIZE, 0);
            let mut contents = Contents::default();
            let packet_bytes = size + ip_overhead(&self.path.remote);
            contents.push(Item::Control(Control::MtuProbe(packet_bytes as u16)));
            let len = self.end_packet(out, start, false, false, contents, now);
            return Some(self.transmit(to, len));
        }
        if std::mem::take(&mut self.ping_wanted) {
            return Some(self.write_single(out, to, &Frame::Ping, now));
        }
        None
    }

    /// The initiator's last flight, until the peer shows that it has it.
    fn write_flight(&mut self, out: &mut Vec<u8>, now: Time) -> usize {
        let flight = self.unconfirmed.as_mut().expect("the caller has checked");
        flight.next = now + FLIGHT_INTERVAL.max(self.path.rtt.smoothed() / 8);
        let start = out.len();
        flight
            .handshake
            .0
            .put_packet(out, self.peer_id, Level::Handshake, 0);
        self.last_sent = now;
        out.len() - start
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
        let len = self.end_packet(out, start, eliciting, false, Contents::default(), now);
        self.transmit(to, len)
    }

    fn transmit(&self, to: SocketAddr, segment_bytes: usize) -> Transmit {
        Transmit { to, segment_bytes }
    }

    fn has_data(&mut self, now: Time) -> bool {
        !self.streams.controls.is_empty() || self.streams.has_data(now)
    }

    fn window_open(&self) -> bool {
        (self.sent.bytes_in_flight() as f64) < self.path.controller.window_bytes()
            || self.streams.has_new_control()
            || !self.streams.controls.is_empty()
    }

    fn may_send_data(&self) -> bool {
        self.path.pacer.may_send() && self.window_open()
    }

    fn begin_train(&mut self) {
        let in_flight = self.sent.bytes_in_flight() as f64;
        let room = self.path.controller.window_bytes() - in_flight;
        let train = self.path.controller.take_train(room);
        if train > 0 {
            self.path.train_left = train;
            self.path.pacer.allow(
                (train * (self.path.mtu.payload_bytes() + ip_overhead(&self.path.remote))) as f64,
            );
        }
    }

    /// Appends one packet of control frames and slots, `size_max` bytes at most. Returns false,
    /// having written nothing, if there is none.
    fn write_data_packet(&mut self, out: &mut Vec<u8>, size_max: usize, now: Time) -> bool {
        let start = self.begin_packet(out);
        let end_max = start + size_max - TAG_SIZE;
        let mut contents = Contents::default();
        while out.len() + CONTROL_SIZE_MAX <= end_max {
            let Some(control) = self.streams.controls.pop() else {
                break;
            };
            self.put_control(out, control, &mut contents);
        }
        if contents.first.is_some() {
            self.streams.raise_limit();
        }
        let is_full_size = size_max == self.path.mtu.payload_bytes();
        self.put_slots(out, end_max, is_full_size, &mut contents, now);
        if contents.first.is_none() {
            out.truncate(start);
            // A full packet was allowed and there was nothing to send: the application held the sender back.
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

    fn put_control(&mut self, out: &mut Vec<u8>, control: Control, contents: &mut Contents) {
        let Some(frame) = self.control_frame(control) else {
            return;
        };
        frame.put(out);
        contents.push(Item::Control(control));
        if matches!(control, Control::Credit(_) | Control::Done(_)) {
            self.echoes.retain(|(echo, _)| *echo != control);
            self.echoes
                .push_back((control, self.received.redundancy() as u8));
            if self.echoes.len() > ECHOES_MAX {
                self.echoes.pop_front();
            }
        }
    }

    /// Appends recent control frames that the peer waits for: the packet that carried them first may have been
    /// lost, and finding that out takes a round trip.
    fn put_echoes(&mut self, out: &mut Vec<u8>, end_max: usize) {
        for _ in 0..ECHOES_PER_REPORT.min(self.echoes.len()) {
            if out.len() + CONTROL_SIZE_MAX > end_max {
                return;
            }
            let Some((control, left)) = self.echoes.pop_front() else {
                return;
            };
            let Some(frame) = self.control_frame(control) else {
                continue;
            };
            frame.put(out);
            if left > 1 {
                self.echoes.push_back((control, left - 1));
            }
        }
    }

    /// The frame of a control with its present content; `None` if the frame no longer matters.
    fn control_frame(&mut self, control: Control) -> Option<Frame<'static>> {
        match control {
            Control::End(number) => self.streams.get(number).and_then(|stream| {
                let (chunks, bytes, hash) = stream.send.end();
                let finished = matches!(
                    stream.send.state(),
                    crate::stream::send::SendState::Finished { .. }
                );
                finished.then_some(Frame::End {
                    stream: number,
                    chunks,
                    bytes,
                    hash,
                })
            }),
            Control::Reset(number) => {
                self.streams
                    .get(number)
                    .and_then(|stream| match stream.send.state() {
                        crate::stream::send::SendState::Reset { code } => Some(Frame::Reset {
                            stream: number,
                            code,
                        }),
                        _ => None,
                    })
            }
            Control::Stop(number) => self
                .streams
                .get(number)
                .and_then(|stream| stream.stop_code)
                .map(|code| Frame::Stop {
                    stream: number,
                    code,
                }),
            Control::Credit(number) => self.streams.get(number).map(|stream| {
                stream.credit_queued = false;
                let limit = stream.recv.take_credit();
                match stream.recv.paced_window() {
                    None => Frame::Credit {
                        stream: number,
                        limit,
                    },
                    Some(window) => Frame::PacedCredit {
                        stream: number,
                        limit,
                        window,
                    },
                }
            }),
            Control::Done(number) => Some(Frame::Done { stream: number }),
            Control::InitialWindow => Some(Frame::InitialWindow {
                chunks: self.streams.memory.initial_window(),
            }),
            Control::StreamLimit => Some(Frame::StreamLimit {
                streams: self.streams.stream_limit(),
            }),
            Control::PathHint => Some(Frame::PathHint {
                rtt_us: self.path.rtt.base().as_micros() as u64,
            }),
            Control::RateMax => Some(Frame::RateMax {
                bytes_per_s: self.rate_max.for_peer(),
            }),
            Control::TellFrom => Some(Frame::TellFrom {
                number: self.sent.resolved(),
            }),
            Control::MtuProbe(_) => None,
        }
    }

    /// Fills the packet up to `end_max` with slots. All but the last carry their length.
    fn put_slots(
        &mut self,
        out: &mut Vec<u8>,
        end_max: usize,
        is_full_size: bool,
        contents: &mut Contents,
        now: Time,
    ) {
        /// Below this a packet is not worth filling up.
        const SPACE_MIN: usize = 64;
        /// Room for the length of a slot that does not run to the end of the packet.
        const LEN_SIZE: usize = 2;
        while out.len() + SPACE_MIN <= end_max {
            let space = end_max - out.len();
            if !self.streams.has_new_control()
                && let Some((chunk, len)) = self.again(now, contents)
            {
                let header = frame::chunk_header_size(chunk.stream, chunk.index);
                if header + len > space {
                    // A whole packet is too small for it: the path carried more when it was cut.
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
            let (number, class) = (stream.number, stream.class);
            let index = stream.send.next_index();
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
            stream.send.take_new(len, out);
            self.streams.use_turn(class);
            self.streams.make_ready(number);
            self.stats.payload_sent += len as u64;
            contents.push(Item::Chunk(self.streams.chunk_ref(number, index)));
            if to_end {
                return;
            }
        }
    }

    /// Appends a half of a slot of `len` bytes.
    fn put_half(
        &mut self,
        out: &mut Vec<u8>,
        chunk: ChunkRef,
        len: usize,
        contents: &mut Contents,
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

    /// Appends a packet with any payload, as a faulty or hostile peer might send.
    #[cfg(any(test, feature = "fuzzing", feature = "sim"))]
    pub(crate) fn write_payload(&mut self, out: &mut Vec<u8>, payload: &[u8], now: Time) {
        let start = self.begin_packet(out);
        out.extend_from_slice(payload);
        self.end_packet(out, start, false, false, Contents::default(), now);
    }

    fn begin_packet(&mut self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let phase = self.keys.phase_for_sealing();
        packet::put_data_header(out, self.peer_id, self.sent.next_number(), phase);
        debug_assert_eq!(out.len() - start, HEADER_SIZE);
        start
    }

    /// Seals the packet and enters it in the log. Returns its length.
    fn end_packet(
        &mut self,
        out: &mut Vec<u8>,
        start: usize,
        eliciting: bool,
        in_train: bool,
        contents: Contents,
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
            self.repeats_left = self.repeats_left.max(RepeatsLeft::NextPass);
            self.path
                .controller
                .on_sent(number, wire_bytes, now.seconds_since(Time::default()));
            self.path.pacer.on_sent(wire_bytes);
            self.last_eliciting = now;
        }
        self.last_sent = now;
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += wire_bytes as u64;
        len
    }
}
