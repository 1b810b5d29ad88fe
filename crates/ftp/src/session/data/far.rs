//! State machine of the data connection between the far gateway and the server.

use std::time::Duration;

use super::{
    DataFlow, DataInput, DataMachine, DataOutput, DataOutputs, DataProgress, ResetCause,
    stall::StallDetector, timers::Timers,
};
use crate::command::DataDirection;

/// Properties of a data connection between the far gateway and the server.
#[derive(Debug, Clone, Copy)]
pub struct FarDataSetup {
    /// Whether the server connects to the gateway. The server connects after it has received a
    /// transfer command.
    pub is_accepted: bool,
    /// Timeout: the gateway resets the data connection if no byte moves for this time.
    pub stall_timeout: Duration,
    /// Whether the data connection uses TLS. If so, and the server ends a download without
    /// close_notify, the far gateway reports the truncation to the near gateway.
    pub has_tls: bool,
}

/// An order from the session to its data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarDataOrder {
    /// The server has received a transfer command. The value is the direction of the transfer, or
    /// `None` if the verb is unknown.
    Commanded(Option<DataDirection>),
    /// The transfer has begun. The server now waits for the TLS handshake.
    Begin,
    /// The server has not connected. Stop waiting for its connection.
    Unlisten,
    /// The server reported success without a preliminary reply.
    Done,
    /// Reset the data connection, because the transfer was aborted.
    Abort {
        /// Whether the gateway first waits a short time for the server to close the data
        /// connection.
        grace: bool,
    },
}

/// Event that a data connection reports to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarDataEvent {
    /// The data connection failed to open: the server did not accept it, or did not connect.
    Refused,
    /// The gateway has written all bytes from the client, and the end of file, to the server.
    Delivered,
    /// The server has accepted only some of the client's bytes.
    Lost,
    /// The data connection is closed. Without an earlier [`Delivered`](Self::Delivered), the server
    /// may lack some of the client's bytes.
    Closed,
}

/// State machine of a data connection between the far gateway and the server.
#[derive(Debug)]
pub struct FarData {
    setup: FarDataSetup,
    leg: Leg,
    has_stream: bool,
    has_begun: bool,
    is_commanded: bool,
    has_session: bool,
    /// Whether a write of the client's bytes to the server has failed.
    is_lost: bool,
    /// Whether the transfer was aborted before the data connection opened.
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
    /// The TCP connection is open. The machine waits for the link stream or for the start of TLS.
    Connected,
    Securing,
    Open,
    /// The TCP connection could not be opened.
    Failed,
    /// The transfer was aborted. The machine waits a short time for the server to close, then
    /// resets the connection.
    Aborting,
}

/// State of the direction from the server to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    Relaying,
    /// The server reset the connection before the first byte. If the server's reply is a success,
    /// the server had no bytes to send.
    InDoubt,
    /// The server ended the data connection without close_notify. The near gateway has not yet
    /// confirmed the report of the truncation.
    Telling,
    Finished,
}

/// State of the direction from the link to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Relaying,
    /// The gateway is sending the end of file to the server.
    Ending,
    /// The server has ended a download, and the gateway has closed its sending direction in reply.
    /// The machine discards the client's bytes.
    Discarding,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Timeout for the server to connect.
    Accept,
    /// Timeout for the link stream to open.
    Stream,
    /// Timeout for the server to close the data connection of an aborted transfer.
    Grace,
    /// Timeout for the server's reply if the server has reset the connection before the first byte.
    Doubt,
    /// Time at which the machine next checks whether any bytes have moved.
    Stall,
}

impl FarData {
    /// Creates a data connection. Its address is known: the port that the server has announced, or
    /// the socket on which the gateway listens.
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
                // The server may have closed the data connection before the direction was known.
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
            // If a TLS connection ends without close_notify, OpenSSL reads all earlier bytes and
            // then sends an alert.
            DataInput::Alerted(_) if self.inbound == Inbound::Closed && !self.is_lost => {
                self.outputs.push(DataOutput::ResetLeg);
                self.on_server_ended(true);
            }
            DataInput::BrokenUnused(_) if self.may_be_unused() => self.on_broken_unused(now),
            DataInput::ReadFailed(why) | DataInput::BrokenUnused(why) | DataInput::Alerted(why) => {
                // Some written bytes may still be unread at the server.
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

    /// After the end of the session, ends a data connection that can no longer be used. Without a
    /// session, no transfer command follows. Without such a command, the server neither connects
    /// nor starts TLS.
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
            // Some servers send their 1yz reply before the TLS handshake.
            self.leg = Leg::Securing;
            self.outputs.push(DataOutput::Secure);
        }
    }

    fn on_server_ended(&mut self, is_truncated: bool) {
        if self.outbound != Outbound::Relaying {
            return;
        }
        // For an upload, an end of file from the server has no meaning.
        let is_upload = self.direction == Some(DataDirection::Upload);
        if self.is_lost && !is_upload {
            // The failed write has consumed the error that reports a reset. The next read therefore
            // reports an end of file.
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

    /// Whether a reset of the data connection may mean that the server had no bytes to send.
    fn may_be_unused(&self) -> bool {
        let is_download = self.direction == Some(DataDirection::Download);
        is_download && !self.setup.has_tls && self.outbound == Outbound::Relaying && !self.is_lost
    }

    /// Handles a reset of the data connection before the first byte. If a listing is empty, some
    /// servers close their listening socket and thus reset the unaccepted connection.
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

    /// Sends the end of file to a server that has ended a download. Some servers send their final
    /// reply only after this end of file. The client's own end of file would arrive one WAN round
    /// trip later.
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

/// Time limit for a server to connect. The time starts when the server has received the transfer
/// command.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(120);

/// Time limit for the link stream to open. The time starts when the data connection has opened or
/// failed.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for a server that supports `ABOR` to close the data connection itself.
const ABORT_GRACE: Duration = Duration::from_millis(300);

/// Time limit for the server's reply if the server has reset the data connection before the first
/// byte.
const DOUBT_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of a TLS upload during which the server sends a fatal alert. If
    /// `has_ended` is set, the gateway has already sent the end of the upload.
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

    /// Returns the outputs of a download whose server resets the data connection before the first
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
