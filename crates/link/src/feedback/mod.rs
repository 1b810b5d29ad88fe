//! Feedback: reports of the receiver about the packets that have arrived.
//!
//! The input is packet numbers and their receive times. The output is reports, which the sender's
//! [`recovery`](crate::recovery) reads. The sender decides which missing packets are lost.
//!
//! A report describes a state, not an event. Each report covers everything that arrived within the
//! last few reports. Any later report therefore replaces a lost report.

mod cadence;
mod front_selector;
mod highest_numbers;
mod neighbour_comparison;
pub(crate) mod received;
mod replay_window;
