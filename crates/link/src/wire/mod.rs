//! The wire format of the link: variable-length integers, frames, packet headers.
//!
//! All functions here parse bytes from outside. None panics on any input, and none allocates in
//! proportion to a length in the input.

pub(crate) mod frame;
pub(crate) mod packet;
pub(crate) mod report;
pub(crate) mod varint;

pub(crate) use varint::Malformed;
