//! The data connection between the far gateway and the server.

use std::time::Duration;

use super::{
    DataFlow, DataInput, DataMachine, DataOutput, DataOutputs, DataProgress, ResetCause,
    stall::StallDetector, timers::Timers,
};
use crate::command::DataDirection;

/// Properties of a data connection.
#[derive(Debug, Clone, Copy)]
pub struct FarDataSetup {
    /// Whether the server connects. It does so after it has received the command of a transfer.
    pub is_accepted: bool,
    /// Time without a byte after which the data connection is reset.
    pub stall_timeout: Duration,
    /// Whether the data use TLS. An end without close_notify is then reported to the peer.
    pub has_tls: bool,
}

/// An order of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarDataOrder {
    /// The server has received the command of a transfer in this direction. The direction of an
    /// unknown verb is `None`.
    Commanded(Option<DataDirection>),
    /// The transfer has begun: the server awaits TLS.
    Begin,
    /// The gateway stops waiting for a server that has not connected.
    Unlisten,
    /// The server reported success without a preliminary reply.
    Done,
    /// Reset the data connection.
    Abort {
        /// Whether the server gets a moment to close by itself.
        grace: bool,
    },
}

/// Event for the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarDataEvent {
    /// The server does not accept the connection, or does not open it.
    Refused,
    /// All bytes from the client, and their end, have been written to the server.
    Delivered,
    /// The server has accepted only a part of the client's bytes.
    Lost,
    /// The data connection is over. Without [`Delivered`](Self::Delivered), bytes of the client may
    /// have been lost.
    Closed,
}

/// The data connection at the server's side.
#[derive(Debug)]
pub struct FarData {
    setup: FarDataSetup,
    leg: Leg,
    has_stream: bool,
    has_begun: bool,
    is_commanded: bool,
    has_session: bool,
    /// Whether bytes of the client could not be written.
    is_lost: bool,
    /// Whether the transfer was aborted before the data connection was open.
    is_aborted: bool,
    /// Whether the server reported success without a preliminary reply.
    is_answered: bool,
    stall: StallDetector,
    direction: Option<DataDirection>,
    outbound: Outbound,
    inbound: Inbound,
    timers: Timers<Timer>,
    outputs: DataOutputs<FarDataEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leg {
    Connecting,
    /// Connected. The stream, or the start of TLS, is awaited.
    Connected,
    Securing,
    Open,
    /// The leg could not be connected.
    Failed,
    /// The leg is reset after a moment for the server.
    Aborting,
}

/// From the server to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    Relaying,
    /// The server broke the connection before the first byte. If its reply is a success, it had no
    /// bytes to send.
    InDoubt,
    /// The server has ended without close_notify, and the near gateway has not confirmed the report
    /// yet.
    Telling,
    Finished,
}

/// From the link to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Relaying,
    /// The end is being written to the server.
    Ending,
    /// The server has ended a download. Our end answers it, and the client's bytes have no meaning.
    Discarding,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Timeout of the server's connection.
    Accept,
    /// Timeout of the stream.
    Stream,
    /// Timeout of the server's end of an aborted transfer.
    Grace,
    /// Timeout of the server's reply after an early break.
    Doubt,
    /// Check whether any bytes have moved.
    Stall,
}

impl FarData {
    /// Creates a data connection that the server has agreed on.
    pub fn new(setup: FarDataSetup) -> Self {
        let mut outputs = DataOutputs::default();
        outputs.push(DataOutput::Connect);
        Self {
            setup,
            leg: Leg::Connecting,
            has_stream: false,
            has_begun: false,
            is_commanded: false,
            has_session: true,
            is_lost: false,
            is_aborted: false,
            is_answered: false,
            stall: StallDetector::new(setup.stall_timeout),
            direction: None,
            outbound: Outbound::Relaying,
            inbound: Inbound::Relaying,
            timers: Timers::default(),
            outputs,
        }
    }
}

impl DataMachine for FarData {
    type Order = FarDataOrder;
    type Event = FarDataEvent;

    fn poll(&mut self) -> Option<DataOutput<FarDataEvent>> {
        self.outputs.pop()
    }

    fn deadline(&self) -> Option<Duration> {
        self.timers.next().filter(|_| !self.outputs.is_done)
    }

    fn outbound(&self) -> DataFlow {
        match (self.leg, self.outbound) {
            (Leg::Open, Outbound::Relaying) => DataFlow::Relay,
            _ => DataFlow::Wait,
        }
    }

    fn inbound(&self) -> DataFlow {
        match (self.leg, self.inbound) {
            (Leg::Open, Inbound::Relaying) => DataFlow::Relay,
            (Leg::Open, Inbound::Discarding) => DataFlow::Discard,
            _ => DataFlow::Wait,
        }
    }

    fn awaits_leg(&self) -> bool {
        let is_awaited = matches!(self.leg, Leg::Connecting | Leg::Connected | Leg::Securing);
        self.has_stream && is_awaited && !self.is_aborted
    }

    fn order(&mut self, now: Duration, order: FarDataOrder) {
        if self.outputs.is_done {
            return;
        }
        match order {
            FarDataOrder::Commanded(direction) => {
                self.direction = direction;
                self.is_commanded = true;
                // The server may have ended before the direction was known.
                if self.leg == Leg::Open && self.outbound != Outbound::Relaying {
                    self.end_download();
                }
                if self.setup.is_accepted && self.leg == Leg::Connecting {
                    self.timers.start(Timer::Accept, now + ACCEPT_TIMEOUT);
                }
            }
            FarDataOrder::Begin => {
                self.has_begun = true;
                self.proceed(now);
            }
            FarDataOrder::Unlisten => match self.leg {
                Leg::Connecting => self.on_not_connected(now),
                Leg::Connected | Leg::Securing => self.break_off("the transfer has ended".into()),
                Leg::Open | Leg::Failed | Leg::Aborting => {}
            },
            FarDataOrder::Done => {
                self.is_answered = true;
                if self.outbound == Outbound::InDoubt {
                    self.end_unused();
                }
            }
            FarDataOrder::Abort { grace } => self.abort(now, grace),
        }
    }

    fn handle(&mut self, now: Duration, input: DataInput) {
        if self.outputs.is_done {
            return;
        }
        match input {
            DataInput::StreamOpened => {
                self.has_stream = true;
                self.timers.cancel(Timer::Stream);
                if self.leg == Leg::Failed {
                    self.give_up(ResetCause::Unreachable, "no data connection".to_owned());
                }
                self.proceed(now);
            }
            DataInput::Connected if self.leg == Leg::Connecting => {
                self.timers.cancel(Timer::Accept);
                if self.is_aborted {
                    return self.end_aborted(now);
                }
                self.leg = Leg::Connected;
                if !self.has_stream {
                    self.timers.set(Timer::Stream, now + STREAM_TIMEOUT);
                }
                self.proceed(now);
            }
            DataInput::NotConnected(_) if self.leg == Leg::Connecting => self.on_not_connected(now),
            DataInput::Secured if self.leg == Leg::Securing => self.open(now),
            DataInput::NotSecured(why) if self.leg == Leg::Securing => {
                self.give_up(ResetCause::Unreachable, format!("no TLS: {why}"));
            }
            DataInput::SessionEnded => {
                self.has_session = false;
                self.end_without_session(now);
            }
            // No client waits for this data connection any more.
            DataInput::StreamStopped if self.awaits_leg() => {
                self.break_off("the client aborted it".to_owned());
            }
            _ if self.leg != Leg::Open => {}
            DataInput::LegEnded { is_truncated } => self.on_server_ended(is_truncated),
            DataInput::StreamStopped if self.outbound != Outbound::Finished => {
                self.break_off("the client stopped reading".to_owned());
            }
            // OpenSSL sends an alert in reply to an end without close_notify, after it has read all
            // bytes before that end.
            DataInput::Alerted(_) if self.inbound == Inbound::Closed && !self.is_lost => {
                self.outputs.push(DataOutput::ResetLeg);
                self.on_server_ended(true);
            }
            DataInput::BrokenUnused(_) if self.may_be_unused() => self.on_broken_unused(now),
            DataInput::ReadFailed(why) | DataInput::BrokenUnused(why) | DataInput::Alerted(why) => {
                // The server may not have read all written bytes.
                self.outputs.push(DataOutput::Event(FarDataEvent::Lost));
                self.break_off(why);
            }
            DataInput::StreamLost(why) => self.break_off(why),
            DataInput::TruncationReported(Ok(())) => self.pass_end_on(),
            DataInput::TruncationReported(Err(why)) => self.break_off(why),
            DataInput::StreamEnded => self.on_client_ended(),
            DataInput::StreamBroken(why) => match self.inbound {
                Inbound::Discarding => self.inbound = Inbound::Closed,
                _ => self.break_off(why),
            },
            // The server accepts no more bytes. It may still send, and its reply contains the
            // reason.
            DataInput::WriteFailed(_) => {
                if self.direction != Some(DataDirection::Download)
                    && self.inbound != Inbound::Closed
                {
                    self.outputs.push(DataOutput::Event(FarDataEvent::Lost));
                }
                self.is_lost = true;
                self.outputs.push(DataOutput::Stop);
                self.inbound = Inbound::Closed;
            }
            DataInput::EndWritten => self.on_end_written(),
            _ => {}
        }
        self.finish_if_over();
    }

    fn expire(&mut self, now: Duration, progress: DataProgress) {
        while !self.outputs.is_done
            && let Some(timer) = self.timers.take_due(now)
        {
            match timer {
                Timer::Accept => self.on_not_connected(now),
                Timer::Stream => self.break_off("the near gateway has no stream for it".to_owned()),
                Timer::Grace => self.break_off("aborted".to_owned()),
                Timer::Doubt => {
                    self.outputs.push(DataOutput::Event(FarDataEvent::Lost));
                    self.break_off("the server reset the data connection".to_owned());
                }
                Timer::Stall => self.check_stall(now, progress),
            }
        }
    }
}

impl FarData {
    fn on_not_connected(&mut self, now: Duration) {
        self.timers.cancel(Timer::Accept);
        self.leg = Leg::Failed;
        self.outputs.push(DataOutput::ResetLeg);
        self.outputs.push(DataOutput::Event(FarDataEvent::Refused));
        if self.has_stream {
            self.give_up(ResetCause::Unreachable, "no data connection".to_owned());
        } else {
            self.timers.set(Timer::Stream, now + STREAM_TIMEOUT);
        }
    }

    /// Without a session no command follows, and without a command no server connects or starts
    /// TLS.
    fn end_without_session(&mut self, now: Duration) {
        if self.has_session {
            return;
        }
        match self.leg {
            Leg::Connecting if self.setup.is_accepted && !self.is_commanded => {
                self.on_not_connected(now);
            }
            Leg::Connected if self.setup.has_tls && !self.has_begun => {
                self.break_off("the session has ended".to_owned());
            }
            _ => {}
        }
    }

    fn check_stall(&mut self, now: Duration, progress: DataProgress) {
        match self.stall.check(progress) {
            Some(why) => self.break_off(why),
            None => self.timers.set(Timer::Stall, self.stall.next(now)),
        }
    }

    fn open(&mut self, now: Duration) {
        self.leg = Leg::Open;
        self.timers.set(Timer::Stall, self.stall.next(now));
    }

    fn proceed(&mut self, now: Duration) {
        self.end_without_session(now);
        if self.leg != Leg::Connected || !self.has_stream {
            return;
        }
        if !self.setup.has_tls {
            self.open(now);
        } else if self.has_begun {
            // Some servers do not await TLS before their 1yz reply.
            self.leg = Leg::Securing;
            self.outputs.push(DataOutput::Secure);
        }
    }

    fn on_server_ended(&mut self, is_truncated: bool) {
        if self.outbound != Outbound::Relaying {
            return;
        }
        // The server's end has no meaning for an upload.
        let is_upload = self.direction == Some(DataDirection::Upload);
        if self.is_lost && !is_upload {
            // A failed write consumes the error of a reset, and the reset then looks like an end.
            return self.break_off("the server stopped reading".to_owned());
        }
        if is_truncated && self.setup.has_tls && !is_upload {
            self.outbound = Outbound::Telling;
            self.outputs.push(DataOutput::ReportTruncation);
        } else {
            self.pass_end_on();
        }
        self.end_download();
    }

    /// Whether the end of the data connection may mean that the server had no bytes to send.
    fn may_be_unused(&self) -> bool {
        let is_download = self.direction == Some(DataDirection::Download);
        is_download && !self.setup.has_tls && self.outbound == Outbound::Relaying && !self.is_lost
    }

    /// Handles the break of an unused data connection. For an empty list some servers close their
    /// listener, and reset the connection that they have not accepted.
    fn on_broken_unused(&mut self, now: Duration) {
        self.outbound = Outbound::InDoubt;
        match self.is_answered {
            true => self.end_unused(),
            false => self.timers.set(Timer::Doubt, now + DOUBT_TIMEOUT),
        }
    }

    fn end_unused(&mut self) {
        self.timers.cancel(Timer::Doubt);
        self.inbound = match self.inbound {
            Inbound::Closed => Inbound::Closed,
            _ => Inbound::Discarding,
        };
        self.pass_end_on();
    }

    fn pass_end_on(&mut self) {
        self.outputs.push(DataOutput::Finish);
        self.outbound = Outbound::Finished;
    }

    /// Answers the server's end of a download with ours. Some servers await it before their final
    /// reply, and the client's own end would arrive a round trip of the WAN later.
    fn end_download(&mut self) {
        let is_download = self.direction == Some(DataDirection::Download);
        if is_download && self.inbound == Inbound::Relaying {
            self.inbound = Inbound::Ending;
            self.outputs.push(DataOutput::EndLeg);
        }
    }

    fn on_client_ended(&mut self) {
        match self.inbound {
            Inbound::Relaying => {
                self.inbound = Inbound::Ending;
                self.outputs.push(DataOutput::EndLeg);
            }
            Inbound::Discarding => self.inbound = Inbound::Closed,
            Inbound::Ending | Inbound::Closed => {}
        }
    }

    fn on_end_written(&mut self) {
        if self.inbound != Inbound::Ending {
            return;
        }
        if self.direction == Some(DataDirection::Download) {
            self.inbound = Inbound::Discarding;
        } else {
            self.inbound = Inbound::Closed;
            self.outputs
                .push(DataOutput::Event(FarDataEvent::Delivered));
        }
    }

    fn abort(&mut self, now: Duration, grace: bool) {
        match self.leg {
            // vsftpd reads its control connection only after the data connection was opened and
            // closed.
            Leg::Connecting if grace => self.is_aborted = true,
            Leg::Connecting => self.on_not_connected(now),
            Leg::Failed => {}
            Leg::Connected | Leg::Securing => self.break_off("aborted".to_owned()),
            Leg::Open if grace => self.end_aborted(now),
            Leg::Open | Leg::Aborting => self.break_off("aborted".to_owned()),
        }
    }

    fn end_aborted(&mut self, now: Duration) {
        self.leg = Leg::Aborting;
        if self.has_stream {
            self.outputs.push(DataOutput::Reset(ResetCause::Aborted));
        }
        self.timers.set(Timer::Grace, now + ABORT_GRACE);
    }

    fn break_off(&mut self, why: String) {
        self.give_up(ResetCause::Aborted, why);
    }

    fn give_up(&mut self, cause: ResetCause, why: String) {
        if self.has_stream {
            self.outputs.push(DataOutput::Reset(cause));
        }
        self.outputs.push(DataOutput::ResetLeg);
        self.outputs.push(DataOutput::Event(FarDataEvent::Closed));
        self.outputs.done(Some(why));
    }

    fn finish_if_over(&mut self) {
        let is_over = self.outbound == Outbound::Finished && self.inbound == Inbound::Closed;
        if is_over && !self.outputs.is_done {
            self.outputs.push(DataOutput::Event(FarDataEvent::Closed));
            let lost = "the server read only a part";
            self.outputs.done(self.is_lost.then(|| lost.to_owned()));
        }
    }
}

/// Time for a server to connect, starting at the command of the transfer.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(120);

/// Time by which the server's announcement may precede the link stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for a server that supports ABOR to close by itself.
const ABORT_GRACE: Duration = Duration::from_millis(300);

/// Time for the reply of a server that has broken its data connection before the first byte.
const DOUBT_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of an upload under TLS at the server's alert. With `has_ended` the
    /// upload's end has been written.
    fn alerted(has_ended: bool) -> Vec<FarDataEvent> {
        let now = Duration::ZERO;
        let mut data = FarData::new(FarDataSetup {
            is_accepted: false,
            stall_timeout: Duration::from_secs(60),
            has_tls: true,
        });
        data.order(now, FarDataOrder::Commanded(Some(DataDirection::Upload)));
        data.order(now, FarDataOrder::Begin);
        for input in [
            DataInput::StreamOpened,
            DataInput::Connected,
            DataInput::Secured,
        ] {
            data.handle(now, input);
        }
        if has_ended {
            data.handle(now, DataInput::StreamEnded);
            data.handle(now, DataInput::EndWritten);
        }
        data.handle(now, DataInput::Alerted("decode error".to_owned()));
        let outputs = std::iter::from_fn(|| data.poll());
        let events = outputs.filter_map(|output| match output {
            DataOutput::Event(event) => Some(event),
            _ => None,
        });
        events.collect()
    }

    /// Returns the outputs of a download whose data connection the server resets before the first
    /// byte.
    fn reset_unused(order: Option<FarDataOrder>) -> Vec<DataOutput<FarDataEvent>> {
        let now = Duration::ZERO;
        let mut data = FarData::new(FarDataSetup {
            is_accepted: false,
            stall_timeout: Duration::from_secs(60),
            has_tls: false,
        });
        data.order(now, FarDataOrder::Commanded(Some(DataDirection::Download)));
        for input in [DataInput::StreamOpened, DataInput::Connected] {
            data.handle(now, input);
        }
        data.handle(now, DataInput::BrokenUnused("reset".to_owned()));
        if let Some(order) = order {
            data.order(now, order);
        }
        data.expire(now + DOUBT_TIMEOUT, DataProgress::default());
        std::iter::from_fn(|| data.poll()).skip(1).collect()
    }

    #[test]
    fn a_success_without_a_beginning_or_a_byte_is_an_empty_transfer() {
        assert_eq!(reset_unused(Some(FarDataOrder::Done)), [DataOutput::Finish]);
        let broken = reset_unused(None);
        assert!(
            broken.contains(&DataOutput::Reset(ResetCause::Aborted)),
            "{broken:?}"
        );
    }

    #[test]
    fn an_alert_behind_the_end_of_an_upload_loses_nothing() {
        assert_eq!(
            alerted(true),
            [FarDataEvent::Delivered, FarDataEvent::Closed]
        );
        assert_eq!(alerted(false), [FarDataEvent::Lost, FarDataEvent::Closed]);
    }
}
