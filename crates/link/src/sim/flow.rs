//! Configuration of the flows of a [`Crowd`](super::Crowd): the kind of sender, the start, the end,
//! and additional delay.

use std::{sync::Arc, time::Duration};

use rivals::Law;
use units::{BitRate, ByteCount};

use super::pair::FlowControllerFactory;
use crate::{
    Policy,
    congestion::{self, Controller, PathMemory},
};

/// Configuration of one flow.
#[derive(Debug, Clone)]
pub struct FlowConfig {
    /// Kind of sender: Longhaul or TCP.
    pub kind: FlowKind,
    /// Start time of the flow, measured from the start of the simulation.
    pub begins: Duration,
    /// Time at which the flow stops without closing its connection. `None` if it runs until the
    /// simulation ends.
    pub ends: Option<Duration>,
    /// Round-trip time of the flow in addition to the round-trip time of the path.
    pub extra_rtt: Duration,
}

/// Kind of sender of a flow.
#[derive(Clone)]
pub enum FlowKind {
    /// Pair of Longhaul endpoints with one bulk stream.
    Longhaul {
        /// Function that creates the congestion controller.
        controller: FlowControllerFactory,
        /// Maximum size of each endpoint's buffers.
        memory_max: ByteCount,
    },
    /// Model of a TCP sender and receiver.
    Tcp {
        /// Function that creates TCP's congestion control from a seed.
        law: LawFactory,
        /// Receive window in segments. `None` means no limit.
        window_max: Option<u64>,
        /// Whether the receiver delays acknowledgements and acknowledges only every second segment.
        is_ack_delayed: bool,
    },
}

/// Function that creates TCP's congestion control. The seed is for random decisions.
pub type LawFactory = Arc<dyn Fn(u64) -> Box<dyn Law> + Send + Sync>;

impl FlowKind {
    /// Returns a Longhaul sender with a congestion controller from `controller`.
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

    /// Returns a Longhaul sender with the congestion controller of a policy.
    pub fn for_policy(policy: Policy) -> Self {
        Self::longhaul(move |memory, max| congestion::for_policy(policy, memory, max))
    }

    /// Returns a TCP sender with congestion control from `law`.
    pub fn tcp(law: impl Fn(u64) -> Box<dyn Law> + Send + Sync + 'static) -> Self {
        Self::Tcp {
            law: Arc::new(law),
            window_max: None,
            is_ack_delayed: false,
        }
    }

    /// Returns a TCP sender with CUBIC.
    pub fn cubic() -> Self {
        Self::tcp(|_| Box::new(rivals::Cubic::new()))
    }

    /// Returns a TCP sender with Reno.
    pub fn reno() -> Self {
        Self::tcp(|_| Box::new(rivals::Reno::new()))
    }

    /// Returns a TCP sender with BBR.
    pub fn bbr() -> Self {
        Self::tcp(|seed| Box::new(rivals::Bbr::new(seed as usize)))
    }

    /// Returns a TCP sender with CUBIC and a receive window of `bytes` bytes.
    pub fn cubic_with_window(bytes: ByteCount) -> Self {
        let segments = bytes.bytes() / rivals::SEGMENT_PAYLOAD_BYTES as u64;
        Self::Tcp {
            law: Arc::new(|_| Box::new(rivals::Cubic::new())),
            window_max: Some(segments),
            is_ack_delayed: false,
        }
    }

    /// Returns the same sender. If it is a TCP sender, its receiver then delays acknowledgements.
    pub fn delaying_acks(mut self) -> Self {
        if let Self::Tcp { is_ack_delayed, .. } = &mut self {
            *is_ack_delayed = true;
        }
        self
    }

    /// Returns a flow with this sender that runs for the whole simulation.
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
    /// Returns the same flow with the start time `begins`.
    pub fn starting_at(self, begins: Duration) -> Self {
        Self { begins, ..self }
    }

    /// Returns the same flow with the end time `ends`.
    pub fn until(self, ends: Duration) -> Self {
        let ends = Some(ends);
        Self { ends, ..self }
    }

    /// Returns the same flow with `extra_rtt` of additional round-trip time.
    pub fn farther_by(self, extra_rtt: Duration) -> Self {
        Self { extra_rtt, ..self }
    }
}
