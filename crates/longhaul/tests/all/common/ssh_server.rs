//! An SSH server on a loopback address. It accepts log-ins by one password, and its programs send
//! all received bytes back.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use russh::{
    Channel, ChannelId,
    keys::{Algorithm, HashAlg, PrivateKey, key::safe_rng},
    server::{self, Auth, ChannelOpenHandle, Handler, Msg, Session},
};

use super::side::free;

/// A running server. It ends with the process of the test.
pub(crate) struct SshServer {
    pub(crate) address: SocketAddr,
    key: PrivateKey,
}

struct Echo;

impl Handler for Echo {
    type Error = russh::Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, russh::Error> {
        Ok(Auth::reject())
    }

    async fn auth_password(&mut self, _: &str, password: &str) -> Result<Auth, russh::Error> {
        Ok(match password {
            PASSWORD => Auth::Accept,
            _ => Auth::reject(),
        })
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.data(channel, data.to_vec())
    }
}

impl SshServer {
    /// Starts a server with a new host key.
    pub(crate) fn start() -> Self {
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
        let listener = TcpListener::bind(free()).expect("a free address");
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("a socket");
        let config = Arc::new(server::Config {
            keys: vec![key.clone()],
            auth_rejection_time: Duration::ZERO,
            ..server::Config::default()
        });
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                while let Ok((stream, _)) = listener.accept().await {
                    let config = config.clone();
                    tokio::spawn(async move {
                        let session = server::run_stream(config, stream, Echo).await;
                        // Clients end their connections before a log-in.
                        if let Ok(session) = session {
                            let _ = session.await;
                        }
                    });
                }
            });
        });
        Self { address, key }
    }

    /// Returns the fingerprint of the host key.
    pub(crate) fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Returns the line of the host key in `known_hosts`.
    pub(crate) fn known_hosts_line(&self) -> String {
        let key = self.key.public_key().to_openssh().expect("a text form");
        format!("[{}]:{} {key}\n", self.address.ip(), self.address.port())
    }
}

/// Password with which every user can log in.
pub(crate) const PASSWORD: &str = "right";
