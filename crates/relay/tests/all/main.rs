//! Relays that programs build for themselves.

mod common;
mod pipes;
mod service;
