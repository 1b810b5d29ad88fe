//! Tools that all measurements share.
//!
//! The crate turns numbers into statistics, tables, plots and pages. It also has tools for benches
//! and trials: options, figures with limits, jobs on all processors, content, scratch folders, and
//! machine load. The measurements themselves belong to `probe`, `emulator`, `eval` and the benches.
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
