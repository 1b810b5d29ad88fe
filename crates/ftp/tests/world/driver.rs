//! Driver of one state machine between a TCP connection (the leg) and a link stream. The driver
//! acts like the gateway's pump.

use std::time::Duration;

use ftp::session::data::{DataFlow, DataInput, DataMachine, DataOutput, DataProgress};

use crate::{
    carrier::{Carrier, End, Read},
    channel::{Channel, Rng},
};

/// A state machine, with the state of its leg (TCP connection) and of its stream.
#[derive(Debug)]
pub(crate) struct Driver<M: DataMachine> {
    pub(crate) machine: M,
    /// Ends of the leg and of the stream at which the machine reads and writes.
    leg_end: End,
    stream_end: End,
    pub(crate) orders: Channel<M::Order>,
    /// Whether the machine has requested its TCP connection.
    pub(crate) is_connecting: bool,
    is_securing: bool,
    pub(crate) has_leg: bool,
    is_ending: bool,
    /// Number of bytes read from the stream and not yet written to the leg.
    unwritten_bytes: u64,
    pub(crate) outbound_bytes: u64,
    pub(crate) inbound_bytes: u64,
    pub(crate) events: Vec<M::Event>,
    /// Whether the session has ended and sends no further orders.
    pub(crate) has_no_session: bool,
    pub(crate) is_done: bool,
}

/// A fault that a test injects in order to check that the simulation detects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    None,
    /// In each direction, the driver loses one byte after reading it, but still counts the byte.
    DropsByte,
    /// The driver treats a reset of the stream as an end of file.
    EndForReset,
}

impl<M: DataMachine> Driver<M> {
    pub(crate) fn new(machine: M, leg_end: End, stream_end: End) -> Self {
        Self {
            machine,
            leg_end,
            stream_end,
            orders: Channel::new(1),
            is_connecting: false,
            is_securing: false,
            has_leg: false,
            is_ending: false,
            unwritten_bytes: 0,
            outbound_bytes: 0,
            inbound_bytes: 0,
            events: Vec::new(),
            has_no_session: false,
            is_done: false,
        }
    }

    pub(crate) fn handle(&mut self, now: Duration, input: DataInput) {
        self.machine.handle(now, input);
    }

    /// Performs the actions that are possible now. Returns whether any action was performed.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        mut leg: Option<&mut Carrier>,
        mut stream: Option<&mut Carrier>,
        planted: Planted,
    ) -> bool {
        let mut has_moved = false;
        while !self.is_done {
            let is_busy = self.carry_out(now, rng, leg.as_deref_mut(), stream.as_deref_mut())
                || self.take_order(now)
                || self.expire(now, leg.as_deref())
                || self.pump(now, rng, leg.as_deref_mut(), stream.as_deref_mut(), planted);
            has_moved |= is_busy;
            if !is_busy {
                break;
            }
        }
        has_moved
    }

    fn carry_out(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        leg: Option<&mut Carrier>,
        stream: Option<&mut Carrier>,
    ) -> bool {
        let Some(output) = self.machine.poll() else {
            return false;
        };
        let end = self.stream_end;
        match (output, leg, stream) {
            (DataOutput::Connect, ..) => self.is_connecting = true,
            (DataOutput::Secure, ..) => self.is_securing = true,
            (DataOutput::ReportTruncation, ..) => {
                self.handle(now, DataInput::TruncationReported(Ok(())))
            }
            (DataOutput::Finish, _, Some(stream)) => {
                let _ = stream.finish(now, rng, end);
            }
            (DataOutput::Reset(_), _, Some(stream)) => {
                stream.reset_lane(now, rng, end);
                stream.stop(now, rng, end);
            }
            (DataOutput::Stop, _, Some(stream)) => stream.stop(now, rng, end),
            (DataOutput::EndLeg, ..) => self.is_ending = true,
            (DataOutput::ResetLeg, leg, _) => {
                self.is_connecting = false;
                if let Some(leg) = leg.filter(|_| self.has_leg) {
                    leg.reset(now, rng, self.leg_end);
                }
                self.has_leg = false;
            }
            (DataOutput::Event(event), ..) => self.events.push(event),
            (DataOutput::Done { .. }, leg, stream) => {
                self.is_done = true;
                if let Some(stream) = stream {
                    stream.let_go(now, rng, end);
                }
                if let Some(leg) = leg.filter(|_| self.has_leg) {
                    leg.close(now, rng, self.leg_end);
                }
            }
            (DataOutput::Finish | DataOutput::Reset(_) | DataOutput::Stop, _, None) => {}
        }
        true
    }

    fn take_order(&mut self, now: Duration) -> bool {
        let order = self.orders.pop(now);
        if order.is_none() && self.has_no_session && self.orders.is_empty() {
            self.has_no_session = false;
            self.handle(now, DataInput::SessionEnded);
            return true;
        }
        let has_order = order.is_some();
        if let Some(order) = order {
            self.machine.order(now, order);
        }
        has_order
    }

    fn expire(&mut self, now: Duration, leg: Option<&Carrier>) -> bool {
        let is_due = self.machine.deadline().is_some_and(|at| at <= now);
        if is_due {
            let leg = leg.filter(|_| self.has_leg);
            let progress = DataProgress {
                outbound_bytes: self.outbound_bytes,
                inbound_bytes: self.inbound_bytes,
                has_unread: leg.is_some_and(|leg| leg.has_unread(now, self.leg_end)),
            };
            self.machine.expire(now, progress);
        }
        is_due
    }

    fn pump(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        leg: Option<&mut Carrier>,
        mut stream: Option<&mut Carrier>,
        planted: Planted,
    ) -> bool {
        let stopped = stream.as_deref_mut().filter(|_| self.machine.awaits_leg());
        if stopped.is_some_and(|stream| stream.is_stopped(now, self.stream_end)) {
            self.handle(now, DataInput::StreamStopped);
            return true;
        }
        if std::mem::take(&mut self.is_securing) {
            self.handle(now, DataInput::Secured);
            return true;
        }
        let (Some(leg), Some(stream)) = (leg.filter(|_| self.has_leg), stream) else {
            return false;
        };
        self.pump_outbound(now, rng, leg, stream, planted)
            || self.pump_inbound(now, rng, leg, stream, planted)
    }

    fn pump_outbound(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        leg: &mut Carrier,
        stream: &mut Carrier,
        planted: Planted,
    ) -> bool {
        let flow = self.machine.outbound();
        // Backpressure: bytes are not read if the stream has no room.
        let has_room = flow == DataFlow::Discard
            || stream
                .write(now, rng, self.stream_end, 0)
                .map_or(true, |_| stream.has_room(self.stream_end));
        if flow == DataFlow::Wait || !has_room {
            return false;
        }
        let input = match leg.read(now, self.leg_end) {
            Read::Nothing if flow == DataFlow::Relay && stream.is_stopped(now, self.stream_end) => {
                DataInput::StreamStopped
            }
            Read::Nothing => return false,
            Read::Bytes(_) if flow == DataFlow::Discard => return true,
            Read::Bytes(count) => {
                let lost = u64::from(planted == Planted::DropsByte && rng.chance(5));
                match stream.push(now, rng, self.stream_end, count - lost) {
                    Ok(()) => {
                        self.outbound_bytes += count;
                        return true;
                    }
                    Err(_) => DataInput::StreamStopped,
                }
            }
            Read::End => DataInput::LegEnded {
                is_truncated: false,
            },
            Read::Reset => DataInput::ReadFailed("reset".to_owned()),
        };
        self.handle(now, input);
        true
    }

    fn pump_inbound(
        &mut self,
        now: Duration,
        rng: &mut Rng,
        leg: &mut Carrier,
        stream: &mut Carrier,
        planted: Planted,
    ) -> bool {
        if self.is_ending {
            self.is_ending = false;
            let input = match leg.finish(now, rng, self.leg_end) {
                Ok(()) => DataInput::EndWritten,
                Err(_) => DataInput::WriteFailed("reset".to_owned()),
            };
            self.handle(now, input);
            return true;
        }
        if self.machine.awaits_acknowledgement() {
            let input = if leg.is_reset_for(now, self.leg_end) {
                DataInput::NotAcknowledged("reset".to_owned())
            } else if leg.is_acknowledged(now, self.leg_end) {
                DataInput::Acknowledged
            } else {
                return false;
            };
            self.handle(now, input);
            return true;
        }
        let flow = self.machine.inbound();
        if flow == DataFlow::Relay && self.unwritten_bytes > 0 {
            return match leg.write(now, rng, self.leg_end, self.unwritten_bytes) {
                Ok(0) => false,
                Ok(count) => {
                    self.unwritten_bytes -= count;
                    self.inbound_bytes += count;
                    true
                }
                Err(_) => {
                    self.handle(now, DataInput::WriteFailed("reset".to_owned()));
                    true
                }
            };
        }
        if flow == DataFlow::Wait {
            return false;
        }
        let input = match stream.read(now, self.stream_end) {
            Read::Nothing => return false,
            Read::Bytes(count) => {
                if flow == DataFlow::Relay {
                    let lost = u64::from(planted == Planted::DropsByte && rng.chance(5));
                    self.unwritten_bytes = count - lost;
                    self.inbound_bytes += lost;
                }
                return true;
            }
            Read::End => DataInput::StreamEnded,
            Read::Reset if planted == Planted::EndForReset => DataInput::StreamEnded,
            Read::Reset => DataInput::StreamBroken("reset".to_owned()),
        };
        self.handle(now, input);
        true
    }

    /// Returns the time of the next event that occurs without further input.
    pub(crate) fn next(&self, now: Duration) -> Option<Duration> {
        if self.is_done {
            return None;
        }
        let times = [self.machine.deadline(), self.orders.next_arrival(now)];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }
}
