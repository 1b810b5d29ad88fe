//! The flows of a [`Crowd`](super::Crowd): the sender, the begin and end, and the additional delay
//! of each.

use std::{sync::Arc, time::Duration};

use rivals::Law;
use units::{BitRate, ByteCount};

use super::pair::FlowControllerFactory;
use crate::{
    Policy,
    congestion::{self, Controller, PathMemory},
};

/// A flow of a crowd.
#[derive(Debug, Clone)]
pub struct FlowConfig {
    /// The sender.
    pub kind: FlowKind,
    /// Begin of the flow, counted from the start.
    pub begins: Duration,
    /// End of the flow, without a close.
    pub ends: Option<Duration>,
    /// Round-trip time of the flow beyond that of the path.
    pub extra_rtt: Duration,
}

/// The sender of a flow.
#[derive(Clone)]
pub enum FlowKind {
    /// A pair of link cores with one bulk stream.
    Longhaul {
        /// Makes the controller.
        controller: FlowControllerFactory,
        /// Bound of each core's buffers.
        memory_max: ByteCount,
    },
    /// TCP.
    Tcp {
        /// Makes the window law from a seed.
        law: LawFactory,
        /// Receive window, in segments.
        window_max: Option<u64>,
        /// Whether the receiver acknowledges every second segment only.
        is_ack_delayed: bool,
    },
}

/// Makes a window law; the seed is for its random decisions.
pub type LawFactory = Arc<dyn Fn(u64) -> Box<dyn Law> + Send + Sync>;

impl FlowKind {
    /// A pair of link cores under a controller.
    pub fn longhaul(
        controller: impl Fn(Option<PathMemory>, Option<BitRate>) -> Box<dyn Controller>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self::Longhaul {
            controller: Arc::new(controller),
            memory_max: ByteCount::gibibytes(1),
        }
    }

    /// A pair of link cores under the controller of a policy.
    pub fn for_policy(policy: Policy) -> Self {
        Self::longhaul(move |memory, max| congestion::for_policy(policy, memory, max))
    }

    /// TCP under a law.
    pub fn tcp(law: impl Fn(u64) -> Box<dyn Law> + Send + Sync + 'static) -> Self {
        Self::Tcp {
            law: Arc::new(law),
            window_max: None,
            is_ack_delayed: false,
        }
    }

    /// TCP under CUBIC.
    pub fn cubic() -> Self {
        Self::tcp(|_| Box::new(rivals::Cubic::new()))
    }

    /// TCP under Reno.
    pub fn reno() -> Self {
        Self::tcp(|_| Box::new(rivals::Reno::new()))
    }

    /// TCP under BBR.
    pub fn bbr() -> Self {
        Self::tcp(|seed| Box::new(rivals::Bbr::new(seed as usize)))
    }

    /// TCP under CUBIC with a window of `bytes` bytes of data.
    pub fn cubic_with_window(bytes: ByteCount) -> Self {
        let segments = bytes.bytes() / rivals::SEGMENT_PAYLOAD_BYTES as u64;
        Self::Tcp {
            law: Arc::new(|_| Box::new(rivals::Cubic::new())),
            window_max: Some(segments),
            is_ack_delayed: false,
        }
    }

    /// The same flow with delayed acknowledgements of TCP.
    pub fn delaying_acks(mut self) -> Self {
        if let Self::Tcp { is_ack_delayed, .. } = &mut self {
            *is_ack_delayed = true;
        }
        self
    }

    /// A flow of this kind, from the beginning to the end.
    pub fn flow(self) -> FlowConfig {
        FlowConfig {
            kind: self,
            begins: Duration::ZERO,
            ends: None,
            extra_rtt: Duration::ZERO,
        }
    }
}

impl std::fmt::Debug for FlowKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Longhaul { .. } => "Longhaul",
            Self::Tcp { .. } => "Tcp",
        })
    }
}

impl FlowConfig {
    /// The same flow with a later begin.
    pub fn starting_at(self, begins: Duration) -> Self {
        Self { begins, ..self }
    }

    /// The same flow with an end.
    pub fn until(self, ends: Duration) -> Self {
        let ends = Some(ends);
        Self { ends, ..self }
    }

    /// The same flow with a longer round-trip time.
    pub fn farther_by(self, extra_rtt: Duration) -> Self {
        Self { extra_rtt, ..self }
    }
}
