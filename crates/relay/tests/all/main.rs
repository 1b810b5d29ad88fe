//! Relays that programs build for themselves.

mod service;
