//! Control frames that wait to be sent, and control frames that a packet carried.

use std::{collections::VecDeque, time::Duration};

/// Queue of control frames to send, and list of control frames to repeat.
///
/// A frame that states a property of the whole connection is queued at most once. Its content is
/// computed when the frame is sent.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    waiting: VecDeque<ControlFrame>,
    /// Bit mask of the queued frames that state a property of the whole connection.
    states: u8,
    /// Frames to repeat with the next reports, each with its remaining number of repetitions.
    echoes: VecDeque<(ControlFrame, u8)>,
    /// Round-trip time that was last sent to the peer.
    told_rtt: Option<Duration>,
}

/// Maximum number of frames that wait to be repeated with reports.
const ECHOES_MAX: usize = 64;
/// Maximum number of control frames that are repeated with one report.
pub(crate) const ECHOES_PER_REPORT: usize = 8;

impl ControlQueue {
    /// Queues a frame. A frame that states a property of the whole connection is not queued twice.
    pub(crate) fn push(&mut self, control: ControlFrame) {
        let state = control.state();
        if self.states & state == 0 {
            self.states |= state;
            self.waiting.push_back(control);
        }
    }

    /// Removes and returns the first frame of the queue.
    pub(crate) fn pop(&mut self) -> Option<ControlFrame> {
        let control = self.waiting.pop_front()?;
        self.states &= !control.state();
        Some(control)
    }

    /// Returns the number of queued frames.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues a frame with this side's round-trip time `rtt`, if `rtt` differs from the last sent
    /// value by more than a tenth. The peer computes its report interval from the value.
    pub(crate) fn hint_path(&mut self, rtt: Duration) {
        let told = self.told_rtt.unwrap_or(Duration::MAX);
        if rtt < told.mul_f64(0.9) || rtt > told.mul_f64(1.1) {
            self.push(ControlFrame::PathHint);
            self.told_rtt = Some(rtt);
        }
    }

    /// Repeats a frame with the next `times` reports. An earlier frame of the same kind and stream
    /// is no longer repeated. If the list is full, the oldest frame that concerns one stream is no
    /// longer repeated.
    pub(crate) fn echo(&mut self, control: ControlFrame, times: u8) {
        self.echoes.retain(|(echo, _)| *echo != control);
        self.push_echo(control, times);
        if self.echoes.len() > ECHOES_MAX {
            let oldest = self.echoes.iter().position(|(echo, _)| echo.state() == 0);
            self.echoes.remove(oldest.unwrap_or(0));
        }
    }

    /// Returns the number of frames that wait to be repeated.
    pub(crate) fn echoes(&self) -> usize {
        self.echoes.len()
    }

    /// Removes and returns the next frame to repeat, and its remaining number of repetitions.
    pub(crate) fn pop_echo(&mut self) -> Option<(ControlFrame, u8)> {
        self.echoes.pop_front()
    }

    /// Appends a frame to the list of frames to repeat.
    pub(crate) fn push_echo(&mut self, control: ControlFrame, times: u8) {
        self.echoes.push_back((control, times));
    }
}

impl ControlFrame {
    /// Whether an application of the peer may wait for this frame. Such a frame is repeated with
    /// the next reports. It grants credit, permits more streams, or confirms the end of a stream.
    pub(crate) fn may_be_awaited(self) -> bool {
        matches!(
            self,
            Self::Credit(_) | Self::Done(_) | Self::InitialWindow | Self::StreamLimit
        )
    }

    /// Returns the bit for a frame that states a property of the whole connection. Returns zero for
    /// any other frame.
    fn state(self) -> u8 {
        match self {
            Self::InitialWindow => 1,
            Self::StreamLimit => 2,
            Self::PathHint => 4,
            Self::RateMax => 8,
            Self::TellFrom => 16,
            Self::Retire => 32,
            Self::End(_)
            | Self::Reset(_)
            | Self::Stop(_)
            | Self::Credit(_)
            | Self::Done(_)
            | Self::MtuProbe(_) => 0,
        }
    }
}

/// Kind of a control frame, with its stream number if the frame concerns a stream. The other fields
/// are computed each time the frame is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlFrame {
    End(u32),
    Reset(u32),
    Stop(u32),
    Credit(u32),
    Done(u32),
    InitialWindow,
    StreamLimit,
    PathHint,
    RateMax,
    TellFrom,
    Retire,
    /// Padded packet that tests the path MTU. The value is its size in bytes, headers included.
    MtuProbe(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_frames_that_tell_a_state_one_waits() {
        let mut queue = ControlQueue::default();
        queue.push(ControlFrame::RateMax);
        queue.push(ControlFrame::End(3));
        queue.push(ControlFrame::RateMax);
        assert_eq!(queue.pop(), Some(ControlFrame::RateMax));
        queue.push(ControlFrame::RateMax);
        assert_eq!(queue.pop(), Some(ControlFrame::End(3)));
        assert_eq!(queue.pop(), Some(ControlFrame::RateMax));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_round_trip_time_that_differs_by_a_tenth_is_sent_to_the_peer() {
        let mut queue = ControlQueue::default();
        let ms = Duration::from_millis;
        for (rtt, is_told) in [
            (ms(100), true),
            (ms(105), false),
            (ms(95), false),
            (ms(111), true),
            (ms(105), false),
            (ms(90), true),
        ] {
            queue.hint_path(rtt);
            assert_eq!(
                queue.pop(),
                is_told.then_some(ControlFrame::PathHint),
                "{rtt:?}"
            );
        }
    }

    #[test]
    fn a_newer_echo_takes_the_place_of_an_older_one_and_their_number_is_bounded() {
        let mut queue = ControlQueue::default();
        queue.echo(ControlFrame::Credit(1), 2);
        queue.echo(ControlFrame::Done(2), 3);
        queue.echo(ControlFrame::Credit(1), 4);
        assert_eq!(queue.pop_echo(), Some((ControlFrame::Done(2), 3)));
        assert_eq!(queue.pop_echo(), Some((ControlFrame::Credit(1), 4)));
        for stream in 0..100 {
            queue.echo(ControlFrame::Credit(stream), 2);
        }
        assert_eq!(queue.echoes(), ECHOES_MAX);
        assert_eq!(queue.pop_echo(), Some((ControlFrame::Credit(36), 2)));
    }

    #[test]
    fn echoes_of_streams_do_not_replace_the_echo_of_a_connection() {
        let mut queue = ControlQueue::default();
        queue.echo(ControlFrame::InitialWindow, 2);
        for stream in 0..100 {
            queue.echo(ControlFrame::Done(stream), 2);
        }
        assert_eq!(queue.echoes(), ECHOES_MAX);
        assert_eq!(queue.pop_echo(), Some((ControlFrame::InitialWindow, 2)));
    }
}
