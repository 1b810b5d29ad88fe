//! Control frames that wait to be sent, or that a sent packet had.

use std::collections::VecDeque;

/// Control frames that wait to be sent, in order. Of those that tell a state of the connection only one waits: its
/// content is made when it is sent.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    waiting: VecDeque<Control>,
    /// A bit for each frame of the connection that waits.
    states: u8,
}

impl Controls {
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
    /// A padded packet of this many bytes, headers included.
    MtuProbe(u16),
}
