//! Coding of a stream's bytes between two gateways, before encryption. It reduces the number of
//! bytes on the WAN.
//!
//! An [`encoder::Encoder`] turns the bytes of one direction of a stream into frames. A
//! [`decoder::Decoder`] at the peer restores the bytes from the frames. The last frame contains the
//! count and a hash of all bytes before coding. The peer therefore detects any error of the coding.
//!
//! The crate uses no socket and no clock, except in the thread of a [`store::Store`]. The driver of
//! an encoder measures the times that the encoder needs.
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
