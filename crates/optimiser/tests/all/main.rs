//! The coding and the chunk store, as a gateway has them.
//!
//! One program with a module for each subject: what the tests share is compiled and linked once.

mod coding;
mod store;
