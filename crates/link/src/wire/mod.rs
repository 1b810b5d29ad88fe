//! The link on the wire: variable-length integers, frames, packet headers.
//!
//! Everything here parses bytes from outside: no function panics on any input, and none allocates
//! in proportion to a length that the input names.

pub(crate) mod frame;
pub(crate) mod packet;
pub(crate) mod report;
pub(crate) mod varint;

pub(crate) use varint::Malformed;
