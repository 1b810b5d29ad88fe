//! The pump moves the bytes of one data connection between a leg (a TCP connection or a pipe) and a
//! link stream. A state machine controls the pump.
//!
//! Backpressure needs no messages: if a direction cannot write, it stops reading, and stores at
//! most one buffer of bytes. An upload has a [`drain`](crate::drain) budget. The pump reads from
//! the client only as many bytes as the grant permits, and limits the kernel's buffers to a
//! fraction of the budget. If a pump ends before its state machine is done, the leg and the stream
//! are reset.
#![allow(
    clippy::disallowed_methods,
    reason = "drives sockets: the machine's clock"
)]

mod inbound;
mod outbound;

use std::{pin::Pin, sync::Arc, time::Instant};

use ftp::session::data::{DataFlow, DataInput, DataMachine, DataOutput, DataProgress, ResetCause};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::sleep_until,
};

use self::{
    inbound::{Inbound, LegTask},
    outbound::Outbound,
};
use crate::{
    optimise::{DecodingReader, EncodingWriter, FlushDelay, StreamCoding},
    pairing::StreamHalves,
    spool::{ByteSource, SpoolPosition, SpoolSource},
    status::OpenTransfer,
    truncation::Truncation,
    wire::{Grant, reset},
};
use net::{
    Connection, socket,
    tls::{Leg, LegReader, LegWriter},
};

/// A boxed future that a pump stores and polls.
pub(crate) type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Source from which the pump obtains its link stream.
#[derive(Debug)]
pub(crate) enum StreamSource {
    /// The stream is already open.
    Open(StreamHalves),
    /// The peer opens the stream. The pump receives the stream through this channel.
    Awaited(oneshot::Receiver<StreamHalves>),
}

/// Function that performs the TLS handshake on a connected leg (TCP connection or pipe).
pub(crate) type SecureLeg =
    Box<dyn FnOnce(Connection) -> BoxedFuture<Result<Leg, DataInput>> + Send>;

/// Grants (limits of the bytes in flight) of a pump, one for each direction. A grant also limits
/// the size of the kernel's buffer.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    pub(crate) to_link: Option<watch::Receiver<Grant>>,
    pub(crate) from_link: Option<watch::Receiver<Grant>>,
}

/// Components from which a pump is built.
pub(crate) struct PumpParts<M: DataMachine> {
    pub(crate) machine: M,
    /// Future that connects the leg (TCP connection or pipe). Its error is an input for the state
    /// machine.
    pub(crate) connect: BoxedFuture<Result<Leg, DataInput>>,
    pub(crate) secure: Option<SecureLeg>,
    pub(crate) stream: StreamSource,
    /// Coding of the stream. `None` if the stream is not coded.
    pub(crate) stream_coding: Option<StreamCoding>,
    /// Time for which the pump waits for further bytes from the leg (TCP connection or pipe) before
    /// it sends an incomplete block.
    pub(crate) flush_delay: FlushDelay,
    /// Position in a spool. If the position is set, the spool stores the bytes of the stream and
    /// supplies the bytes for the leg (TCP connection or pipe).
    pub(crate) spool: Option<SpoolPosition>,
    pub(crate) orders: mpsc::UnboundedReceiver<M::Order>,
    /// Callback for the events of the state machine.
    pub(crate) on_event: Box<dyn FnMut(M::Event) + Send>,
    /// Detection of truncated data. At a far gateway, `None` if the server uses no TLS. At a near
    /// gateway, `None` if the client or the server uses no TLS.
    pub(crate) truncation: Option<Arc<Truncation>>,
    pub(crate) transfer: Arc<OpenTransfer>,
    /// Grants that limit the bytes in flight between client and server.
    pub(crate) grants: Grants,
}

/// Runs the pump until its state machine is done.
///
/// # Errors
/// The reason why the data connection broke.
pub(crate) async fn run<M: DataMachine>(parts: PumpParts<M>) -> Result<(), String> {
    let (stream, awaited) = match parts.stream {
        StreamSource::Open(stream) => (Some(stream), None),
        StreamSource::Awaited(awaited) => (None, Some(awaited)),
    };
    let mut pump = Pump {
        machine: parts.machine,
        started: Instant::now(),
        connect: Some(parts.connect),
        connecting: None,
        secure: parts.secure,
        awaited,
        leg: None,
        stream: None,
        stream_coding: parts.stream_coding,
        flush_delay: parts.flush_delay,
        spool: parts.spool,
        outbound: Outbound::granted(parts.grants.to_link),
        inbound: Inbound::granted(parts.grants.from_link),
        reporting: None,
        is_securing: false,
        is_ending: false,
        orders: Some(parts.orders),
        on_event: parts.on_event,
        truncation: parts.truncation,
        transfer: parts.transfer,
    };
    if let Some(stream) = stream {
        pump.stream_opened(stream);
    }
    loop {
        if let Some(broken) = pump.carry_out() {
            return broken.map_or(Ok(()), Err);
        }
        pump.step().await;
    }
}

struct Pump<M: DataMachine> {
    machine: M,
    started: Instant,
    /// Future that connects the leg (TCP connection or pipe). `None` after the connection has been
    /// started.
    connect: Option<BoxedFuture<Result<Leg, DataInput>>>,
    connecting: Option<BoxedFuture<Result<Leg, DataInput>>>,
    secure: Option<SecureLeg>,
    awaited: Option<oneshot::Receiver<StreamHalves>>,
    leg: Option<(LegReader, LegWriter)>,
    stream: Option<(EncodingWriter, ByteSource)>,
    stream_coding: Option<StreamCoding>,
    flush_delay: FlushDelay,
    spool: Option<SpoolPosition>,
    outbound: Outbound,
    inbound: Inbound,
    reporting: Option<BoxedFuture<Result<(), String>>>,
    /// Whether the TLS handshake on the connected leg (TCP connection or pipe) is running.
    is_securing: bool,
    /// Whether the pump is sending the end of file on the leg (TCP connection or pipe).
    is_ending: bool,
    /// Orders of the session. `None` after the session has ended.
    orders: Option<mpsc::UnboundedReceiver<M::Order>>,
    on_event: Box<dyn FnMut(M::Event) + Send>,
    truncation: Option<Arc<Truncation>>,
    transfer: Arc<OpenTransfer>,
}

impl<M: DataMachine> Pump<M> {
    /// Executes all pending outputs of the state machine. Returns `Some` once the state machine is
    /// done. The inner value is the error that broke the data connection, or `None` without an
    /// error.
    fn carry_out(&mut self) -> Option<Option<String>> {
        while let Some(output) = self.machine.poll() {
            match output {
                DataOutput::Connect => self.connecting = self.connect.take(),
                DataOutput::Secure => self.begin_tls(),
                DataOutput::ReportTruncation => {
                    if let Some(truncation) = self.truncation.clone() {
                        self.reporting = Some(Box::pin(async move { truncation.report().await }));
                    }
                }
                DataOutput::Finish => {
                    if let Some((send, _)) = &mut self.stream {
                        self.outbound.finish(send);
                    }
                }
                DataOutput::Reset(cause) => {
                    if let Some((send, recv)) = &mut self.stream {
                        send.stream().reset(code(cause));
                        recv.stop(code(cause));
                    }
                }
                DataOutput::Stop => {
                    if let Some((_, recv)) = &mut self.stream {
                        recv.stop(reset::ABORTED);
                    }
                }
                DataOutput::EndLeg => self.is_ending = true,
                DataOutput::ResetLeg => {
                    self.connecting = None;
                    if let Some((_, writer)) = self.leg.take() {
                        socket::mark_abort(writer.leg().connection());
                    }
                }
                DataOutput::Event(event) => (self.on_event)(event),
                DataOutput::Done { broken } => return Some(broken),
            }
        }
        None
    }

    fn begin_tls(&mut self) {
        let connection = self.leg.take().and_then(|(reader, writer)| {
            drop(reader);
            writer.into_leg().into_plain()
        });
        if let (Some(secure), Some(connection)) = (self.secure.take(), connection) {
            self.is_securing = true;
            self.connecting = Some(secure(connection));
        } else {
            self.handle(DataInput::NotSecured("none is configured".to_owned()));
        }
    }

    fn stream_opened(&mut self, stream: StreamHalves) {
        let StreamHalves { send, recv, first } = stream;
        let counters = self.transfer.coding_counters();
        let reader = DecodingReader::new(recv, first, self.stream_coding.as_ref(), counters);
        let source = match self.spool.take() {
            Some(position) => ByteSource::Spool(SpoolSource::new(position, reader)),
            None => ByteSource::Stream(reader),
        };
        self.stream = Some((
            EncodingWriter::new(send, self.stream_coding.as_ref(), counters),
            source,
        ));
        self.handle(DataInput::StreamOpened);
    }

    fn handle(&mut self, input: DataInput) {
        self.machine.handle(self.started.elapsed(), input);
    }

    /// Moves bytes until the next event, and passes the event to the state machine.
    async fn step(&mut self) {
        let deadline = self.machine.deadline().map(|at| self.started + at);
        let (outbound, inbound) = (self.machine.outbound(), self.inbound_task());
        let (reader, writer) = match &mut self.leg {
            Some((reader, writer)) => (Some(reader), Some(writer)),
            None => (None, None),
        };
        let (send, recv) = match &mut self.stream {
            Some((send, recv)) => (Some(send), Some(recv)),
            None => (None, None),
        };
        let (to_link, from_link) = self.transfer.meters();
        let transfer = self.transfer.clone();
        let truncation = self.truncation.as_deref();
        let watches_stream = self.machine.awaits_leg();
        tokio::select! {
            // The pump handles orders first, because an order determines the meaning of an end of
            // file.
            biased;
            order = next(&mut self.orders) => match order {
                Some(order) => self.machine.order(self.started.elapsed(), order),
                None => {
                    self.orders = None;
                    self.handle(DataInput::SessionEnded);
                }
            },
            input = self
                .outbound
                .advance(outbound, watches_stream, reader, send, self.flush_delay, to_link) => self.handle(input),
            input = self.inbound.advance(inbound, writer, recv, from_link, truncation) => {
                self.is_ending &= inbound != LegTask::End;
                self.handle(input);
            }
            connected = ready(&mut self.connecting) => self.connected(connected),
            reported = ready(&mut self.reporting) => {
                self.reporting = None;
                self.handle(DataInput::TruncationReported(reported));
            }
            stream = opened(&mut self.awaited) => {
                self.awaited = None;
                // If the session has ended, no stream will come. The machine's deadline then ends
                // the wait.
                if let Some(stream) = stream {
                    self.stream_opened(stream);
                }
            }
            // Both sides are reset, as after a loss of the link.
            () = transfer.wait_for_stop() => {
                self.handle(DataInput::StreamLost("stopped by the operator".to_owned()));
            }
            () = reached(deadline) => {
                let progress = self.progress();
                self.machine.expire(self.started.elapsed(), progress);
            }
        }
    }

    fn inbound_task(&self) -> LegTask {
        match self.machine.inbound() {
            _ if self.is_ending => LegTask::End,
            DataFlow::Relay => LegTask::Relay,
            DataFlow::Discard => LegTask::Discard,
            DataFlow::Wait if self.machine.awaits_acknowledgement() => LegTask::Acknowledge,
            DataFlow::Wait => LegTask::Wait,
        }
    }

    fn connected(&mut self, connected: Result<Leg, DataInput>) {
        self.connecting = None;
        let input = match connected {
            Ok(leg) => {
                self.leg = Some(leg.into_split());
                match self.is_securing {
                    true => DataInput::Secured,
                    false => DataInput::Connected,
                }
            }
            Err(input) => input,
        };
        self.handle(input);
    }

    fn progress(&self) -> DataProgress {
        let (to_link, from_link) = self.transfer.meters();
        let has_unread =
            |(reader, _): &(LegReader, LegWriter)| socket::has_unread(reader.leg().connection());
        DataProgress {
            outbound_bytes: to_link.bytes(),
            inbound_bytes: from_link.bytes(),
            has_unread: self.leg.as_ref().is_some_and(has_unread),
        }
    }
}

async fn next<T>(orders: &mut Option<mpsc::UnboundedReceiver<T>>) -> Option<T> {
    match orders {
        Some(orders) => orders.recv().await,
        None => std::future::pending().await,
    }
}

async fn ready<T>(future: &mut Option<BoxedFuture<T>>) -> T {
    match future {
        Some(future) => future.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn opened(awaited: &mut Option<oneshot::Receiver<StreamHalves>>) -> Option<StreamHalves> {
    match awaited {
        Some(awaited) => awaited.await.ok(),
        None => std::future::pending().await,
    }
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn code(cause: ResetCause) -> u32 {
    match cause {
        ResetCause::Aborted => reset::ABORTED,
        ResetCause::Ended => reset::SESSION_ENDED,
        ResetCause::Unreachable => reset::UNREACHABLE,
    }
}
