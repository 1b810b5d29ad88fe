//! Mover: copies files between this machine and FTP servers, directly or through gateways.
//!
//! A file at the destination receives its final name only when it is complete. A new run resumes an
//! interrupted run.
//!
//! [`plan`] decides the next step without sockets, disks or clocks. [`server`] implements the FTP
//! client, and `disk` accesses local files. [`run`] uses these modules to carry out the steps of
//! the plan.

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
pub mod sftp;
pub mod spool_sharing;
pub mod web;
