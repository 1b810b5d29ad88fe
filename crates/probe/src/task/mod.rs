//! What a client asks of the peer: the settings of a test, checked against bounds by both ends.

pub(crate) mod tcp;
pub(crate) mod udp;
