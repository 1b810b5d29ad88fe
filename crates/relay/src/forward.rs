//! State machine of a forwarded connection. If the host at one connection ends its sending
//! direction, the gateway ends the same direction at the opposite connection. If one connection
//! breaks, the gateway resets the opposite connection.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use ftp::session::data::{DataFlow, DataInput, DataMachine, DataOutput, DataProgress, ResetCause};
use tokio::sync::mpsc;

use crate::{
    optimise::{FlushDelay, StreamCoding},
    pairing::StreamHalves,
    pump::{self, Grants, PumpParts, StreamSource},
    status::OpenTransfer,
    wire::CodingOffer,
};
use net::{Connection, tls::Leg};

/// Relays bytes between a connection and a stream until both directions have ended.
///
/// # Errors
/// The reason why the connection or the stream broke.
pub(crate) async fn join(
    connection: Connection,
    stream: StreamHalves,
    coding: Option<&CodingOffer>,
    transfer: std::sync::Arc<OpenTransfer>,
) -> Result<(), String> {
    // A forward has no session that gives orders.
    let (_, orders) = mpsc::unbounded_channel();
    let parts = PumpParts {
        grants: Grants::default(),
        machine: ForwardMachine::new(),
        connect: Box::pin(async { Ok(Leg::plain(connection)) }),
        secure: None,
        stream: StreamSource::Open(stream),
        stream_coding: coding.map(|coding| StreamCoding::without_chunks(coding.compresses)),
        flush_delay: FlushDelay::Dialogue,
        spool: None,
        orders,
        on_event: Box::new(|event: Infallible| match event {}),
        truncation: None,
        transfer,
    };
    pump::run(parts).await
}

#[derive(Debug)]
struct ForwardMachine {
    is_open: bool,
    has_sent_end: bool,
    inbound: Inbound,
    is_done: bool,
    outputs: VecDeque<DataOutput<Infallible>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Relaying,
    Ending,
    Ended,
}

impl ForwardMachine {
    fn new() -> Self {
        Self {
            is_open: false,
            has_sent_end: false,
            inbound: Inbound::Relaying,
            is_done: false,
            outputs: VecDeque::from([DataOutput::Connect]),
        }
    }

    fn break_off(&mut self, why: String) {
        self.outputs
            .push_back(DataOutput::Reset(ResetCause::Aborted));
        self.outputs.push_back(DataOutput::ResetLeg);
        self.done(Some(why));
    }

    fn done(&mut self, broken: Option<String>) {
        self.is_done = true;
        self.outputs.push_back(DataOutput::Done { broken });
    }
}

impl DataMachine for ForwardMachine {
    type Order = Infallible;
    type Event = Infallible;

    fn order(&mut self, _now: Duration, order: Infallible) {
        match order {}
    }

    fn handle(&mut self, _now: Duration, input: DataInput) {
        if self.is_done {
            return;
        }
        match input {
            DataInput::Connected => self.is_open = true,
            DataInput::LegEnded { .. } => {
                self.has_sent_end = true;
                self.outputs.push_back(DataOutput::Finish);
            }
            DataInput::StreamEnded => {
                self.inbound = Inbound::Ending;
                self.outputs.push_back(DataOutput::EndLeg);
            }
            DataInput::EndWritten => self.inbound = Inbound::Ended,
            DataInput::StreamStopped => self.break_off("link: the peer stopped reading".to_owned()),
            DataInput::NotConnected(why)
            | DataInput::NotSecured(why)
            | DataInput::ReadFailed(why)
            | DataInput::BrokenUnused(why)
            | DataInput::Alerted(why)
            | DataInput::StreamLost(why)
            | DataInput::StreamBroken(why)
            | DataInput::WriteFailed(why)
            | DataInput::NotAcknowledged(why) => self.break_off(why),
            // These inputs do not occur.
            DataInput::SessionEnded
            | DataInput::Secured
            | DataInput::StreamOpened
            | DataInput::TruncationReported(_)
            | DataInput::Acknowledged => {}
        }
        if self.has_sent_end && self.inbound == Inbound::Ended && !self.is_done {
            self.done(None);
        }
    }

    fn expire(&mut self, _now: Duration, _progress: DataProgress) {}

    fn poll(&mut self) -> Option<DataOutput<Infallible>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Duration> {
        None
    }

    fn outbound(&self) -> DataFlow {
        match self.is_open && !self.has_sent_end {
            true => DataFlow::Relay,
            false => DataFlow::Wait,
        }
    }

    fn inbound(&self) -> DataFlow {
        match self.is_open && self.inbound == Inbound::Relaying {
            true => DataFlow::Relay,
            false => DataFlow::Wait,
        }
    }
}
