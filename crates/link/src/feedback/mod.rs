//! Feedback: what the receiver of packets tells their sender.
//!
//! Feedback is a state, not an event: each report covers everything that arrived within the last
//! few reports, so that any later report replaces a lost one.

mod front;
pub(crate) mod received;
pub(crate) mod report;
