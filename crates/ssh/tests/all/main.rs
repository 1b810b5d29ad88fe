//! Tests with real clients and servers: OpenSSH at both ends of two gateways in this process.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the clients and servers around two gateways"
)]

mod agent;
mod coding;
mod common;
mod exec;
mod leaving;
mod login;
mod odd_servers;
mod own_server;
mod password;
mod raw_sftp;
mod repeated_login;
mod sftp;
mod slow_servers;
