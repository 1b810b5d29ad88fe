//! The model of a path: what it does, and that it keeps its settings.
//!
//! One program with a module for each subject: what the tests share is compiled and linked once.

mod behaviour;
mod calibration;
mod radio;
