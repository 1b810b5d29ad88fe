//! Control frames that wait to be sent, or that a sent packet had.

use std::{collections::VecDeque, time::Duration};

/// Control frames that wait to be sent, in order, and those that are told again. Of frames that tell a state of the
/// connection only one waits: its content is made when it is sent.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    waiting: VecDeque<Control>,
    /// A bit for each frame of the connection that waits.
    states: u8,
    /// Frames to repeat beside the next reports, and how often each.
    echoes: VecDeque<(Control, u8)>,
    /// The round-trip time that the peer was last told.
    told_rtt: Option<Duration>,
}

/// Frames with credit or ends of reading that wait to be repeated beside reports, at most.
const ECHOES_MAX: usize = 64;
/// Of these beside one report.
pub(crate) const ECHOES_PER_REPORT: usize = 8;

impl ControlQueue {
    /// Queues a frame, unless it tells what a waiting one will tell.
    pub(crate) fn push(&mut self, control: Control) {
        let state = control.state();
        if self.states & state == 0 {
            self.states |= state;
            self.waiting.push_back(control);
        }
    }

    /// Takes the frame that has waited for longest.
    pub(crate) fn pop(&mut self) -> Option<Control> {
        let control = self.waiting.pop_front()?;
        self.states &= !control.state();
        Some(control)
    }

    /// Number of frames that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues the peer's hint of our round-trip time when that has changed by a tenth: it sets the pace of the peer's
    /// reports.
    pub(crate) fn hint_path(&mut self, rtt: Duration) {
        let told = self.told_rtt.unwrap_or(Duration::MAX);
        if rtt < told.mul_f64(0.9) || rtt > told.mul_f64(1.1) {
            self.push(Control::PathHint);
            self.told_rtt = Some(rtt);
        }
    }

    /// Tells a frame again in so many reports. An earlier one of the same kind and stream makes room for it.
    pub(crate) fn echo(&mut self, control: Control, times: u8) {
        self.echoes.retain(|(echo, _)| *echo != control);
        self.push_echo(control, times);
        if self.echoes.len() > ECHOES_MAX {
            self.echoes.pop_front();
        }
    }

    /// Number of frames that are told again.
    pub(crate) fn echoes(&self) -> usize {
        self.echoes.len()
    }

    /// Takes the frame to tell again next, and how often that is left to do.
    pub(crate) fn pop_echo(&mut self) -> Option<(Control, u8)> {
        self.echoes.pop_front()
    }

    /// Puts a frame behind the others.
    pub(crate) fn push_echo(&mut self, control: Control, times: u8) {
        self.echoes.push_back((control, times));
    }
}

impl Control {
    /// The bit of a frame that tells a state of the connection; zero for others.
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

/// A control frame, with the number of its stream where it has one. The content is made anew each time the
/// frame is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
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
    /// A padded packet of this many bytes, headers included.
    MtuProbe(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_frames_that_tell_a_state_one_waits() {
        let mut queue = ControlQueue::default();
        queue.push(Control::RateMax);
        queue.push(Control::End(3));
        queue.push(Control::RateMax);
        assert_eq!(queue.pop(), Some(Control::RateMax));
        queue.push(Control::RateMax);
        assert_eq!(queue.pop(), Some(Control::End(3)));
        assert_eq!(queue.pop(), Some(Control::RateMax));
        assert!(queue.is_empty());
    }

    #[test]
    fn the_peer_is_told_a_round_trip_time_that_differs_by_a_tenth() {
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
            assert_eq!(queue.pop(), is_told.then_some(Control::PathHint), "{rtt:?}");
        }
    }

    #[test]
    fn a_newer_echo_takes_the_place_of_an_older_one_and_their_number_is_bounded() {
        let mut queue = ControlQueue::default();
        queue.echo(Control::Credit(1), 2);
        queue.echo(Control::Done(2), 3);
        queue.echo(Control::Credit(1), 4);
        assert_eq!(queue.pop_echo(), Some((Control::Done(2), 3)));
        assert_eq!(queue.pop_echo(), Some((Control::Credit(1), 4)));
        for stream in 0..100 {
            queue.echo(Control::Credit(stream), 2);
        }
        assert_eq!(queue.echoes(), ECHOES_MAX);
        assert_eq!(queue.pop_echo(), Some((Control::Credit(36), 2)));
    }
}
