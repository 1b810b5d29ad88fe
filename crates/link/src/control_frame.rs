//! Control frames that wait to be sent, or that a sent packet had.

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
