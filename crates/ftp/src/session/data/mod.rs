//! The life of a data connection, as a state machine for each gateway: [`near`] beside the client,
//! [`far`] beside the server.
//!
//! A gateway joins a TCP connection, the *leg*, with a link stream. Bytes move in two directions:
//! *outbound* from the leg to the stream, *inbound* from the stream to the leg. A machine sees no
//! byte. It hears what happened to the leg and to the stream, takes orders from its session, and
//! says which direction moves, when an end is passed on, and when everything is reset.
//!
//! The caller owns sockets, streams and the clock. It drains `poll` after each call, moves bytes as
//! `outbound` and `inbound` say, and calls `expire` when `deadline` has come.

pub mod far;
pub mod near;
mod stall;
mod timers;

use std::{collections::VecDeque, time::Duration};

/// What happened to the leg or to the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The leg is connected, without TLS.
    Connected,
    /// There will be no leg: why.
    NotConnected(String),
    /// The handshake of the leg failed: why.
    NotSecured(String),
    /// TLS has begun on the leg.
    Secured,
    /// The stream is there.
    StreamOpened,
    /// Outbound: the leg has ended, and everything before the end is in the stream.
    LegEnded {
        /// It ended under TLS without close_notify.
        is_truncated: bool,
    },
    /// Outbound: the leg broke: why.
    ReadFailed(String),
    /// Outbound: the leg broke before a byte had come: why.
    BrokenUnused(String),
    /// Outbound: the other end of the leg has ended TLS with a fatal alert: why. Its TCP goes on.
    Alerted(String),
    /// The session has ended, and orders nothing more.
    SessionEnded,
    /// Outbound: the other gateway takes no more.
    StreamStopped,
    /// Outbound: the link lost the stream: why.
    StreamLost(String),
    /// The other gateway knows of the truncation, or why it does not.
    PeerTold(Result<(), String>),
    /// Inbound: the stream has ended, and everything before the end has been written to the leg.
    StreamEnded,
    /// Inbound: the stream was reset by the other gateway, or lost: why.
    StreamBroken(String),
    /// Inbound: the leg takes no more: why.
    WriteFailed(String),
    /// The end has been written to the leg.
    EndWritten,
    /// The other end of the leg has acknowledged everything, its end included.
    Acknowledged,
    /// The leg broke before it had acknowledged everything: why.
    NotAcknowledged(String),
}

/// What to do, once. `E` is what the session hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<E> {
    /// Connect the leg, or accept it.
    Connect,
    /// Begin TLS on the leg.
    Secure,
    /// Tell the other gateway that the data has ended without close_notify.
    TellPeer,
    /// Outbound: end the stream.
    Finish,
    /// Reset both directions of the stream.
    Reset(Cause),
    /// Inbound: take no more from the stream.
    Stop,
    /// Inbound: write the end to the leg.
    EndLeg,
    /// Reset the leg.
    ResetLeg,
    /// Tell the session.
    Tell(E),
    /// Nothing follows: let go of leg and stream. A leg whose end has been written closes in order.
    Done {
        /// What broke it; `None` if both directions have ended in order.
        broken: Option<String>,
    },
}

/// Why a stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The leg broke, or the transfer was aborted.
    Aborted,
    /// The transfer is over.
    Ended,
    /// The leg could not be connected.
    Unreachable,
}

/// What the bytes of one direction do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They wait.
    Wait,
    /// They move.
    Relay,
    /// They are read and dropped.
    Discard,
}

/// What has moved so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes from the leg to the stream.
    pub outbound_bytes: u64,
    /// Bytes from the stream to the leg.
    pub inbound_bytes: u64,
    /// The leg has bytes, or its end, that have not been read.
    pub has_unread: bool,
}

/// A data connection as its driver sees it.
///
/// Times are counted from any moment, the same for all calls.
pub trait Machine {
    /// What the session orders.
    type Order;
    /// What the session hears.
    type Event;

    /// Takes an order of the session.
    fn order(&mut self, now: Duration, order: Self::Order);

    /// Takes note of what happened.
    fn handle(&mut self, now: Duration, input: Input);

    /// Carries out what is due.
    fn expire(&mut self, now: Duration, progress: Progress);

    /// The next thing to do; `None` until the next call.
    fn poll(&mut self) -> Option<Output<Self::Event>>;

    /// When to call [`expire`](Self::expire).
    fn deadline(&self) -> Option<Duration>;

    /// What the bytes from the leg do.
    fn outbound(&self) -> Flow;

    /// What the bytes for the leg do.
    fn inbound(&self) -> Flow;

    /// Whether the stream waits for the leg: its end is to be noticed meanwhile.
    fn awaits_leg(&self) -> bool {
        false
    }

    /// Whether the acknowledgements of the leg's other end are waited for.
    fn awaits_acknowledgement(&self) -> bool {
        false
    }
}

/// The orders of a machine to its driver.
#[derive(Debug)]
struct Outputs<E> {
    queue: VecDeque<Output<E>>,
    is_done: bool,
}

impl<E> Default for Outputs<E> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            is_done: false,
        }
    }
}

impl<E> Outputs<E> {
    fn push(&mut self, output: Output<E>) {
        self.queue.push_back(output);
    }

    fn pop(&mut self) -> Option<Output<E>> {
        self.queue.pop_front()
    }

    fn done(&mut self, broken: Option<String>) {
        self.is_done = true;
        self.push(Output::Done { broken });
    }
}
