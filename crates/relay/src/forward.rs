//! A forwarded connection as a machine. An orderly end of one direction becomes an orderly end at
//! the other connection, any other end a reset.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use ftp::session::data::{Cause, Flow, Input, Machine, Output, Progress};
use tokio::sync::mpsc;

use crate::{
    optimise::{Coded, Hold},
    pairing::Stream,
    pump::{self, Grants, Parts, StreamSource},
    status::Transfer,
    wire::Coding,
};
use net::{Connection, tls::Leg};

/// Joins a connection and a stream until both directions have ended.
///
/// # Errors
/// The reason for which the connection or the stream broke.
pub(crate) async fn join(
    connection: Connection,
    stream: Stream,
    coding: Option<&Coding>,
    transfer: std::sync::Arc<Transfer>,
) -> Result<(), String> {
    // A forward has no session that gives orders.
    let (_, orders) = mpsc::unbounded_channel();
    let parts = Parts {
        grants: Grants::default(),
        machine: Forward::new(),
        connect: Box::pin(async { Ok(Leg::plain(connection)) }),
        secure: None,
        stream: StreamSource::Open(stream),
        coded: coding.map(|coding| Coded {
            compresses: coding.compresses,
            sharing: None,
        }),
        hold: Hold::Dialogue,
        spool: None,
        orders,
        tell: Box::new(|event: Infallible| match event {}),
        truncation: None,
        transfer,
    };
    pump::run(parts).await
}

#[derive(Debug)]
struct Forward {
    is_open: bool,
    has_sent_end: bool,
    inbound: Inbound,
    is_done: bool,
    outputs: VecDeque<Output<Infallible>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Relaying,
    Ending,
    Ended,
}

impl Forward {
    fn new() -> Self {
        Self {
            is_open: false,
            has_sent_end: false,
            inbound: Inbound::Relaying,
            is_done: false,
            outputs: VecDeque::from([Output::Connect]),
        }
    }

    fn break_off(&mut self, why: String) {
        self.outputs.push_back(Output::Reset(Cause::Aborted));
        self.outputs.push_back(Output::ResetLeg);
        self.done(Some(why));
    }

    fn done(&mut self, broken: Option<String>) {
        self.is_done = true;
        self.outputs.push_back(Output::Done { broken });
    }
}

impl Machine for Forward {
    type Order = Infallible;
    type Event = Infallible;

    fn order(&mut self, _now: Duration, order: Infallible) {
        match order {}
    }

    fn handle(&mut self, _now: Duration, input: Input) {
        if self.is_done {
            return;
        }
        match input {
            Input::Connected => self.is_open = true,
            Input::LegEnded { .. } => {
                self.has_sent_end = true;
                self.outputs.push_back(Output::Finish);
            }
            Input::StreamEnded => {
                self.inbound = Inbound::Ending;
                self.outputs.push_back(Output::EndLeg);
            }
            Input::EndWritten => self.inbound = Inbound::Ended,
            Input::StreamStopped => self.break_off("link: the peer stopped reading".to_owned()),
            Input::NotConnected(why)
            | Input::NotSecured(why)
            | Input::ReadFailed(why)
            | Input::BrokenUnused(why)
            | Input::Alerted(why)
            | Input::StreamLost(why)
            | Input::StreamBroken(why)
            | Input::WriteFailed(why)
            | Input::NotAcknowledged(why) => self.break_off(why),
            // These inputs do not occur.
            Input::SessionEnded
            | Input::Secured
            | Input::StreamOpened
            | Input::PeerTold(_)
            | Input::Acknowledged => {}
        }
        if self.has_sent_end && self.inbound == Inbound::Ended && !self.is_done {
            self.done(None);
        }
    }

    fn expire(&mut self, _now: Duration, _progress: Progress) {}

    fn poll(&mut self) -> Option<Output<Infallible>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Duration> {
        None
    }

    fn outbound(&self) -> Flow {
        match self.is_open && !self.has_sent_end {
            true => Flow::Relay,
            false => Flow::Wait,
        }
    }

    fn inbound(&self) -> Flow {
        match self.is_open && self.inbound == Inbound::Relaying {
            true => Flow::Relay,
            false => Flow::Wait,
        }
    }
}
