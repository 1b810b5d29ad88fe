//! Quantities that the crates of Longhaul exchange, and their text forms.
//!
//! [`BitRate`] and [`ByteCount`] are types. A duration is a [`std::time::Duration`], and a share is
//! an `f64` from 0 to 1. The crate parses the text forms of all four quantities, so every flag and
//! file accepts the same spellings. [`calc`] has formulas that the program, its plans and the
//! gateway share. [`split_port`] parses hosts with ports.

mod address;
mod bit_rate;
mod byte_count;
pub mod calc;
mod duration;
mod share;
mod text;

pub use address::split_port;
pub use bit_rate::BitRate;
pub use byte_count::{ByteCount, Measured};
pub use duration::{deserialize_duration, parse_duration};
pub use share::parse_share;
pub use text::ParseUnitError;
