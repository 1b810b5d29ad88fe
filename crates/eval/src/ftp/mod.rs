//! The FTP client of trials.

pub(crate) mod client;
mod direction;

pub use direction::TrialDirection;
