//! Quantities that travel between the crates of Longhaul, and their text forms.
//!
//! [`BitRate`] and [`ByteCount`] are types of their own. Durations are [`std::time::Duration`] and shares are
//! fractions in an `f64`; this crate reads their text forms, so that every flag and every file takes the same
//! spellings. [`calc`] has formulas over them that the program, its plans and the gateway share, and [`split_port`] reads hosts with ports. Nothing else belongs here.
#![warn(missing_docs)]

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
