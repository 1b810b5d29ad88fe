//! Feedback: reports of the receiver about the packets that have arrived.
//!
//! In: packet numbers and their receive times. Out: reports, which the sender's [`recovery`](crate::recovery)
//! reads. What a missing packet means is left to the sender.
//!
//! Feedback is a state, not an event: each report covers everything that arrived within the last
//! few reports, so that any later report replaces a lost one.

mod cadence;
mod front;
mod overtaking;
mod progress;
pub(crate) mod received;
mod replay_window;
