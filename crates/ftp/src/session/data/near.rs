//! State machine of the data connection between the near gateway and the client.

use std::time::Duration;

use super::{
    DataFlow, DataInput, DataMachine, DataOutput, DataOutputs, DataProgress, ResetCause,
    stall::StallDetector, timers::Timers,
};
use crate::command::DataDirection;

/// Method by which the client's data connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataOpening {
    /// The client connects to the gateway.
    Accept,
    /// The gateway connects to the client's port.
    Dial,
}

/// Properties of a data connection between the near gateway and the client.
#[derive(Debug, Clone, Copy)]
pub struct NearDataSetup {
    /// Method by which the data connection is opened.
    pub opening: DataOpening,
    /// Whether the gateway connects to the client's port for an upload before the server has
    /// accepted the command. If so, several uploads may run in parallel, and no upload waits a
    /// round trip for its data connection.
    pub dials_early: bool,
    /// Whether the data connection uses TLS.
    pub has_tls: bool,
    /// Whether client and server both use TLS. If so, and the client ends an upload without
    /// close_notify, the near gateway reports the truncation to the far gateway.
    pub reports_truncation: bool,
    /// Timeout: the gateway resets the data connection if no byte moves for this time.
    pub stall_timeout: Duration,
}

/// An order from the session to its data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NearDataOrder {
    /// The client has received the port to which it must connect. The time limit for the connection
    /// starts now.
    Announced,
    /// The client has requested a transfer. The value is the direction of the transfer, or `None`
    /// if the verb is unknown.
    Start(Option<DataDirection>),
    /// The `1yz` reply has been written to the client. Data may now flow to the client.
    Release,
    /// The server's final reply has arrived.
    Finish {
        /// Whether the code of the reply was `2yz`.
        succeeded: bool,
    },
    /// The client has closed its control connection during an upload. The machine continues while
    /// the client's bytes or end of file arrive. Otherwise, the machine resets the data connection.
    ClientGone,
    /// Reset the client's data connection and the stream now.
    Kill,
}

/// Event that a data connection reports to its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearDataEvent {
    /// The client has sent all bytes and the end of file.
    ClientEnded,
    /// The client has received all bytes from the server, and the end of file.
    Delivered,
    /// The data connection failed. The text is the reason.
    Failed(String),
    /// The client did not connect within the time limit.
    Expired,
    /// The data connection could not be opened. The text is the reason.
    NotConnected(String),
}

/// State machine of a data connection between the near gateway and the client.
#[derive(Debug)]
pub struct NearData {
    setup: NearDataSetup,
    leg: Leg,
    outbound: Outbound,
    inbound: Inbound,
    direction: Option<DataDirection>,
    is_released: bool,
    /// Whether the final reply is a success. `None` before the final reply arrives.
    succeeded: Option<bool>,
    /// Whether the far gateway stopped reading before the client had sent its end of file.
    is_cut_off: bool,
    /// Whether the session has received an event for the end of the data connection.
    has_told: bool,
    quiet_checks: u32,
    quiet_since: DataProgress,
    stall: StallDetector,
    timers: Timers<Timer>,
    outputs: DataOutputs<NearDataEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leg {
    /// The machine waits for the order that permits the connection.
    Waiting,
    Connecting,
    /// The client is connected. The client may delay its TLS handshake until the server's reply
    /// arrives. This delay may be long.
    Securing,
    Open,
}

/// State of the direction from the client to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    Relaying,
    /// The client ended the data connection without close_notify. The far gateway has not yet
    /// confirmed the report of the truncation.
    Telling,
    /// The gateway has sent the client's end of file on the stream.
    Finished,
    /// The gateway reads the client's bytes and drops them.
    Discarding,
    /// The gateway no longer reads from the client.
    Closed,
}

/// State of the direction from the link to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    /// The gateway sends neither bytes nor an end of file to the client before the reply that
    /// announces the transfer.
    Held,
    Relaying,
    /// The gateway is sending the end of file to the client.
    Ending,
    /// The client's kernel has not yet acknowledged all bytes.
    Acknowledging,
    /// The server closed its data connection during an upload. The server's reply decides whether
    /// the upload has failed.
    ReplyDecides,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Timeout for the client to connect.
    Expiry,
    /// Time at which the machine next checks for bytes from a client that has closed its control
    /// connection.
    Quiet,
    /// Time at which the machine next checks whether any bytes have moved.
    Stall,
    /// Time at which the gateway stops reading discarded bytes from the client.
    Discard,
    /// Timeout for the server's reply to a broken upload.
    Reply,
    /// Timeout for the end of the server's data connection after a finished upload.
    ServerEnd,
    /// Time at which the gateway closes a finished upload although the server's data connection is
    /// still open.
    Linger,
}

impl NearData {
    /// Creates a data connection that the client has requested.
    pub fn new(setup: NearDataSetup) -> Self {
        let mut data = Self {
            setup,
            leg: Leg::Waiting,
            outbound: Outbound::Relaying,
            inbound: Inbound::Held,
            direction: None,
            is_released: false,
            succeeded: None,
            is_cut_off: false,
            has_told: false,
            quiet_checks: 0,
            quiet_since: DataProgress::default(),
            stall: StallDetector::new(setup.stall_timeout),
            timers: Timers::default(),
            outputs: DataOutputs::default(),
        };
        if setup.opening == DataOpening::Accept {
            data.connect();
        }
        data
    }
}

impl DataMachine for NearData {
    type Order = NearDataOrder;
    type Event = NearDataEvent;

    fn poll(&mut self) -> Option<DataOutput<NearDataEvent>> {
        self.outputs.pop()
    }

    fn deadline(&self) -> Option<Duration> {
        self.timers.next().filter(|_| !self.outputs.is_done)
    }

    fn outbound(&self) -> DataFlow {
        match (self.leg, self.outbound) {
            (Leg::Open, Outbound::Relaying) => DataFlow::Relay,
            (Leg::Open, Outbound::Discarding) => DataFlow::Discard,
            _ => DataFlow::Wait,
        }
    }

    fn inbound(&self) -> DataFlow {
        match (self.leg, self.inbound) {
            (Leg::Open, Inbound::Relaying) => DataFlow::Relay,
            _ => DataFlow::Wait,
        }
    }

    fn awaits_acknowledgement(&self) -> bool {
        self.inbound == Inbound::Acknowledging
    }

    fn order(&mut self, now: Duration, order: NearDataOrder) {
        if self.outputs.is_done {
            return;
        }
        match order {
            NearDataOrder::Announced => {
                if self.leg == Leg::Connecting {
                    self.timers.start(Timer::Expiry, now + EXPIRY);
                }
            }
            NearDataOrder::Start(direction) => {
                self.direction = direction;
                let is_upload = direction == Some(DataDirection::Upload);
                if self.leg == Leg::Waiting && is_upload && self.setup.dials_early {
                    self.connect();
                }
            }
            NearDataOrder::Release => {
                self.is_released = true;
                self.on_announced();
            }
            NearDataOrder::Finish { succeeded } => self.on_finished(now, succeeded),
            NearDataOrder::ClientGone => self.timers.start(Timer::Quiet, now + QUIET_CHECK),
            NearDataOrder::Kill => self.break_off("aborted by the session".to_owned()),
        }
    }

    fn handle(&mut self, now: Duration, input: DataInput) {
        if self.outputs.is_done {
            return;
        }
        match input {
            DataInput::Connected => self.on_connected(now),
            DataInput::Secured => self.open(now),
            DataInput::SessionEnded => self.on_session_ended(),
            DataInput::NotConnected(why) => {
                self.give_up(NearDataEvent::NotConnected(why.clone()), why)
            }
            DataInput::NotSecured(why) => self.break_off(format!("no TLS: {why}")),
            DataInput::LegEnded { is_truncated } => self.on_client_ended(now, is_truncated),
            DataInput::ReadFailed(_) | DataInput::BrokenUnused(_) | DataInput::Alerted(_)
                if self.outbound == Outbound::Discarding =>
            {
                self.outbound = Outbound::Closed;
            }
            DataInput::ReadFailed(why)
            | DataInput::BrokenUnused(why)
            | DataInput::Alerted(why)
            | DataInput::StreamLost(why) => {
                self.break_off(why);
            }
            DataInput::StreamStopped => self.cut_off(now),
            DataInput::TruncationReported(Ok(())) => self.pass_end_on(now),
            DataInput::TruncationReported(Err(why)) | DataInput::NotAcknowledged(why) => {
                self.break_off(why)
            }
            DataInput::StreamEnded => {
                if self.inbound == Inbound::Relaying {
                    self.inbound = Inbound::Ending;
                    self.outputs.push(DataOutput::EndLeg);
                }
            }
            DataInput::StreamBroken(why) => self.on_stream_broken(now, why),
            DataInput::WriteFailed(why) => self.on_write_failed(why),
            DataInput::EndWritten => self.on_end_written(),
            DataInput::Acknowledged => self.close_inbound(),
            DataInput::StreamOpened => {}
        }
        self.finish_if_over();
    }

    fn expire(&mut self, now: Duration, progress: DataProgress) {
        while !self.outputs.is_done
            && let Some(timer) = self.timers.take_due(now)
        {
            match timer {
                Timer::Expiry if self.succeeded == Some(false) => {
                    self.break_off("the transfer has failed".to_owned());
                }
                Timer::Expiry => {
                    self.give_up(NearDataEvent::Expired, "the client did not connect".into())
                }
                Timer::Quiet => self.check_quiet(now, progress),
                Timer::Stall => self.check_stall(now, progress),
                Timer::Discard => self.outbound = Outbound::Closed,
                Timer::Reply => self.close_inbound(),
                Timer::ServerEnd => {
                    self.report_end();
                    self.timers.set(Timer::Linger, now + LINGER);
                }
                Timer::Linger => self.stop_lingering(now),
            }
            self.finish_if_over();
        }
    }
}

impl NearData {
    fn connect(&mut self) {
        self.leg = Leg::Connecting;
        self.outputs.push(DataOutput::Connect);
    }

    fn on_connected(&mut self, now: Duration) {
        // If the transfer has failed, the time limit for the connection also limits the TLS
        // handshake.
        if self.succeeded != Some(false) {
            self.timers.cancel(Timer::Expiry);
        }
        if self.setup.has_tls {
            self.leg = Leg::Securing;
            self.outputs.push(DataOutput::Secure);
        } else {
            self.open(now);
        }
    }

    /// After the end of the session, ends a data connection that can no longer open. In this case,
    /// the client never received a port, or the gateway never received permission to connect.
    fn on_session_ended(&mut self) {
        let is_hopeless = match self.leg {
            Leg::Waiting => true,
            Leg::Connecting => {
                self.setup.opening == DataOpening::Accept && !self.timers.is_set(Timer::Expiry)
            }
            Leg::Securing | Leg::Open => false,
        };
        if is_hopeless {
            self.break_off("the session has ended".to_owned());
        }
    }

    fn open(&mut self, now: Duration) {
        self.leg = Leg::Open;
        self.timers.cancel(Timer::Expiry);
        self.timers.set(Timer::Stall, self.stall.next(now));
        self.on_announced();
    }

    /// Starts the flow of bytes to the client once a reply has announced the transfer.
    fn on_announced(&mut self) {
        let is_announced = self.is_released || self.succeeded.is_some();
        match self.leg {
            _ if !is_announced => {}
            // The gateway must not connect before the client has received the reply that announces
            // the connection.
            Leg::Waiting => self.connect(),
            Leg::Connecting | Leg::Securing => {}
            Leg::Open if self.inbound == Inbound::Held => {
                if self.is_refused() && self.direction == Some(DataDirection::Download) {
                    return self.break_off("the server has refused the transfer".to_owned());
                }
                self.inbound = Inbound::Relaying;
            }
            Leg::Open => {}
        }
    }

    fn is_refused(&self) -> bool {
        self.succeeded == Some(false) && !self.is_released
    }

    fn on_finished(&mut self, now: Duration, succeeded: bool) {
        self.succeeded = Some(succeeded);
        if self.leg != Leg::Open && !succeeded {
            if !self.may_still_connect() {
                return self.break_off("the transfer has failed".to_owned());
            }
            self.timers.set(Timer::Expiry, now + CONNECTION_GRACE);
        }
        self.on_announced();
        let is_download = self.direction == Some(DataDirection::Download);
        match self.outbound {
            // The download is finished. The gateway does not wait for the client to close its
            // sending direction.
            Outbound::Relaying if is_download => self.timers.set(Timer::Discard, now + LINGER),
            // The server has refused the upload, or the transfer never began.
            Outbound::Relaying if !succeeded => {
                self.outputs.push(DataOutput::Reset(ResetCause::Ended));
                self.is_cut_off = true;
                self.outbound = Outbound::Discarding;
                self.timers.set(Timer::Discard, now + LINGER);
                if self.inbound == Inbound::Relaying {
                    self.inbound = Inbound::ReplyDecides;
                }
            }
            Outbound::Discarding => self.timers.set(Timer::Discard, now + LINGER),
            _ => {}
        }
        if self.inbound == Inbound::ReplyDecides {
            self.close_inbound();
        }
        self.await_server_end(now);
        self.finish_if_over();
    }

    /// Whether the client of a failed download may still connect. If so, the client can read the
    /// bytes that the server sent before the failure. The server's reply can arrive before the
    /// client's connection is open.
    fn may_still_connect(&self) -> bool {
        let is_connecting = matches!(self.leg, Leg::Connecting | Leg::Securing);
        let is_download = self.direction == Some(DataDirection::Download);
        is_connecting && is_download && self.is_released
    }

    fn on_client_ended(&mut self, now: Duration, is_truncated: bool) {
        match self.outbound {
            Outbound::Relaying => {
                self.outputs
                    .push(DataOutput::Event(NearDataEvent::ClientEnded));
                // For a download, an end of file from the client has no meaning.
                let is_download = self.direction == Some(DataDirection::Download);
                if is_truncated && self.setup.reports_truncation && !is_download {
                    self.outbound = Outbound::Telling;
                    self.outputs.push(DataOutput::ReportTruncation);
                } else {
                    self.pass_end_on(now);
                }
            }
            Outbound::Discarding => self.outbound = Outbound::Closed,
            Outbound::Telling | Outbound::Finished | Outbound::Closed => {}
        }
    }

    fn pass_end_on(&mut self, now: Duration) {
        self.outputs.push(DataOutput::Finish);
        self.outbound = Outbound::Finished;
        self.await_server_end(now);
    }

    /// Starts the timer for the end of the server's data connection. After the reply to an upload,
    /// a server may close its data connection at any time.
    fn await_server_end(&mut self, now: Duration) {
        let is_over = self.outbound == Outbound::Finished
            && self.succeeded == Some(true)
            && self.direction == Some(DataDirection::Upload)
            && self.inbound == Inbound::Relaying;
        if is_over {
            // Most clients have closed already, and their FIN is in flight.
            self.timers.start(Timer::ServerEnd, now + SERVER_END);
        }
    }

    /// Handles a server that has stopped accepting bytes. The server's reply contains the reason,
    /// and the client must be able to read that reply.
    fn cut_off(&mut self, now: Duration) {
        if self.outbound != Outbound::Relaying {
            return;
        }
        self.is_cut_off |= self.direction != Some(DataDirection::Download);
        self.outbound = Outbound::Discarding;
        let timeout = match self.succeeded {
            Some(_) => LINGER,
            None => REPLY_TIMEOUT + LINGER,
        };
        self.timers.set(Timer::Discard, now + timeout);
    }

    fn on_stream_broken(&mut self, now: Duration, why: String) {
        if self.direction != Some(DataDirection::Upload) {
            return self.break_off(why);
        }
        self.is_cut_off |= self.outbound != Outbound::Finished;
        match self.succeeded {
            Some(_) => self.close_inbound(),
            None => {
                self.inbound = Inbound::ReplyDecides;
                self.timers.set(Timer::Reply, now + REPLY_TIMEOUT);
            }
        }
    }

    fn on_write_failed(&mut self, why: String) {
        if self.inbound == Inbound::Closed {
            return;
        }
        // A client that has sent its file may disconnect before it receives the server's end of
        // file.
        if self.direction == Some(DataDirection::Upload) {
            self.outputs.push(DataOutput::Stop);
            self.close_inbound();
        } else {
            self.break_off(why);
        }
    }

    fn on_end_written(&mut self) {
        if self.inbound != Inbound::Ending {
            return;
        }
        if self.direction == Some(DataDirection::Upload) {
            self.close_inbound();
        } else {
            self.inbound = Inbound::Acknowledging;
        }
    }

    /// Closes a finished upload if the server keeps its data connection open.
    fn stop_lingering(&mut self, now: Duration) {
        match self.inbound {
            Inbound::Relaying => {
                self.outputs.push(DataOutput::Stop);
                self.outputs.push(DataOutput::EndLeg);
                self.inbound = Inbound::Ending;
                // The session does not wait for this end of file.
                self.timers.set(Timer::Linger, now + LINGER);
            }
            _ => self.close_inbound(),
        }
    }

    fn close_inbound(&mut self) {
        self.inbound = Inbound::Closed;
        self.report_end();
    }

    fn report_end(&mut self) {
        if self.has_told {
            return;
        }
        self.report(if self.is_cut_off {
            NearDataEvent::Failed("the server read only a part of the upload".to_owned())
        } else {
            NearDataEvent::Delivered
        });
    }

    fn report(&mut self, event: NearDataEvent) {
        if !self.has_told {
            self.has_told = true;
            self.outputs.push(DataOutput::Event(event));
        }
    }

    /// Checks whether a client that closed its control connection still sends bytes. The client's
    /// kernel may still hold bytes and an end of file that the client wrote before the close.
    fn check_quiet(&mut self, now: Duration, progress: DataProgress) {
        if matches!(self.outbound, Outbound::Telling | Outbound::Finished) {
            return;
        }
        let has_moved = progress.outbound_bytes != self.quiet_since.outbound_bytes;
        self.quiet_checks = match has_moved || progress.has_unread {
            true => 0,
            false => self.quiet_checks + 1,
        };
        self.quiet_since = progress;
        if self.quiet_checks >= QUIET_CHECKS {
            return self.break_off("the client disconnected".to_owned());
        }
        self.timers.set(Timer::Quiet, now + QUIET_CHECK);
    }

    fn check_stall(&mut self, now: Duration, progress: DataProgress) {
        let is_on_its_way =
            self.outbound == Outbound::Finished && self.direction == Some(DataDirection::Upload);
        let stalled = match is_on_its_way {
            true => self.stall.check_awaited(progress),
            false => self.stall.check(progress),
        };
        match stalled {
            Some(why) => self.break_off(why),
            None => self.timers.set(Timer::Stall, self.stall.next(now)),
        }
    }

    fn break_off(&mut self, why: String) {
        self.give_up(NearDataEvent::Failed(why.clone()), why);
    }

    fn give_up(&mut self, event: NearDataEvent, why: String) {
        self.outputs.push(DataOutput::Reset(ResetCause::Aborted));
        self.outputs.push(DataOutput::ResetLeg);
        self.report(event);
        self.outputs.done(Some(why));
    }

    fn finish_if_over(&mut self) {
        let is_over = matches!(self.outbound, Outbound::Finished | Outbound::Closed)
            && self.inbound == Inbound::Closed;
        if is_over && !self.outputs.is_done {
            let why = match (self.is_cut_off, self.succeeded) {
                (true, _) => Some("the server read only a part of the upload".to_owned()),
                (false, Some(false)) => Some("the server has answered with a failure".to_owned()),
                (false, _) => None,
            };
            self.outputs.done(why);
        }
    }
}

/// Time limit for the client to connect after the reply that contains the port. The value is the
/// default of vsftpd's accept_timeout.
pub const EXPIRY: Duration = Duration::from_secs(60);

/// Time limit for the client to connect after a started download has failed. Opening a connection
/// takes one round trip.
const CONNECTION_GRACE: Duration = Duration::from_secs(1);

/// Time limit for a client to read the final reply. When it expires, the gateway closes the
/// client's data connection.
const LINGER: Duration = Duration::from_secs(5);

/// Time limit that starts with the final reply to an upload. In this time, the end of the server's
/// data connection must arrive on the link.
const SERVER_END: Duration = Duration::from_millis(100);

/// Time limit for a server's reply after the server closed its data connection.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of successive checks that find no new byte. After these checks, the gateway aborts a
/// disconnected client's upload. Ten checks take one second.
const QUIET_CHECKS: u32 = 10;
const QUIET_CHECK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn connects_at_once(direction: DataDirection, dials_early: bool) -> bool {
        let mut data = NearData::new(NearDataSetup {
            opening: DataOpening::Dial,
            dials_early,
            has_tls: false,
            reports_truncation: false,
            stall_timeout: Duration::from_secs(60),
        });
        data.order(Duration::ZERO, NearDataOrder::Start(Some(direction)));
        let connects_at_once = data.poll().is_some();
        data.order(Duration::ZERO, NearDataOrder::Release);
        let connects_later = data.poll().is_some();
        assert_ne!(connects_at_once, connects_later, "once");
        connects_at_once
    }

    /// Creates a download that the server started and that failed before the client connected.
    fn failed_before_the_client_connects(opening: DataOpening, has_tls: bool) -> NearData {
        let mut data = NearData::new(NearDataSetup {
            opening,
            dials_early: false,
            has_tls,
            reports_truncation: false,
            stall_timeout: Duration::from_secs(60),
        });
        data.order(Duration::ZERO, NearDataOrder::Announced);
        data.order(
            Duration::ZERO,
            NearDataOrder::Start(Some(DataDirection::Download)),
        );
        data.order(Duration::ZERO, NearDataOrder::Release);
        data.order(Duration::ZERO, NearDataOrder::Finish { succeeded: false });
        data
    }

    fn outputs(data: &mut NearData) -> Vec<DataOutput<NearDataEvent>> {
        std::iter::from_fn(|| data.poll()).collect()
    }

    #[test]
    fn a_client_that_connects_behind_a_failed_download_reads_what_was_sent() {
        for (opening, has_tls) in [
            (DataOpening::Accept, false),
            (DataOpening::Accept, true),
            (DataOpening::Dial, false),
        ] {
            let mut data = failed_before_the_client_connects(opening, has_tls);
            assert_eq!(outputs(&mut data), [DataOutput::Connect]);
            let now = Duration::from_millis(100);
            data.handle(now, DataInput::Connected);
            if has_tls {
                assert_eq!(outputs(&mut data), [DataOutput::Secure]);
                data.handle(now, DataInput::Secured);
            }
            assert_eq!(data.inbound(), DataFlow::Relay);
            data.handle(now, DataInput::StreamEnded);
            assert_eq!(outputs(&mut data), [DataOutput::EndLeg]);
        }
    }

    #[test]
    fn a_client_that_does_not_connect_behind_a_failed_download_is_not_waited_for_long() {
        let mut data = failed_before_the_client_connects(DataOpening::Accept, false);
        let due = data.deadline().expect("a timer");
        assert!(due <= CONNECTION_GRACE, "{due:?}");
        data.expire(due, DataProgress::default());
        assert!(data.outputs.is_done);
    }

    #[test]
    fn the_data_of_an_upload_is_fetched_before_the_server_agrees() {
        assert!(connects_at_once(DataDirection::Upload, true));
        assert!(!connects_at_once(DataDirection::Download, true));
        assert!(!connects_at_once(DataDirection::Upload, false));
    }
}
