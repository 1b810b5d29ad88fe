//! Moves the files of a job by several machines. The jobs wait in NATS JetStream, from which
//! workers take them.
//!
//! A job is one message at first ([`message::ListingOrder`]). One worker lists its source, and
//! writes messages of a few files each ([`message::Batch`]), which all workers share.
//! [`record::JobRecord`] holds the progress of a job, and [`dead_letter::DeadLetter`] work that
//! failed at every attempt. Each step may run twice without harm: a file has its name only when it
//! is complete.
//!
//! [`message`], [`record`], [`number_set`] and [`batches`] use no server. [`queue`] stores them at
//! a server, and [`worker`] does the work.

pub mod batches;
pub mod dead_letter;
pub mod message;
pub mod number_set;
pub mod queue;
pub mod record;
pub mod worker;
