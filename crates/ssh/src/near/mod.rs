//! Near gateway: the SSH server for clients.

mod agent;
mod channel;
mod client;
mod client_end;
mod connection;
mod far_half;
mod greeting;
mod handler;
mod login;
mod login_queue;
mod login_state;
mod pending_channel;
mod refusal;
mod server_memory;
mod sftp;
mod transfers;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use net::Connection;
use relay::{
    Relay,
    limits::{PermitPurpose, ReachedLimit},
    service::{NearService, ServiceClient},
};
use russh::{SshId, server};
use tracing::{Span, info_span};

use ::sftp::SharedFiles;
pub use agent::is_login;
#[cfg(feature = "fuzzing")]
pub(crate) use greeting::{greeting, has_client_gcm};
use login_queue::LoginQueue;
use server_memory::ServerMemory;

use crate::{algorithms, host_key::HostKey, settings::SshListener};

/// Service for the SSH clients of one listener.
#[derive(Debug)]
pub struct SshNear {
    listener: Arc<SshListener>,
    host_key: HostKey,
    configs: ClientConfigs,
    memory: Arc<ServerMemory>,
    files: SharedFiles,
    logins: LoginQueue,
}

impl SshNear {
    /// Creates the service for a listener. The gateway presents `host_key` to the clients.
    pub fn new(listener: Arc<SshListener>, host_key: HostKey) -> Self {
        let config = |preferred| {
            Arc::new(server::Config {
                server_id: SshId::Standard(algorithms::IDENTIFICATION.into()),
                keys: vec![host_key.key().clone()],
                preferred,
                window_size: algorithms::WINDOW_BYTES,
                limits: algorithms::rekey_limits(),
                channel_buffer_size: algorithms::CHANNEL_BUFFER,
                event_buffer_size: EVENT_BUFFER,
                // The real server delays its answer to a wrong password, so the library needs no
                // delay of its own.
                auth_rejection_time: Duration::ZERO,
                max_auth_attempts: AUTH_ATTEMPTS_MAX,
                // Sessions have their own timeouts, so the library needs none.
                inactivity_timeout: None,
                ..server::Config::default()
            })
        };
        let configs = ClientConfigs {
            gcm: config(algorithms::preferred_with_gcm()),
            others: config(algorithms::preferred()),
        };
        Self {
            listener,
            host_key,
            configs,
            memory: Arc::default(),
            files: SharedFiles::default(),
            logins: LoginQueue::default(),
        }
    }

    /// Returns the SHA-256 fingerprint of the host key that the gateway presents.
    pub fn fingerprint(&self) -> String {
        self.host_key.fingerprint()
    }
}

impl NearService for SshNear {
    fn span(&self, session: u64, client: SocketAddr) -> Span {
        info_span!("ssh", session, %client)
    }

    fn purpose(&self) -> PermitPurpose {
        PermitPurpose::Session
    }

    fn admits(&self, client: IpAddr) -> bool {
        self.listener.admits(client)
    }

    fn turn_away(&self, connection: Connection, reached: ReachedLimit) {
        let text = reached.to_string();
        tokio::spawn(async move { refusal::turn_away(connection, &text).await });
    }

    fn serve(self: Arc<Self>, client: ServiceClient, relay: Relay) -> BoxFuture<'static, ()> {
        Box::pin(connection::serve(self, client, relay))
    }
}

/// Configurations of the SSH library. They differ in the ciphers that the gateway offers.
#[derive(Debug, Clone)]
struct ClientConfigs {
    /// Configuration for clients with AES-GCM.
    gcm: Arc<server::Config>,
    /// Configuration for all other clients.
    others: Arc<server::Config>,
}

/// Maximum number of messages that wait for the task of one connection.
const EVENT_BUFFER: usize = 32;

/// Maximum number of rejected log-ins on one connection. Offers of unknown keys count, too. Servers
/// have lower limits.
const AUTH_ATTEMPTS_MAX: usize = 20;
