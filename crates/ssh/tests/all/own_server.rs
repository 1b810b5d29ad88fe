//! SSH servers of this process behind two gateways, and clients of this process.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use russh::{
    MethodKind, MethodSet,
    client::{self, Handle},
    keys::{Algorithm, PrivateKey, PublicKeyOrCertificate, key::safe_rng},
    server::{self, Handler},
};
use tokio::net::TcpListener;

use crate::common::{World, WorldSettings};

/// Client that accepts any host key.
pub(crate) struct AnyHostKey;

impl client::Handler for AnyHostKey {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

/// Starts a server whose connections have clones of `handler`. Returns its address and its host
/// key.
async fn start<H>(handler: H) -> (SocketAddr, String)
where
    H: Handler<Error = russh::Error> + Clone + Send + Sync + 'static,
{
    let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
    let public = key.public_key().to_openssh().expect("text");
    let methods = [
        MethodKind::PublicKey,
        MethodKind::Password,
        MethodKind::KeyboardInteractive,
    ];
    let config = Arc::new(server::Config {
        methods: MethodSet::from(&methods[..]),
        auth_rejection_time: Duration::ZERO,
        keys: vec![key],
        ..server::Config::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (config, handler) = (config.clone(), handler.clone());
            tokio::spawn(async move {
                if let Ok(running) = server::run_stream(config, stream, handler).await {
                    let _ = running.await;
                }
            });
        }
    });
    (address, public)
}

/// Starts two gateways in front of a server of this process.
pub(crate) async fn world<H>(handler: H, change: impl FnOnce(&mut WorldSettings)) -> World
where
    H: Handler<Error = russh::Error> + Clone + Send + Sync + 'static,
{
    let (address, key) = start(handler).await;
    World::with(|settings| {
        settings.listener.target = Some(address.to_string().parse().expect("a server"));
        settings.allow = Some(address.to_string());
        let known = format!("[{}]:{} {key}\n", address.ip(), address.port());
        let path = settings.far.known_hosts.as_ref().expect("set");
        std::fs::write(path, known).expect("written");
        change(settings);
    })
    .await
}

/// Connects a client of this process. The client has not logged in.
pub(crate) async fn connect(world: &World) -> Handle<AnyHostKey> {
    let config = Arc::new(client::Config::default());
    let connected = client::connect(config, world.listener, AnyHostKey).await;
    connected.expect("a connection")
}
