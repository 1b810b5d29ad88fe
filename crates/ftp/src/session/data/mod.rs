//! State machines of a data connection. [`near`] is the machine at the client's side, and [`far`]
//! is the machine at the server's side.
//!
//! A gateway joins a TCP connection, the *leg*, with a link stream. Bytes move in two directions:
//! *outbound* from the leg to the stream, *inbound* from the stream to the leg. A machine handles
//! no bytes. A machine receives events from the leg and the stream, and orders from its session.
//! The machine decides which direction moves, when an end of file is passed on, and when the leg
//! and the stream are reset.
//!
//! The caller owns sockets, streams and the clock. After each call, the caller calls `poll` until
//! it returns `None`. The caller moves bytes as `outbound` and `inbound` demand. At the time of
//! `deadline`, the caller calls `expire`.

pub mod far;
pub mod near;
mod stall;
mod timers;

use std::{collections::VecDeque, time::Duration};

/// Event of the TCP connection or of the link stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataInput {
    /// The TCP connection is open. TLS has not begun.
    Connected,
    /// The TCP connection could not be opened. The text is the reason.
    NotConnected(String),
    /// The TLS handshake failed. The text is the reason.
    NotSecured(String),
    /// The TLS handshake has succeeded.
    Secured,
    /// The link stream is open.
    StreamOpened,
    /// The TCP connection has ended, and all bytes before the end have been written to the stream.
    LegEnded {
        /// Whether the TCP connection uses TLS and ended without close_notify.
        is_truncated: bool,
    },
    /// Reading from the TCP connection failed. The text is the reason.
    ReadFailed(String),
    /// Reading from the TCP connection failed before the first byte. The text is the reason.
    BrokenUnused(String),
    /// The client or server ended TLS with a fatal alert. The text is the reason. The TCP
    /// connection is still open.
    Alerted(String),
    /// The session has ended, and sends no further orders.
    SessionEnded,
    /// The peer stopped reading the stream.
    StreamStopped,
    /// The link lost the stream. The text is the reason.
    StreamLost(String),
    /// The report of a truncation is complete. The value is `Ok` if the peer has confirmed the
    /// report. Otherwise, the value is an error.
    TruncationReported(Result<(), String>),
    /// The stream has ended, and all bytes before the end have been written to the TCP connection.
    StreamEnded,
    /// The peer reset the stream, or the link lost the stream. The text is the reason.
    StreamBroken(String),
    /// A write to the TCP connection failed. The text is the reason.
    WriteFailed(String),
    /// The end of file has been sent on the TCP connection.
    EndWritten,
    /// The client or server has acknowledged all bytes and the end of file on the TCP connection.
    Acknowledged,
    /// The TCP connection broke before all bytes were acknowledged. The text is the reason.
    NotAcknowledged(String),
}

/// An action for the driver. `E` is the type of events for the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataOutput<E> {
    /// Open the TCP connection: connect, or accept the connection.
    Connect,
    /// Start the TLS handshake on the TCP connection.
    Secure,
    /// Report to the peer that the data connection ended without close_notify.
    ReportTruncation,
    /// Send the end of file on the stream.
    Finish,
    /// Reset both directions of the stream, for this reason.
    Reset(ResetCause),
    /// Stop reading the stream.
    Stop,
    /// Send the end of file on the TCP connection.
    EndLeg,
    /// Reset the TCP connection.
    ResetLeg,
    /// Pass this event to the session.
    Event(E),
    /// Release the TCP connection and the stream. No further action follows. If the end of file has
    /// been sent on the TCP connection, the TCP connection closes without a reset.
    Done {
        /// The error that broke the data connection. `None` if both directions have ended without
        /// an error.
        broken: Option<String>,
    },
}

/// Reason why the gateway resets a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetCause {
    /// The TCP connection broke, or the transfer was aborted.
    Aborted,
    /// The transfer is over.
    Ended,
    /// The TCP connection could not be opened.
    Unreachable,
}

/// State of the bytes of one direction: waiting, moving or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataFlow {
    /// The driver reads no bytes in this direction.
    Wait,
    /// The driver moves the bytes.
    Relay,
    /// The driver reads the bytes and drops them.
    Discard,
}

/// Number of bytes moved in each direction so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataProgress {
    /// Number of bytes moved from the TCP connection to the stream.
    pub outbound_bytes: u64,
    /// Number of bytes moved from the stream to the TCP connection.
    pub inbound_bytes: u64,
    /// Whether unread bytes, or an unread end of file, wait on the TCP connection.
    pub has_unread: bool,
}

/// Interface between the state machine of a data connection and its driver.
///
/// All times are counted from the same arbitrary moment.
pub trait DataMachine {
    /// Type of the session's orders.
    type Order;
    /// Type of the events for the session.
    type Event;

    /// Handles an order of the session.
    fn order(&mut self, now: Duration, order: Self::Order);

    /// Handles an event of the TCP connection or of the stream.
    fn handle(&mut self, now: Duration, input: DataInput);

    /// Handles the timers that have expired.
    fn expire(&mut self, now: Duration, progress: DataProgress);

    /// Returns the next action. After `None`, no action follows until the next call of another
    /// method.
    fn poll(&mut self) -> Option<DataOutput<Self::Event>>;

    /// Returns the time at which the driver must call [`expire`](Self::expire).
    fn deadline(&self) -> Option<Duration>;

    /// Returns the state of the direction from the TCP connection to the stream.
    fn outbound(&self) -> DataFlow;

    /// Returns the state of the direction from the stream to the TCP connection.
    fn inbound(&self) -> DataFlow;

    /// Whether the stream is open, but the TCP connection or its TLS is not open yet. If so, the
    /// driver must detect the end of the stream.
    fn awaits_leg(&self) -> bool {
        false
    }

    /// Whether the machine waits until the other host acknowledges all bytes on the TCP connection.
    fn awaits_acknowledgement(&self) -> bool {
        false
    }
}

/// Queue of actions from a machine to its driver.
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
