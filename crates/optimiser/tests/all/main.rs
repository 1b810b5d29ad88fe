//! Tests of the coding and the chunk store through the functions that a gateway calls.
//!
//! All modules form one test program, so that common code is compiled and linked once. `kills` is a
//! separate program because it starts a child process. Until the child executes its program, the
//! child holds the locks of all stores of its parent.

mod coding;
mod store;
