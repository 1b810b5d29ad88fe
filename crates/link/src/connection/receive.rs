//! Receiving part of a connection: decrypts a datagram of the peer and handles its frames.
//!
//! Input: a datagram, its source address, and the time. Output: changed streams, measurements for
//! the congestion controller, and replies for [`transmit`](super::transmit) to send.

use std::{net::SocketAddr, time::Duration};

use super::{CLOSE_DISMISSED, Connection, ConnectionEnd, KEEP_ALIVE, ip_overhead};
use crate::{
    congestion::Digest,
    control_frame::ControlFrame,
    feedback::received::ContentKind,
    recovery::{FrontTiming, Item, ReportOutcome},
    stream::{
        StreamClass,
        credit_pool::Announcement,
        recv::{RecvState, SlotFate},
        send::SendState,
        table::{Stream, StreamEvent},
    },
    time::Time,
    version::FrameVersion,
    wire::report::Report,
    wire::{
        Malformed,
        frame::{Frame, Frames, Half},
    },
};

/// Result of decrypting a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatagramFate {
    /// The datagram is authentic and new.
    Accepted,
    /// The datagram was already received, or is older than the range in which duplicates are
    /// detected.
    Duplicate,
    /// The datagram was not encrypted with this connection's keys.
    Undecryptable,
}

/// Maximum number of copies of a lost slot at the tail of a stream. At the tail, the reader waits
/// for exactly this slot, and capacity is unused.
const TAIL_COPIES_MAX: u8 = 4;
/// Divisor of the round-trip time. The quotient is the time between two copies of one slot, and is
/// longer than short bursts of losses.
const COPY_SPACING: f64 = 16.0;
/// Maximum round-trip time that is accepted from a peer. No real path has a longer round-trip time.
/// With a larger value, this side would send reports too rarely.
const RTT_HINT_MAX: Duration = Duration::from_secs(60);

/// Whether the content of a packet was stored.
enum ContentFate {
    Kept,
    /// No memory was free for the content, so the packet must not count as received.
    NoMemory,
}

/// A slot, or one half of a slot.
#[derive(Debug, Clone, Copy)]
enum SlotPart<'a> {
    Slot {
        index: u64,
        data: &'a [u8],
    },
    Half {
        index: u64,
        len: usize,
        half: Half,
        data: &'a [u8],
    },
}

impl<'a> SlotPart<'a> {
    fn data(&self) -> &'a [u8] {
        match self {
            Self::Slot { data, .. } | Self::Half { data, .. } => data,
        }
    }
}

impl Connection {
    /// Handles a datagram with a data packet. The datagram is decrypted in place.
    pub(crate) fn on_datagram(
        &mut self,
        datagram: &mut [u8],
        from: SocketAddr,
        now: Time,
    ) -> DatagramFate {
        let len = datagram.len();
        let wire_bytes = len + ip_overhead(&from);
        let received = &self.received;
        let opened = self
            .keys
            .open(datagram, received.next(), |number| received.is_new(number));
        let (number, payload) = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => {
                self.stats.duplicates += 1;
                return DatagramFate::Duplicate;
            }
            Err(Malformed) => return DatagramFate::Undecryptable,
        };
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += wire_bytes as u64;
        self.liveness.on_heard(now);
        self.unconfirmed = None;
        let is_newest = number >= self.received.next();
        let mut content = ContentKind::Reports;
        let mut reports = 0;
        let mut fate = ContentFate::Kept;
        for frame in Frames::new(payload) {
            let Ok(frame) = frame else {
                self.take_offence();
                return DatagramFate::Accepted;
            };
            content = content.max(match frame {
                Frame::Feedback(_) | Frame::Close { .. } => ContentKind::Reports,
                Frame::Ping => ContentKind::Ping,
                _ => ContentKind::Data,
            });
            reports += usize::from(matches!(frame, Frame::Feedback(_)));
            let result = if reports > 1 {
                // Processing a report may visit all packets in flight, so a packet may contain only
                // one report.
                Err(Malformed)
            } else {
                self.on_frame(frame, number, from, now)
            };
            match result {
                Ok(ContentFate::Kept) => {}
                Ok(ContentFate::NoMemory) => fate = ContentFate::NoMemory,
                Err(Malformed) => {
                    self.take_offence();
                    return DatagramFate::Accepted;
                }
            }
        }
        match fate {
            ContentFate::Kept => self.received.insert(number, wire_bytes, content, now),
            ContentFate::NoMemory => self.stats.no_memory += 1,
        }
        if is_newest && (from != self.path.remote || !self.path.is_remote_proven) {
            self.consider_address(from, len, now);
        }
        DatagramFate::Accepted
    }

    /// Calls the method that handles this kind of frame.
    fn on_frame(
        &mut self,
        frame: Frame<'_>,
        number: u64,
        from: SocketAddr,
        now: Time,
    ) -> Result<ContentFate, Malformed> {
        if !self.newest_frames.takes(&frame, number) {
            return Ok(ContentFate::Kept);
        }
        match frame {
            Frame::Chunk {
                stream,
                index,
                data,
            } => return self.on_chunk(stream, SlotPart::Slot { index, data }, now),
            Frame::Half {
                stream,
                index,
                len,
                half,
                data,
            } => {
                let piece = SlotPart::Half {
                    index,
                    len,
                    half,
                    data,
                };
                return self.on_chunk(stream, piece, now);
            }
            // A ping only requests a report, and the packet with the ping causes a report anyway.
            Frame::Ping => {}
            Frame::Feedback(report) => self.on_report(&report, now)?,
            Frame::End {
                stream,
                chunks,
                bytes,
                hash,
            } => self.on_end(stream, chunks, bytes, hash, now)?,
            Frame::Reset { stream, code } => self.on_reset(stream, code, now)?,
            Frame::Stop { stream, code } => self.on_stop(stream, code, now)?,
            Frame::Credit { stream, limit } => self.on_credit(stream, limit, now)?,
            Frame::PacedCredit { stream, limit, .. } => self.on_paced_credit(stream, limit, now)?,
            Frame::Done { stream } => self.on_done(stream, now)?,
            Frame::InitialWindow { from, free } => {
                let announcement = Announcement { from, free };
                self.streams.memory.on_announcement(announcement);
            }
            Frame::StreamLimit { streams } => self.streams.set_peer_limit(streams),
            Frame::PathHint { rtt_us } => self.on_path_hint(rtt_us),
            Frame::TellFrom { number } => self.received.report_again_from(number, now),
            Frame::RateMax { bytes_per_s } => self.rate_max.set_by_peer(bytes_per_s),
            Frame::Retire => self.is_retired = true,
            Frame::Challenge(token) => self.challenges.response = Some((token, from)),
            Frame::Response(token) => self.on_response(token, from, now),
            Frame::Close { code } => self.on_close(code),
        }
        Ok(ContentFate::Kept)
    }

    /// Handles the end record of a stream. The peer sends it after the last slot.
    fn on_end(
        &mut self,
        number: u32,
        chunks: u64,
        bytes: u64,
        hash: u64,
        now: Time,
    ) -> Result<(), Malformed> {
        let Some(stream) = self.peer_stream(number, now)? else {
            return Ok(());
        };
        if !stream.recv.set_end(chunks, bytes, hash) {
            return Err(Malformed);
        }
        self.streams.narrow(number);
        self.streams.report_readable(number);
        Ok(())
    }

    /// Handles a reset: the peer has abandoned a stream that it was sending.
    fn on_reset(&mut self, number: u32, code: u32, now: Time) -> Result<(), Malformed> {
        if self.peer_stream(number, now)?.is_none() {
            return Ok(());
        }
        let (stream, pool) = self
            .streams
            .get_with_pool(number)
            .expect("it was just found");
        stream.recv.set_reset(code, pool);
        // The application no longer reads a stopped stream.
        stream.recv_done |= stream.stop_code.is_some();
        self.streams.report_readable(number);
        self.streams.remove_if_done(number);
        Ok(())
    }

    /// Handles a stop: the peer refuses further bytes of a stream. This side resets the stream.
    fn on_stop(&mut self, number: u32, code: u32, now: Time) -> Result<(), Malformed> {
        let Some(stream) = self.peer_stream(number, now)? else {
            return Ok(());
        };
        #[cfg(fuzz_canary)]
        assert!(
            !matches!(stream.recv.state(), RecvState::Reset { .. }),
            "canary: behind the keys of an established connection"
        );
        if !matches!(stream.send.state(), SendState::Reset { .. }) && !stream.send_done {
            self.streams.events.push_back(StreamEvent::Stopped {
                stream: number,
                code,
            });
            self.reset(number, code);
        }
        Ok(())
    }

    /// Handles credit: the peer permits this side to send the slots of a stream below index
    /// `limit`.
    fn on_credit(&mut self, number: u32, limit: u64, now: Time) -> Result<(), Malformed> {
        if let Some(stream) = self.peer_stream(number, now)? {
            stream.send.set_credit(limit);
            self.streams.make_ready(number);
        }
        Ok(())
    }

    /// Handles credit from a peer of version 2. This paced credit follows the drain rate of the
    /// peer's reader.
    fn on_paced_credit(&mut self, number: u32, limit: u64, now: Time) -> Result<(), Malformed> {
        if self.version != FrameVersion::V2 {
            return Err(Malformed);
        }
        if let Some(stream) = self.peer_stream(number, now)? {
            stream.send.set_paced_credit(limit);
            self.streams.make_ready(number);
        }
        Ok(())
    }

    /// Handles the message that the peer has read a stream to its end. The send buffer is freed.
    fn on_done(&mut self, number: u32, now: Time) -> Result<(), Malformed> {
        let Some(stream) = self.peer_stream(number, now)? else {
            return Ok(());
        };
        if stream.send.state() == SendState::Open {
            // The peer cannot have read the end of an unfinished stream.
            return Err(Malformed);
        }
        if !stream.send_done {
            let buffered = stream.send.buffered_bytes();
            stream.send_done = true;
            stream.send.reset(0);
            self.streams.memory.remove_send_buffered(buffered);
            self.streams
                .events
                .push_back(StreamEvent::SendDone { stream: number });
        }
        self.streams.remove_if_done(number);
        Ok(())
    }

    /// Handles the peer's measurement of the round-trip time. A side that sends little cannot
    /// measure the round-trip time itself.
    fn on_path_hint(&mut self, rtt_us: u64) {
        let rtt = Duration::from_micros(rtt_us).min(RTT_HINT_MAX);
        self.path.rtt.suggest(rtt);
        self.received.set_rtt(rtt);
    }

    /// Handles a protocol violation by the peer: ends the connection.
    fn take_offence(&mut self) {
        self.stats.malformed += 1;
        // A hostile peer in the simulator ignores violations.
        #[cfg(feature = "sim")]
        if self.is_forger() {
            return;
        }
        self.closing.set_end(ConnectionEnd::Violation);
    }

    /// Handles a CLOSE frame: the peer has ended the connection.
    fn on_close(&mut self, code: u32) {
        self.closing.set_end(match code {
            CLOSE_DISMISSED => ConnectionEnd::Dismissed,
            _ => ConnectionEnd::ByPeer,
        });
    }

    fn on_chunk(
        &mut self,
        number: u32,
        piece: SlotPart<'_>,
        now: Time,
    ) -> Result<ContentFate, Malformed> {
        if self.peer_stream(number, now)?.is_none() {
            return Ok(ContentFate::Kept);
        }
        let now_s = now.seconds_since(Time::default());
        let (stream, pool) = self
            .streams
            .get_with_pool(number)
            .expect("it was just found");
        if stream.class == StreamClass::Bulk {
            self.liveness.expect_until(now + KEEP_ALIVE);
        }
        let insert = if stream.stop_code.is_some() {
            SlotFate::Duplicate
        } else {
            match piece {
                SlotPart::Slot { index, data } => stream.recv.insert(index, data, pool),
                SlotPart::Half {
                    index,
                    len,
                    half,
                    data,
                } => stream.recv.insert_half(index, len, half, data, pool),
            }
        };
        let readable = stream.recv.is_readable() || stream.recv.state() != RecvState::Open;
        let rtt_s = self.path.rtt.smoothed().as_secs_f64();
        stream.recv.measure_need(now_s, rtt_s);
        let widened = insert == SlotFate::New
            && !readable
            && self
                .streams
                .widen(number, |recv| recv.shortage(now_s, rtt_s));
        match insert {
            SlotFate::New => {
                self.stats.payload_received += piece.data().len() as u64;
                if widened {
                    self.streams.queue_credit(number);
                }
                if readable {
                    self.streams.report_readable(number);
                }
                Ok(ContentFate::Kept)
            }
            SlotFate::Duplicate => Ok(ContentFate::Kept),
            SlotFate::NoMemory => Ok(ContentFate::NoMemory),
            SlotFate::Violation => Err(Malformed),
        }
    }

    fn on_report(&mut self, report: &Report<'_>, now: Time) -> Result<(), Malformed> {
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.clear();
        let timing = self.sent.timing(report, now);
        let base_rtt = match (self.path.rtt.measured(), timing) {
            // The first report gives a better estimate than the initial guess.
            (None, Some(timing)) => timing.rtt,
            _ => self.path.rtt.base(),
        };
        if let Some(FrontTiming { rtt, forward_s }) = timing
            && self.path.peer_clock.sample(forward_s, rtt, now)
        {
            // One of the two hosts was suspended. Packets lost meanwhile are no evidence about the
            // path.
            self.liveness.on_outage_end(now);
        }
        let outage_end = self.liveness.outage_end();
        self.sent
            .on_report(report, now, base_rtt, outage_end, &mut outcome)?;
        outcome.rtt = outcome.rtt.filter(|rtt| self.path.rtt.sample(*rtt, now));
        self.path.pacer.fit(self.path.rtt.base());
        if outcome.rtt.is_some() {
            self.streams.controls.hint_path(self.path.rtt.base());
        }
        let ahead_s = self.path.peer_clock.ahead_s();
        for arrival in &mut outcome.arrivals {
            arrival.received_s -= ahead_s;
        }
        if !outcome.arrived.is_empty() || !outcome.resolved.is_empty() {
            self.liveness.on_progress(now);
        }
        self.tail_repeater.look_again();
        if outcome.ask {
            self.streams.controls.push(ControlFrame::TellFrom);
        }
        for item in &outcome.arrived {
            self.on_item_arrived(*item);
        }
        self.repair(&outcome, now);
        self.received.set_report_loss(self.sent.recent_loss_max());
        self.inform_controller(report, &outcome, base_rtt, now);
        let age = 4 * self.path.rtt.smoothed() + Duration::from_secs(1);
        self.sent.forget(now, age);
        self.outcome = outcome;
        Ok(())
    }

    /// Queues lost contents for retransmission. If the path MTU has become smaller, the packets
    /// become smaller too.
    fn repair(&mut self, outcome: &ReportOutcome, now: Time) {
        let spacing_s = self.path.rtt.smoothed().as_secs_f64() / COPY_SPACING;
        let loss = self.sent.loss();
        let tail_copies = self.repeat_copies().min(TAIL_COPIES_MAX);
        for item in &outcome.lost {
            let (chunk, half) = match item {
                Item::Chunk(chunk) => (*chunk, None),
                Item::Half(chunk, half) => (*chunk, Some(*half)),
                Item::Control(control) => {
                    self.on_control_lost(*control);
                    continue;
                }
            };
            self.streams
                .on_lost(chunk, half, now, spacing_s, loss, tail_copies);
        }
        if self.path.mtu.on_resolved(&outcome.resolved) {
            // Packets larger than the new path MTU were lost because of their size, not because of
            // a full queue.
            self.liveness.on_outage_end(now);
            let now_s = now.seconds_since(Time::default());
            self.path.controller.forgive_losses(now_s);
        }
    }

    /// Passes the measurements of a report to the congestion controller. `base_rtt` is the base
    /// round-trip time that loss detection used.
    fn inform_controller(
        &mut self,
        report: &Report<'_>,
        outcome: &ReportOutcome,
        base_rtt: Duration,
        now: Time,
    ) {
        let newest_resolved = outcome.resolved.last().map_or(0, |packet| packet.number);
        let digest = Digest {
            resolved: &outcome.resolved,
            late_sent_s: &outcome.late_sent_s,
            arrivals: &outcome.arrivals,
            received: (
                report.bytes_received,
                (report.front.time_us + report.delay_us) as f64 * 1e-6
                    - self.path.peer_clock.ahead_s(),
            ),
            rtt_s: outcome.rtt.map(|rtt| rtt.as_secs_f64()),
            bytes_in_flight: self.sent.bytes_in_flight(),
            bytes_sent: self.sent.bytes_sent(),
            reorder_window_s: self.sent.reorder_window(base_rtt, now).as_secs_f64(),
            // A rate cap of the operator limits the sender in the same way as an idle application
            // does.
            app_limited: newest_resolved < self.app_limited_until || self.is_capped(),
        };
        self.path
            .controller
            .on_report(&digest, now.seconds_since(Time::default()));
        if self.path.controller.take_longer_route() {
            self.path.rtt.forget_base(now);
        }
    }

    fn on_item_arrived(&mut self, item: Item) {
        match item {
            Item::Chunk(chunk) => {
                let Some(stream) = self.streams.by_ref(chunk) else {
                    return;
                };
                let freed = stream.send.on_arrived(chunk.index);
                self.streams.memory.remove_send_buffered(freed);
            }
            Item::Half(chunk, half) => {
                self.streams.on_half_arrived(chunk, half);
            }
            Item::Control(ControlFrame::End(number)) => {
                if let Some(stream) = self.streams.get(number) {
                    stream.send.mark_end_arrived();
                }
            }
            Item::Control(ControlFrame::Reset(number)) => {
                if let Some(stream) = self.streams.get(number) {
                    stream.send_done = true;
                    self.streams.remove_if_done(number);
                }
            }
            Item::Control(ControlFrame::MtuProbe(packet_bytes)) => {
                self.path.mtu.on_probe_arrived(usize::from(packet_bytes));
            }
            Item::Control(_) => {}
        }
    }

    fn peer_stream(&mut self, number: u32, now: Time) -> Result<Option<&mut Stream>, Malformed> {
        self.streams
            .named_by_peer(number, now.seconds_since(Time::default()))
            .map_err(|_| Malformed)
    }
}
