//! SSH sessions over a link between two gateways.
//!
//! The near gateway is an SSH server for its clients. The far gateway is an SSH client of the real
//! server. The far gateway checks the host key of the server before it sends any credential. The
//! crate implements the service traits of `relay`. A program without SSH therefore contains no SSH
//! library.

mod algorithms;
mod backpressure;
mod far;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host_key;
mod host_key_check;
mod inspection;
mod known_host_keys;
mod known_hosts;
mod near;
mod settings;
mod sftp_tasks;
mod signals;
mod target;
mod wire;

pub use algorithms::client_config;
pub use far::{far_services, far_services_following};
pub use host_key::{HostKey, HostKeyError};
pub use host_key_check::{HostKeyVerdict, add_known_host};
pub use inspection::{
    HostKeyOffer, InspectionError, ServerHostKey, fetch_host_key, offered_methods,
};
pub use known_host_keys::{KnownHostKeys, accept_host_key, is_of_algorithm};
pub use known_hosts::matches_wildcards;
pub use near::{SshNear, is_login};
pub use settings::{ChannelKind, FarSsh, PublicKeyWay, SshListener};
pub use sftp::EarlyReplies;
