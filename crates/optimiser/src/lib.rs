//! Coding of a stream's bytes between two gateways, before encryption: fewer bytes on the WAN than
//! in the files.
//!
//! An [`encoder::Encoder`] turns the bytes of one direction of a stream into frames. A
//! [`decoder::Decoder`] at the peer turns the frames into the bytes. The last frame has the count
//! and a hash of all bytes, taken before coding. A mistake on the way therefore cannot pass as a
//! complete file.
//!
//! The crate uses no socket and no clock, except in the thread of a [`store::Store`]. The driver of
//! an encoder measures the times.
#![deny(clippy::disallowed_methods)]

pub mod check;
pub mod chunk;
pub mod counts;
pub mod decoder;
pub mod encoder;
pub mod frame;
pub mod level;
pub mod list;
pub mod store;
pub mod zstd_block;
