//! What measurements share, whatever they measure.
//!
//! Numbers go in; statistics, tables, plots and pages come out. The crate also has what most benches and
//! trials need: options, figures with their bounds, work on all processors, bytes to move, scratch folders, and
//! how busy the machine was. What is measured, and how, is left to `probe`, `emulator`, `eval` and the benches.
#![allow(
    clippy::disallowed_methods,
    reason = "reads how busy the machine was, in real time"
)]

pub mod content;
pub mod figure;
#[cfg(feature = "ftp-server")]
pub mod ftp_server;
mod html;
pub mod jobs;
pub mod machine;
pub mod options;
pub mod page;
pub mod plot;
pub mod scratch;
pub mod stats;
pub mod table;
