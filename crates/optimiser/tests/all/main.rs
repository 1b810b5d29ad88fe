//! The coding and the chunk store, as a gateway has them.
//!
//! One program with a module for each subject: what the tests share is compiled and linked once.
//! `kills` stays apart: until it executes, a child of it holds the locks of all stores of its process.

mod coding;
mod store;
