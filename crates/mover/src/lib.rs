//! Mover: copies files between this machine and FTP servers, directly or through gateways.
//!
//! A file appears complete under its name, or not at all. An interrupted run resumes.
//!
//! [`plan`] decides the next step, without sockets, disks or clocks. [`server`] speaks FTP, `disk`
//! accesses the files of this machine, and [`run`] drives both by the plan.

pub mod agent;
pub mod command;
pub mod credentials;
mod disk;
pub mod embedded_gateway;
pub mod fence;
pub mod filter;
pub mod job;
pub mod journal;
pub mod limit;
pub mod location;
pub mod names;
mod part_name;
pub mod plan;
pub mod retry_action;
pub mod run;
pub mod server;
pub mod spool_sharing;
pub mod web;
