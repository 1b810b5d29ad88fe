//! The tasks that a client gives a peer. Both ends check a task against its bounds.

pub(crate) mod tcp;
pub(crate) mod udp;
