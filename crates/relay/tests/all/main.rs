//! Tests of the relay as a library in other programs.

mod common;
mod pipes;
mod service;
