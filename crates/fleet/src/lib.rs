//! Moves the files of a job by several machines. The jobs wait in NATS JetStream; workers take them from there.
//!
//! A job is first a message of its own ([`message::Order`]). One worker lists its source, and makes messages of a few files
//! each ([`message::Batch`]), which all workers share. [`record::Record`] says how far a job is, and [`dead::Letter`] what
//! nobody could do. Each step may be done twice, and does no harm then: a file has its name only when it is whole.
//!
//! [`message`], [`record`], [`spans`] and [`batches`] know no server. [`queue`] keeps them there, and [`worker`] does the work.

pub mod batches;
pub mod dead;
pub mod message;
pub mod queue;
pub mod record;
pub mod spans;
pub mod worker;
