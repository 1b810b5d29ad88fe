//! Wire format of the link: variable-length integers, frames, packet headers.
//!
//! All functions in this module parse untrusted bytes. No input causes a panic, or a memory
//! allocation in proportion to a length field.

pub(crate) mod frame;
pub(crate) mod packet;
pub(crate) mod report;
pub(crate) mod varint;

pub(crate) use varint::Malformed;
