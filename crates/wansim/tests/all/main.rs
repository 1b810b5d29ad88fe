//! The model of a path: its behaviour, and the calibration of its settings.
//!
//! The tests are one program with a module for each subject, so that common code is compiled and
//! linked once.

mod behaviour;
mod calibration;
mod radio;
