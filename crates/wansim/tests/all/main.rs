//! Tests of the model of a path: its behaviour, and the calibration of its settings.
//!
//! All modules form one test program, so that common code is compiled and linked once.

mod behaviour;
mod calibration;
mod radio;
