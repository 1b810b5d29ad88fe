//! Control frames of a connection: their content, and their repetition.
//!
//! Input: control frames that wait to be sent, and reports of loss. Output: control frames in a
//! packet. The queue of waiting control frames is in [`control_frame`](crate::control_frame).

use super::Connection;
use crate::{
    control_frame::{ControlFrame, ECHOES_PER_REPORT},
    recovery::{Item, PacketContents},
    stream::{StreamClass, credit_pool::Announcement, recv::RecvState, send::SendState},
    version::FrameVersion,
    wire::frame::{CONTROL_SIZE_MAX, Frame},
};

impl Connection {
    /// Appends waiting control frames to `out` while they fit before offset `end_max`.
    pub(super) fn put_controls(
        &mut self,
        out: &mut Vec<u8>,
        end_max: usize,
        contents: &mut PacketContents,
    ) {
        while out.len() + CONTROL_SIZE_MAX <= end_max {
            let Some(control) = self.streams.controls.pop() else {
                return;
            };
            let Some(frame) = self.control_frame(control) else {
                continue;
            };
            frame.put(out);
            contents.push(Item::Control(control));
            if control.may_be_awaited() {
                let times = self.received.redundancy() as u8;
                self.streams.controls.echo(control, times);
            }
        }
    }

    /// Appends copies of recent control frames, in case the peer has not received them.
    ///
    /// The first packet with such a frame may have been lost. Detecting that loss would take a
    /// round trip.
    pub(super) fn put_echoes(&mut self, out: &mut Vec<u8>, end_max: usize) {
        for _ in 0..ECHOES_PER_REPORT.min(self.streams.controls.echoes()) {
            if out.len() + CONTROL_SIZE_MAX > end_max {
                return;
            }
            let Some((control, left)) = self.streams.controls.pop_echo() else {
                return;
            };
            let Some(frame) = self.control_frame(control) else {
                continue;
            };
            frame.put(out);
            if left > 1 {
                self.streams.controls.push_echo(control, left - 1);
            }
        }
    }

    /// Creates the control frame `control` with its current content. Returns `None` if the frame is
    /// no longer needed.
    fn control_frame(&mut self, control: ControlFrame) -> Option<Frame<'static>> {
        match control {
            ControlFrame::End(number) => self.streams.get(number).and_then(|stream| {
                let (chunks, bytes, hash) = stream.send.end();
                let finished = matches!(stream.send.state(), SendState::Finished { .. });
                finished.then_some(Frame::End {
                    stream: number,
                    chunks,
                    bytes,
                    hash,
                })
            }),
            ControlFrame::Reset(number) => self.streams.get(number).and_then(|stream| match stream
                .send
                .state()
            {
                SendState::Reset { code } => Some(Frame::Reset {
                    stream: number,
                    code,
                }),
                _ => None,
            }),
            ControlFrame::Stop(number) => self
                .streams
                .get(number)
                .and_then(|stream| stream.stop_code)
                .map(|code| Frame::Stop {
                    stream: number,
                    code,
                }),
            ControlFrame::Credit(number) => self.credit_frame(number),
            ControlFrame::Done(number) => Some(Frame::Done { stream: number }),
            ControlFrame::InitialWindow => {
                let Announcement { from, free } = self.streams.memory.announced();
                Some(Frame::InitialWindow { from, free })
            }
            ControlFrame::StreamLimit => Some(Frame::StreamLimit {
                streams: self.streams.stream_limit(),
            }),
            ControlFrame::PathHint => Some(Frame::PathHint {
                rtt_us: self.path.rtt.base().as_micros() as u64,
            }),
            ControlFrame::RateMax => Some(Frame::RateMax {
                bytes_per_s: self.rate_max.for_peer(),
            }),
            ControlFrame::TellFrom => Some(Frame::TellFrom {
                number: self.sent.resolved(),
            }),
            ControlFrame::Retire => Some(Frame::Retire),
            ControlFrame::MtuProbe(_) => None,
        }
    }

    /// Returns the frame that grants credit on a stream.
    ///
    /// A peer of version 2 sends only the first bytes of an upload until it receives a PACED_CREDIT
    /// frame. Such a peer therefore receives a PACED_CREDIT frame on each bulk stream that it
    /// opens.
    pub(crate) fn credit_frame(&mut self, number: u32) -> Option<Frame<'static>> {
        let is_paced = self.version == FrameVersion::V2 && self.streams.is_by_peer(number);
        let stream = self.streams.get(number)?;
        stream.credit_queued = false;
        let is_paced = is_paced && stream.class == StreamClass::Bulk;
        if is_paced {
            stream.recv.pace();
        }
        let limit = stream.recv.take_credit();
        Some(if is_paced {
            Frame::PacedCredit {
                stream: number,
                limit,
                window: stream.recv.granted_window(),
            }
        } else {
            Frame::Credit {
                stream: number,
                limit,
            }
        })
    }

    /// Queues a lost control frame again with its current content, if it is still needed.
    pub(super) fn on_control_lost(&mut self, control: ControlFrame) {
        let matters = match control {
            ControlFrame::End(number) => self.streams.get(number).is_some_and(|stream| {
                matches!(
                    stream.send.state(),
                    SendState::Finished {
                        end_arrived: false,
                        ..
                    }
                )
            }),
            ControlFrame::Reset(number) => self
                .streams
                .get(number)
                .is_some_and(|stream| !stream.send_done),
            ControlFrame::Stop(number) => self
                .streams
                .get(number)
                .is_some_and(|stream| !stream.recv_done),
            ControlFrame::Credit(number) => self.streams.get(number).is_some_and(|stream| {
                stream.recv.state() == RecvState::Open && stream.stop_code.is_none()
            }),
            ControlFrame::MtuProbe(_) | ControlFrame::TellFrom => false,
            ControlFrame::Done(_)
            | ControlFrame::InitialWindow
            | ControlFrame::StreamLimit
            | ControlFrame::PathHint
            | ControlFrame::RateMax
            | ControlFrame::Retire => true,
        };
        match control {
            ControlFrame::Credit(number) if matters => self.streams.queue_credit(number),
            _ if matters => self.streams.controls.push(control),
            _ => {}
        }
    }
}
