//! The coding and the chunk store, as a gateway uses them.
//!
//! The tests are one program with a module for each subject, so that common code is compiled and
//! linked once. `kills` is separate: until its child executes, the child holds the locks of all
//! stores of its process.

mod coding;
mod store;
