//! Tasks that a client sends to a peer. Client and peer both check that a task is within its
//! limits.

pub(crate) mod tcp;
pub(crate) mod udp;
