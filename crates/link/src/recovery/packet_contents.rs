//! Contents of a sent packet.

use crate::{control_frame::ControlFrame, stream::ChunkRef, wire::frame::Half};

/// Part of a packet that must reach the peer. If the packet is lost, the connection sends the item
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    Chunk(ChunkRef),
    Half(ChunkRef, Half),
    Control(ControlFrame),
}

/// Items of a sent packet.
#[derive(Debug, Default)]
pub(crate) struct PacketContents {
    pub(crate) first: Option<Item>,
    /// Items after the first item. Only packets with several small frames have them.
    more: Vec<Item>,
}

impl PacketContents {
    pub(crate) fn push(&mut self, item: Item) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.more.push(item),
        }
    }

    /// Returns the number of items that need additional memory.
    pub(super) fn extra(&self) -> usize {
        self.more.len()
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(Item)) {
        self.first.into_iter().for_each(&mut visit);
        self.more.iter().copied().for_each(visit);
    }
}
