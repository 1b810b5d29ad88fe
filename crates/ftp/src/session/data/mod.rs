//! The life of a data connection, as a state machine for each gateway: [`near`] at the client's
//! side, [`far`] at the server's side.
//!
//! A gateway joins a TCP connection, the *leg*, with a link stream. Bytes move in two directions:
//! *outbound* from the leg to the stream, *inbound* from the stream to the leg. A machine handles
//! no bytes. It receives events of the leg and the stream, and orders of its session. It decides
//! which direction moves, when an end is passed on, and when everything is reset.
//!
//! The caller owns sockets, streams and the clock. It drains `poll` after each call, moves bytes as
//! `outbound` and `inbound` demand, and calls `expire` at the time of `deadline`.

pub mod far;
pub mod near;
mod stall;
mod timers;

use std::{collections::VecDeque, time::Duration};

/// Event of the leg or of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataInput {
    /// The leg is connected, without TLS.
    Connected,
    /// The leg could not be connected, for this reason.
    NotConnected(String),
    /// The handshake of the leg failed, for this reason.
    NotSecured(String),
    /// TLS has begun on the leg.
    Secured,
    /// The stream is open.
    StreamOpened,
    /// Outbound: the leg has ended, and all bytes before the end are in the stream.
    LegEnded {
        /// Whether the leg ended under TLS without close_notify.
        is_truncated: bool,
    },
    /// Outbound: the leg broke, for this reason.
    ReadFailed(String),
    /// Outbound: the leg broke before the first byte, for this reason.
    BrokenUnused(String),
    /// Outbound: the other end of the leg has ended TLS with a fatal alert, for this reason. Its
    /// TCP connection is still open.
    Alerted(String),
    /// The session has ended, and gives no further orders.
    SessionEnded,
    /// Outbound: the peer stopped reading the stream.
    StreamStopped,
    /// Outbound: the link lost the stream, for this reason.
    StreamLost(String),
    /// The peer has confirmed the report of a truncation, or the reason why it has not.
    TruncationReported(Result<(), String>),
    /// Inbound: the stream has ended, and all bytes before the end have been written to the leg.
    StreamEnded,
    /// Inbound: the stream was reset by the peer, or lost, for this reason.
    StreamBroken(String),
    /// Inbound: the leg accepts no more bytes, for this reason.
    WriteFailed(String),
    /// The end has been written to the leg.
    EndWritten,
    /// The other end of the leg has acknowledged all bytes and the end.
    Acknowledged,
    /// The leg broke before all bytes were acknowledged, for this reason.
    NotAcknowledged(String),
}

/// An action for the driver. `E` is the type of events for the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataOutput<E> {
    /// Connect the leg, or accept it.
    Connect,
    /// Begin TLS on the leg.
    Secure,
    /// Report to the peer that the data have ended without close_notify.
    ReportTruncation,
    /// Outbound: end the stream.
    Finish,
    /// Reset both directions of the stream.
    Reset(ResetCause),
    /// Inbound: stop reading the stream.
    Stop,
    /// Inbound: write the end to the leg.
    EndLeg,
    /// Reset the leg.
    ResetLeg,
    /// Pass an event to the session.
    Event(E),
    /// Release leg and stream: no action follows. A leg whose end has been written closes in order.
    Done {
        /// The error that broke the data connection. `None` if both directions have ended in order.
        broken: Option<String>,
    },
}

/// Reason for which a stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetCause {
    /// The leg broke, or the transfer was aborted.
    Aborted,
    /// The transfer is over.
    Ended,
    /// The leg could not be connected.
    Unreachable,
}

/// Movement of the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataFlow {
    /// The bytes wait.
    Wait,
    /// The bytes move.
    Relay,
    /// The bytes are read and dropped.
    Discard,
}

/// Bytes moved so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataProgress {
    /// Bytes from the leg to the stream.
    pub outbound_bytes: u64,
    /// Bytes from the stream to the leg.
    pub inbound_bytes: u64,
    /// Whether the leg has bytes, or its end, that were not read.
    pub has_unread: bool,
}

/// A data connection as its driver sees it.
///
/// Times are counted from an arbitrary moment, which is the same for all calls.
pub trait DataMachine {
    /// Type of the session's orders.
    type Order;
    /// Type of the events for the session.
    type Event;

    /// Takes an order of the session.
    fn order(&mut self, now: Duration, order: Self::Order);

    /// Handles an event.
    fn handle(&mut self, now: Duration, input: DataInput);

    /// Handles the timers that are due.
    fn expire(&mut self, now: Duration, progress: DataProgress);

    /// Returns the next action. `None` until the next call.
    fn poll(&mut self) -> Option<DataOutput<Self::Event>>;

    /// Returns the time at which to call [`expire`](Self::expire).
    fn deadline(&self) -> Option<Duration>;

    /// Returns the movement of the bytes from the leg.
    fn outbound(&self) -> DataFlow;

    /// Returns the movement of the bytes for the leg.
    fn inbound(&self) -> DataFlow;

    /// Whether the stream waits for the leg. The driver must detect the stream's end meanwhile.
    fn awaits_leg(&self) -> bool {
        false
    }

    /// Whether the machine waits for the acknowledgements of the leg's other end.
    fn awaits_acknowledgement(&self) -> bool {
        false
    }
}

/// The orders of a machine to its driver.
#[derive(Debug)]
struct DataOutputs<E> {
    queue: VecDeque<DataOutput<E>>,
    is_done: bool,
}

impl<E> Default for DataOutputs<E> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            is_done: false,
        }
    }
}

impl<E> DataOutputs<E> {
    fn push(&mut self, output: DataOutput<E>) {
        self.queue.push_back(output);
    }

    fn pop(&mut self) -> Option<DataOutput<E>> {
        self.queue.pop_front()
    }

    fn done(&mut self, broken: Option<String>) {
        self.is_done = true;
        self.push(DataOutput::Done { broken });
    }
}
