//! What measurements share, whatever they measure.
//!
//! Numbers go in; statistics, tables, plots for terminals and pages come out. Beside these stand the few
//! things that every trial needs: bytes to move, a scratch folder, how busy the machine was. What is measured
//! and how is the business of `probe`, `emulator`, `eval` and the benches.
#![allow(
    clippy::disallowed_methods,
    reason = "reads how busy the machine was, in real time"
)]

pub mod content;
#[cfg(feature = "ftp-server")]
pub mod ftp_server;
mod html;
pub mod machine;
pub mod page;
pub mod plot;
pub mod scratch;
pub mod stats;
pub mod table;
