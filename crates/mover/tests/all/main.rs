//! Tests of copies between disks and servers through the public interface of the library.
//!
//! One test program contains a module for each subject. Therefore shared test code is compiled and
//! linked only once.

mod agent;
mod browse;
mod clean;
mod common;
mod copies;
mod fence;
mod found;
mod hashes;
mod links;
mod names;
mod pieces;
mod round_trips;
mod server_behaviour;
mod sftp;
mod sftp_jobs;
mod sharing;
mod sync;
mod web;
