//! Moves files between this machine and FTP servers, directly or through gateways: whole under their names, or not at
//! all, and on from where an earlier run was interrupted.
//!
//! [`plan`] decides what is done next, without sockets, disks or clocks. [`server`] speaks FTP, `disk` is this machine's,
//! and [`run`] drives both as the plan says.

pub mod agent;
pub mod command;
pub mod credentials;
mod disk;
pub mod fence;
pub mod filter;
pub mod job;
pub mod journal;
pub mod limit;
pub mod location;
pub mod names;
pub mod near;
mod part_name;
pub mod plan;
pub mod remedy;
pub mod run;
pub mod server;
pub mod sharing;
pub mod web;
