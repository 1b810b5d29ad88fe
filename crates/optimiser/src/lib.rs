//! Fewer bytes on the WAN than in the files: what two gateways do with the bytes of a stream before they are encrypted.
//!
//! An [`encoder::Encoder`] turns the bytes of one direction of a stream into frames, a [`decoder::Decoder`] on the other side turns
//! the frames into the bytes. The last frame has the count and a hash of all bytes, taken before anything was done to
//! them: no mistake on the way can pass as a whole file.
//!
//! No socket and no clock, but for the thread of a [`store::Store`]. Whoever drives an encoder tells it how long things took.
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
