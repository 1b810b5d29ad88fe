//! Tests of relays that other programs embed.

mod common;
mod pipes;
mod service;
