//! Copies between disks and servers, as callers of the library have them.
//!
//! One program with a module for each subject: what the tests share is compiled and linked once.

mod agent;
mod browse;
mod clean;
mod common;
mod copies;
mod fence;
mod found;
mod hashes;
mod links;
mod manners;
mod names;
mod pieces;
mod round_trips;
mod sharing;
mod sync;
mod web;
