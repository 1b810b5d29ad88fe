//! Established connection: streams over packets, with feedback, retransmission and congestion
//! control.
//!
//! Input: datagrams from the peer, calls of the application, and the time. Output: datagrams to
//! send, and events for the application. The endpoint passes received datagrams to
//! [`Connection::on_datagram`]. [`Connection::poll_transmit`] returns the datagrams to send. The
//! endpoint calls [`Connection::on_timeout`] at [`Connection::next_timeout`]. The endpoint also
//! owns the handshakes, and selects among the connections to one peer.

mod address;
mod closing;
mod controls;
#[cfg(feature = "sim")]
mod forger;
mod interest;
mod keys;
mod liveness;
mod mtu;
mod newest_frames;
mod pacer;
mod path;
mod peer_clock;
mod rate_max;
mod receive;
mod repeat;
mod rtt;
mod transmit;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use rustls::quic::{Keys, Secrets};
use units::{BitRate, ByteCount};

pub(crate) use self::closing::{CLOSE_DISMISSED, ConnectionEnd};
#[cfg(feature = "sim")]
pub use self::forger::Forger;
pub(crate) use self::pacer::Pacer;
pub(crate) use self::receive::DatagramFate;
pub use self::transmit::Transmit;
use self::{
    address::Challenges, closing::Closing, keys::KeyRing, liveness::Liveness,
    newest_frames::NewestFrames, path::Path, rate_max::RateMax, repeat::TailRepeater,
};
use crate::{
    congestion::{Controller, ControllerFactory, PathMemory},
    control_frame::ControlFrame,
    feedback::received::ReceivedLog,
    handshake::{Handshake, tls::TransportParameters},
    identity::PublicKey,
    recovery::{ReportOutcome, SentLog, SkippedPacketNumbers},
    secret::Secret,
    stream::{
        StreamClass,
        recv::RecvState,
        table::{StreamEvent, StreamLimits, StreamTable},
    },
    time::Time,
    version::FrameVersion,
    wire::packet::ConnectionId,
};

/// Established connection to a peer.
pub(crate) struct Connection {
    pub(crate) peer: usize,
    /// Public key that the peer used in the handshake.
    pub(crate) peer_key: PublicKey,
    pub(crate) our_id: ConnectionId,
    pub(crate) peer_id: ConnectionId,
    pub(crate) we_initiated: bool,
    /// Whether this gateway's public key is smaller than the peer's public key.
    pub(crate) we_have_smaller_key: bool,
    pub(crate) peer_instance: u64,
    /// Version of the frame format.
    pub(crate) version: FrameVersion,
    pub(crate) established: Time,
    keys: KeyRing,
    secret: Secret,
    challenges: Challenges,
    /// Last flight of an initiator's handshake. It is repeated until the first data packet of the
    /// peer arrives.
    unconfirmed: Option<UnconfirmedHandshake>,
    pub(crate) path: Path,
    controllers: Arc<ControllerFactory>,

    received: ReceivedLog,
    newest_frames: NewestFrames,
    sent: SentLog,
    outcome: ReportOutcome,
    pub(crate) streams: StreamTable,

    liveness: Liveness,
    closing: Closing,
    tail_repeater: TailRepeater,
    /// Packet number. When the packets with lower numbers were sent, the application supplied too
    /// few bytes to fill the window.
    app_limited_until: u64,
    rate_max: RateMax,
    /// Whether the peer has requested that new streams use another connection.
    pub(crate) is_retired: bool,
    pub(crate) stats: ConnectionCounters,
    #[cfg(feature = "sim")]
    forger: Option<Forger>,
}

#[derive(Debug)]
struct UnconfirmedHandshake {
    handshake: Box<HandshakeFlight>,
    next: Time,
    /// Whether the next probe during a silence is the handshake flight instead of a ping.
    is_probe: bool,
}

impl UnconfirmedHandshake {
    /// Returns whether the present probe is the handshake flight instead of a ping. The two kinds
    /// of probes alternate.
    fn take_turn(&mut self) -> bool {
        self.is_probe = !self.is_probe;
        !self.is_probe
    }
}

/// Last flight of an initiator's handshake. The flight can be encrypted and sent again.
pub(crate) struct HandshakeFlight(pub(crate) Handshake);

impl std::fmt::Debug for HandshakeFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandshakeFlight")
    }
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ConnectionCounters {
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    pub payload_sent: u64,
    pub payload_again: u64,
    pub payload_repeated: u64,
    pub feedback_bytes: u64,
    pub datagrams_received: u64,
    pub bytes_received: u64,
    pub payload_received: u64,
    pub duplicates: u64,
    pub no_memory: u64,
    pub malformed: u64,
}

impl ConnectionCounters {
    /// Adds the counts of `other` to these counts.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self {
            datagrams_sent,
            bytes_sent,
            payload_sent,
            payload_again,
            payload_repeated,
            feedback_bytes,
            datagrams_received,
            bytes_received,
            payload_received,
            duplicates,
            no_memory,
            malformed,
        } = other;
        self.datagrams_sent += datagrams_sent;
        self.bytes_sent += bytes_sent;
        self.payload_sent += payload_sent;
        self.payload_again += payload_again;
        self.payload_repeated += payload_repeated;
        self.feedback_bytes += feedback_bytes;
        self.datagrams_received += datagrams_received;
        self.bytes_received += bytes_received;
        self.payload_received += payload_received;
        self.duplicates += duplicates;
        self.no_memory += no_memory;
        self.malformed += malformed;
    }

    /// Returns the difference between these counts and the counts at an earlier time.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        Self {
            datagrams_sent: since(self.datagrams_sent, earlier.datagrams_sent),
            bytes_sent: since(self.bytes_sent, earlier.bytes_sent),
            payload_sent: since(self.payload_sent, earlier.payload_sent),
            payload_again: since(self.payload_again, earlier.payload_again),
            payload_repeated: since(self.payload_repeated, earlier.payload_repeated),
            feedback_bytes: since(self.feedback_bytes, earlier.feedback_bytes),
            datagrams_received: since(self.datagrams_received, earlier.datagrams_received),
            bytes_received: since(self.bytes_received, earlier.bytes_received),
            payload_received: since(self.payload_received, earlier.payload_received),
            duplicates: since(self.duplicates, earlier.duplicates),
            no_memory: since(self.no_memory, earlier.no_memory),
            malformed: since(self.malformed, earlier.malformed),
        }
    }
}

/// Inputs for the creation of a connection.
pub(crate) struct ConnectionSetup {
    pub(crate) peer: usize,
    pub(crate) peer_key: PublicKey,
    pub(crate) our_id: ConnectionId,
    pub(crate) peer_id: ConnectionId,
    pub(crate) we_initiated: bool,
    pub(crate) we_have_smaller_key: bool,
    pub(crate) remote: SocketAddr,
    /// Number of bytes that may be sent before the peer has proved that it receives packets at
    /// `remote`. `None` if the peer has proved it.
    pub(crate) unproven_allowance: Option<usize>,
    pub(crate) keys: Keys,
    /// Secret key for values that the peer must not be able to guess.
    pub(crate) secret: Secret,
    pub(crate) secrets: Secrets,
    pub(crate) theirs: TransportParameters,
    pub(crate) flight: Option<HandshakeFlight>,
    pub(crate) rtt: Duration,
    pub(crate) controller: Box<dyn Controller>,
    /// Factory that creates the congestion controller for a new path.
    pub(crate) controllers: Arc<ControllerFactory>,
    pub(crate) idle_timeout: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) memory_max: ByteCount,
}

/// Result of reading from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamRead {
    /// Bytes of the stream, in order.
    Data(Bytes),
    /// No bytes are available yet.
    Blocked,
    /// All bytes were read, and their count and hash match the end record.
    End,
    /// All bytes were read, but their count or hash does not match the end record.
    Corrupt,
    /// The peer reset the stream with this code.
    Reset(u32),
    /// The stream does not exist, or no longer exists.
    Gone,
}

/// Returns the size of the IP and UDP headers of a datagram to `remote`, in bytes.
pub(crate) fn ip_overhead(remote: &SocketAddr) -> usize {
    // An IPv4 peer has an IPv4-mapped address at an IPv6 socket, but its packets are IPv4 packets.
    if remote.ip().to_canonical().is_ipv4() {
        28
    } else {
        48
    }
}

/// Default interval of keep-alive packets on an idle connection. Because of these packets, NATs and
/// the peer keep their state.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Maximum number of written but unsent bytes of one stream.
const UNSENT_MAX: usize = 1 << 20;
/// Minimum value of the limit on unsent bytes of one stream, however many streams share the memory.
const UNSENT_MIN: usize = 64 << 10;
/// Maximum number of unsent bytes of a bulk stream beyond its credit. Because of the limit, a
/// stream with a stalled reader does not use the memory of other streams.
const UNSENT_BEYOND_CREDIT: usize = 16 << 10;
/// Number of unsent and unacknowledged bytes that a bulk stream may have even if the memory is
/// full.
const BUFFERED_MIN: usize = 16 << 10;

impl Connection {
    pub(crate) fn new(setup: ConnectionSetup, now: Time) -> Self {
        let memory_max = setup.memory_max.bytes();
        let limits = StreamLimits {
            initial_credit: setup.theirs.initial_window,
            peer_limit: setup.theirs.stream_limit,
            memory_max,
        };
        let mut streams = StreamTable::new(setup.we_initiated, limits);
        streams.controls.push(ControlFrame::PathHint);
        let mut connection = Self {
            peer: setup.peer,
            peer_key: setup.peer_key,
            our_id: setup.our_id,
            peer_id: setup.peer_id,
            we_initiated: setup.we_initiated,
            we_have_smaller_key: setup.we_have_smaller_key,
            peer_instance: setup.theirs.instance,
            version: setup.theirs.version,
            established: now,
            keys: KeyRing::new(setup.keys, setup.secrets),
            unconfirmed: setup.flight.map(|flight| UnconfirmedHandshake {
                handshake: Box::new(flight),
                next: now,
                is_probe: true,
            }),
            path: Path::new(
                setup.remote,
                setup.unproven_allowance.is_none(),
                setup.rtt,
                setup.controller,
                now,
            ),
            controllers: setup.controllers,
            received: ReceivedLog::new(setup.rtt),
            newest_frames: NewestFrames::default(),
            sent: SentLog::new(SkippedPacketNumbers::new(
                setup.secret.clone(),
                setup.our_id,
            )),
            secret: setup.secret,
            challenges: Challenges::default(),
            outcome: ReportOutcome::default(),
            streams,
            liveness: Liveness::new(setup.idle_timeout, setup.keep_alive, now),
            closing: Closing::default(),
            tail_repeater: TailRepeater::new(),
            app_limited_until: 0,
            rate_max: RateMax::default(),
            is_retired: false,
            stats: ConnectionCounters::default(),
            #[cfg(feature = "sim")]
            forger: None,
        };
        if let Some(allowance) = setup.unproven_allowance {
            connection.challenge(setup.remote, allowance, now);
        }
        connection
    }

    /// Sets the interval of keep-alive packets on an idle connection.
    pub(crate) fn set_keep_alive(&mut self, every: Duration) {
        self.liveness.set_keep_alive(every);
    }

    /// Sets the operator's caps on the sending rate. `ours` limits this side in addition to the
    /// congestion controller, and `for_peer` is sent to the peer.
    pub(crate) fn set_rate_max(&mut self, ours: Option<BitRate>, for_peer: Option<BitRate>) {
        if self.rate_max.set(ours, for_peer) {
            self.streams.controls.push(ControlFrame::RateMax);
        }
    }

    /// Asks the peer to open its new streams on another connection.
    pub(crate) fn retire(&mut self) {
        self.streams.controls.push(ControlFrame::Retire);
    }

    /// Returns the number of bytes in flight: sent, and neither acknowledged nor lost.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.sent.bytes_in_flight()
    }

    #[cfg(test)]
    pub(crate) fn is_skipped(&self, number: u64) -> bool {
        self.sent.is_skipped(number)
    }

    // Calls of the application.

    /// Opens a stream and returns its number, or `None` if no further stream is permitted.
    pub(crate) fn open(&mut self, class: StreamClass, now: Time) -> Option<u32> {
        self.streams.open(class, now.seconds_since(Time::default()))
    }

    /// Returns the number of bytes that stream `number` accepts now.
    pub(crate) fn writable(&mut self, number: u32) -> usize {
        let streams = self.streams.len().max(1);
        let buffer_max = self.streams.memory.send_buffer_max();
        let is_full = self.streams.memory.send_buffered() >= buffer_max;
        let share = (buffer_max as usize / 2 / streams).clamp(UNSENT_MIN, UNSENT_MAX);
        let Some(stream) = self.streams.get(number) else {
            return 0;
        };
        // Commands and replies are short, and bulk data must not delay them.
        let unsent_max = match stream.class {
            StreamClass::Control => UNSENT_MAX,
            // Streams that the peer does not read must not stop the other streams permanently.
            StreamClass::Bulk if is_full => {
                return BUFFERED_MIN
                    .saturating_sub(stream.send.buffered_bytes() + stream.send.excess_bytes());
            }
            StreamClass::Bulk => {
                let credit = stream.send.credit_bytes();
                share.min(credit.saturating_add(UNSENT_BEYOND_CREDIT))
            }
        };
        unsent_max.saturating_sub(stream.send.unsent_bytes() + stream.send.excess_bytes())
    }

    /// Appends bytes to stream `number`, even beyond the limit that [`writable`](Self::writable)
    /// returns.
    pub(crate) fn write(&mut self, number: u32, data: Bytes) {
        let Some(stream) = self.streams.get(number) else {
            return;
        };
        if stream.send.state() != crate::stream::send::SendState::Open {
            return;
        }
        let len = data.len();
        stream.send.write(data);
        self.streams.memory.add_send_buffered(len);
        self.streams.queue_initial_window(number);
        self.streams.make_ready(number);
    }

    pub(crate) fn finish(&mut self, number: u32) {
        if let Some(stream) = self.streams.get(number) {
            stream.send.finish();
            self.streams.queue_initial_window(number);
            self.streams.make_ready(number);
        }
    }

    pub(crate) fn reset(&mut self, number: u32, code: u32) {
        let Some(stream) = self.streams.get(number) else {
            return;
        };
        let buffered = stream.send.buffered_bytes();
        if !stream.send_done && stream.send.reset(code) {
            self.streams.memory.remove_send_buffered(buffered);
            self.streams.controls.push(ControlFrame::Reset(number));
        }
    }

    pub(crate) fn stop(&mut self, number: u32, code: u32) {
        let Some((stream, pool)) = self.streams.get_with_pool(number) else {
            return;
        };
        if stream.stop_code.is_some() || stream.recv_done {
            return;
        }
        stream.stop_code = Some(code);
        stream.recv.release(pool);
        if matches!(stream.recv.state(), RecvState::Reset { .. }) {
            stream.recv_done = true;
        } else {
            self.streams.controls.push(ControlFrame::Stop(number));
        }
        self.streams.remove_if_done(number);
    }

    /// Reads bytes from stream `number`, in order: at most `len_max` bytes, but at least one slot.
    pub(crate) fn read(&mut self, number: u32, len_max: usize, now: Time) -> StreamRead {
        let rtt_s = self.path.rtt.smoothed().as_secs_f64();
        let now_s = now.seconds_since(Time::default());
        let Some((stream, pool)) = self.streams.get_with_pool(number) else {
            return StreamRead::Gone;
        };
        let read = match (stream.recv.read(len_max, pool), stream.recv.state()) {
            (Some(data), _) => StreamRead::Data(data),
            (None, RecvState::Open) => {
                stream.reported_readable = false;
                StreamRead::Blocked
            }
            (None, RecvState::Ended) => StreamRead::End,
            (None, RecvState::Corrupt) => StreamRead::Corrupt,
            (None, RecvState::Reset { code }) => StreamRead::Reset(code),
        };
        stream.recv.measure_need(now_s, rtt_s);
        let widened = self
            .streams
            .widen(number, |recv| recv.shortage(now_s, rtt_s));
        if !widened {
            self.streams.narrow(number);
        }
        if self
            .streams
            .get(number)
            .is_some_and(|stream| stream.recv.credit_due(now_s))
        {
            self.streams.queue_credit(number);
        }
        match read {
            StreamRead::End => {
                self.liveness.expect_nothing();
                if let Some(stream) = self.streams.get(number).filter(|stream| !stream.recv_done) {
                    stream.recv_done = true;
                    self.streams.return_window(number);
                    self.streams.controls.push(ControlFrame::Done(number));
                }
            }
            StreamRead::Corrupt => self.stop(number, CODE_CORRUPT),
            StreamRead::Reset(_) => {
                if let Some(stream) = self.streams.get(number) {
                    stream.recv_done = true;
                }
            }
            _ => {}
        }
        self.streams.remove_if_done(number);
        read
    }

    /// Returns the next event for the application.
    pub(crate) fn poll_event(&mut self) -> Option<StreamEvent> {
        self.streams.events.pop_front()
    }

    /// Whether copies of the CLOSE frame are being sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_begun()
    }

    /// Starts to close the connection. After the last copy of the CLOSE frame, [`end`](Self::end)
    /// returns the reason.
    pub(crate) fn begin_close(&mut self, code: u32) {
        if !self.path.is_remote_proven {
            // No CLOSE frame is sent to an address that has not been validated.
            self.closing.set_end(ConnectionEnd::ByUs);
        }
        self.closing.begin(code);
    }

    /// Returns the reason why the connection has ended, or `None` if it has not ended.
    pub(crate) fn end(&self) -> Option<ConnectionEnd> {
        self.closing.end()
    }

    /// Handles an ICMP error which states that this side's packets are undeliverable.
    pub(crate) fn on_unreachable(&mut self, now: Time) {
        self.liveness.on_unreachable(self.path.rtt.smoothed(), now);
    }

    /// Handles a suspension of this process that lasted `asleep` and has just ended.
    pub(crate) fn on_sleep(&mut self, asleep: Duration, now: Time) {
        self.liveness
            .on_sleep(asleep, self.path.rtt.smoothed(), now);
        self.sent.on_sleep(now);
    }

    // State for the endpoint and for snapshots.

    pub(crate) fn is_silent(&self) -> bool {
        self.liveness.silent_since().is_some()
    }

    /// Whether the peer may have ended the connection during a suspension of this process.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.liveness.is_doubtful()
    }

    /// Whether new streams must use another connection now or soon.
    pub(crate) fn needs_successor(&self) -> bool {
        self.is_retired || self.streams.is_wearing_out()
    }

    pub(crate) fn silent_since(&self) -> Option<Time> {
        self.liveness.silent_since()
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.unconfirmed.is_none()
    }

    pub(crate) fn last_heard(&self) -> Time {
        self.liveness.last_heard()
    }

    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.path.rtt.measured()
    }

    pub(crate) fn base_rtt(&self) -> Duration {
        self.path.rtt.base()
    }

    pub(crate) fn loss(&self) -> f64 {
        self.sent.loss()
    }

    pub(crate) fn packets_lost(&self) -> (u64, u64) {
        (self.sent.packets_lost, self.sent.packets_late)
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn next_number(&self) -> u64 {
        self.sent.next_number()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn packets_remembered(&self) -> usize {
        self.sent.len()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn controls_waiting(&self) -> usize {
        self.streams.controls.len()
    }

    pub(crate) fn memory(&self) -> Option<PathMemory> {
        self.path.controller.memory()
    }

    pub(crate) fn receive_memory_peak(&self) -> usize {
        self.streams.memory.pool.lent_peak * crate::stream::slab::SLAB_SIZE
    }
}

/// Code of a [`crate::wire::frame::Frame::Stop`] that is sent if the count or hash of a stream does
/// not match.
pub(crate) const CODE_CORRUPT: u32 = u32::MAX;
