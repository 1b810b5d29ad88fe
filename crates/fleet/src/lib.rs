//! Distribution of a job's files among several machines. Workers take the jobs from a queue in NATS
//! JetStream.
//!
//! A new job is a single message ([`message::ListingOrder`]). One worker lists the source of the
//! job. It groups the files into batches and puts one message per batch into the queue
//! ([`message::Batch`]). All workers take messages from the queue.
//!
//! A [`record::JobRecord`] stores the progress of a job. A [`dead_letter::DeadLetter`] stores work
//! that failed at every attempt. Every step may run twice without harm, because a file gets its
//! final name only when it is complete.
//!
//! The modules [`message`], [`record`], [`number_set`] and [`batches`] need no server. [`queue`]
//! stores their data at a NATS server. [`worker`] lists sources and moves files.

pub mod batches;
pub mod dead_letter;
pub mod message;
pub mod number_set;
pub mod queue;
pub mod record;
pub mod worker;
