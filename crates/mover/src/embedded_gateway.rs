//! Near gateway that is embedded in the mover. The gateway has a link to far gateways. Each far
//! gateway has two listeners, one for FTP and one for SSH. Only this process can connect to the
//! listeners.
#![allow(
    clippy::disallowed_methods,
    reason = "owns the link's socket and clock, and locks the key file for as long as the link is used"
)]

use std::{
    collections::HashSet,
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use link::{Identity, IdentityError, Link, LinkError, PeerConfig, PublicKey};
use net::{
    pipe::{PipeListener, PipeNetwork},
    target::HostPort,
    tls::{CertificateCheck, ServerTls, TlsStart},
};
use relay::{
    Relay, Sessions, far,
    near::{self, FtpService},
    service::NearService,
    settings::{FtpListener, RelaySettings},
};
use ssh::{HostKey, SshListener, SshNear};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::{location::Scheme, server::GatewayListener};

/// Configuration of a far gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarGateway {
    /// The far gateway's public key, as `longhaul pubkey` prints it.
    pub public_key: String,
    /// `HOST:PORT` to which the link connects.
    pub endpoint: String,
}

/// A near gateway within this process.
#[derive(Debug)]
pub struct EmbeddedGateway {
    network: PipeNetwork,
    /// Addresses of the listeners in the in-memory network, in the order of the peers.
    listeners: Vec<ListenerAddresses>,
    manner: (Scheme, CertificateCheck),
    relay: Relay,
    sessions: Sessions,
    serving: JoinSet<()>,
    /// Locked key file. The lock prevents a second link with this key, because such a link would
    /// replace the first link at the far gateway.
    _key: File,
}

/// Addresses of the listeners that lead to one far gateway.
#[derive(Debug)]
struct ListenerAddresses {
    ftp: SocketAddr,
    ssh: SocketAddr,
}

/// Listeners of a gateway, one for each protocol of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayListeners {
    /// Listener for FTP servers.
    pub ftp: GatewayListener,
    /// Listener for SSH servers.
    pub ssh: GatewayListener,
}

/// An error that prevents the near gateway from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedGatewayError {
    /// A text does not describe a peer.
    #[error("{0:?} is no peer: expected KEY@HOST:PORT")]
    Peer(String),
    /// The key file does not exist.
    #[error(
        "there is no key {0}: make one by longhaul keygen, and give its public key to the far gateway"
    )]
    NoKey(PathBuf),
    /// The key cannot be read.
    #[error("the key {path} cannot be used")]
    Key {
        /// Path of the key file.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: io::Error,
    },
    /// Another process is using this key for a link.
    #[error(
        "another process uses the key {0}: give each mover that runs at the same time a key of its own"
    )]
    KeyInUse(PathBuf),
    /// The key file contains no valid key, or other users can read the file.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A text is not a public key.
    #[error("{0:?} is no public key: expected the 44 characters that \"longhaul pubkey\" prints")]
    PublicKey(String),
    /// A text is not an endpoint.
    #[error(
        "{0:?} is no endpoint: expected an address or name with a port, such as \"203.0.113.9:4810\""
    )]
    Endpoint(String),
    /// The given public key belongs to this mover itself.
    #[error("{0} is the public key of this mover: expected that of the far gateway")]
    OwnKey(PublicKey),
    /// Two peers have the same public key.
    #[error("another far gateway has the public key {0}")]
    SameKey(PublicKey),
    /// The link did not start.
    #[error("the link did not start")]
    Link(#[from] LinkError),
    /// A socket or an address cannot be used.
    #[error("a socket cannot be opened")]
    Socket(#[from] io::Error),
}

impl FarGateway {
    /// Parses a text of the form `KEY@HOST:PORT`.
    ///
    /// # Errors
    /// [`EmbeddedGatewayError::Peer`] if the text has another form. The key is checked later, when
    /// the gateway starts.
    pub fn parse(text: &str) -> Result<Self, EmbeddedGatewayError> {
        let wrong = || EmbeddedGatewayError::Peer(text.to_owned());
        let (public_key, endpoint) = text.split_once('@').ok_or_else(wrong)?;
        let (host, port) = endpoint.rsplit_once(':').ok_or_else(wrong)?;
        if public_key.is_empty() || host.is_empty() || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Self {
            public_key: public_key.to_owned(),
            endpoint: endpoint.to_owned(),
        })
    }
}

impl EmbeddedGateway {
    /// Starts a near gateway with these peers. `scheme` selects the use of TLS between far gateways
    /// and servers. `verify` selects how far gateways verify the servers' certificates.
    ///
    /// # Errors
    /// [`EmbeddedGatewayError`] if the key or a peer cannot be used, or if the link does not start.
    pub fn start(
        peers: &[FarGateway],
        key_file: &Path,
        scheme: Scheme,
        verify: &CertificateCheck,
    ) -> Result<Self, EmbeddedGatewayError> {
        let key = lock(key_file)?;
        let identity = Identity::read(key_file)?;
        let of_link = of_link(peers, identity.public_key())?;
        let mut settings = RelaySettings::new(identity, of_link);
        settings.link.memory_file = Some(key_file.with_added_extension("replay"));
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let link = Link::start(socket, settings.link.clone())?;
        let (relay, sessions) = Relay::builder(link, settings)
            .first_session(first_session())
            .build();
        let mut serving = JoinSet::new();
        let (_, current) = watch::channel(relay.clone());
        serving.spawn(far::serve(current, None, []));
        let network = PipeNetwork::new();
        let server_tls = server_tls(scheme, verify);
        let host_key = HostKey::generate()?;
        let mut serve = |listener: PipeListener, service: Arc<dyn NearService>| {
            serving.spawn(near::serve(listener.into(), service, relay.clone()));
        };
        let mut listeners = Vec::new();
        for peer in 0..peers.len() {
            let (for_ftp, for_ssh) = (network.listen()?, network.listen()?);
            let (ftp, ssh) = (for_ftp.local_addr(), for_ssh.local_addr());
            let settings = FtpListener::within_process(ftp, peer, server_tls.clone());
            serve(for_ftp, Arc::new(FtpService::new(settings, ftp, None)));
            let settings = Arc::new(SshListener::within_process(ssh, peer));
            serve(for_ssh, Arc::new(SshNear::new(settings, host_key.clone())));
            listeners.push(ListenerAddresses { ftp, ssh });
        }
        Ok(Self {
            network,
            listeners,
            manner: (scheme, verify.clone()),
            relay,
            sessions,
            serving,
            _key: key,
        })
    }

    /// Returns the listeners through which sessions reach the far gateway with the number `peer`.
    ///
    /// # Panics
    /// If the number is not below the number of peers.
    pub fn listeners(&self, peer: usize) -> GatewayListeners {
        let addresses = &self.listeners[peer];
        let listener = |address: SocketAddr| GatewayListener {
            host: address.ip().to_string(),
            port: address.port(),
            has_tls: true,
            is_ours: true,
            network: Some(self.network.clone()),
        };
        GatewayListeners {
            ftp: listener(addresses.ftp),
            ssh: listener(addresses.ssh),
        }
    }

    /// Returns the URL scheme and the certificate check that far gateways apply to servers.
    pub fn tls_settings(&self) -> &(Scheme, CertificateCheck) {
        &self.manner
    }

    /// Closes the link and notifies the far gateways. Sessions have already sent `QUIT`, and the
    /// function does not wait for the replies.
    pub async fn end(mut self) {
        self.sessions.close();
        if timeout(DRAIN_MAX, self.sessions.wait_for_end())
            .await
            .is_err()
        {
            self.sessions.abort(CUT_TIMEOUT).await;
        }
        let _ = timeout(CUT_TIMEOUT, self.relay.link().shutdown(DRAIN_MAX)).await;
        self.serving.shutdown().await;
    }
}

fn lock(path: &Path) -> Result<File, EmbeddedGatewayError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(EmbeddedGatewayError::NoKey(path.to_owned()));
        }
        Err(source) => {
            return Err(EmbeddedGatewayError::Key {
                path: path.to_owned(),
                source,
            });
        }
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(EmbeddedGatewayError::KeyInUse(path.to_owned()))
        }
        Err(std::fs::TryLockError::Error(source)) => Err(EmbeddedGatewayError::Key {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Converts the list of peers to the link's configuration.
fn of_link(peers: &[FarGateway], own: PublicKey) -> Result<Vec<PeerConfig>, EmbeddedGatewayError> {
    let mut keys = HashSet::new();
    let peers = peers.iter().enumerate().map(|(number, peer)| {
        let key: PublicKey = peer
            .public_key
            .parse()
            .map_err(|_| EmbeddedGatewayError::PublicKey(peer.public_key.clone()))?;
        if key == own {
            return Err(EmbeddedGatewayError::OwnKey(key));
        }
        if !keys.insert(key) {
            return Err(EmbeddedGatewayError::SameKey(key));
        }
        if HostPort::with_port(&peer.endpoint).is_none() {
            return Err(EmbeddedGatewayError::Endpoint(peer.endpoint.clone()));
        }
        Ok(PeerConfig {
            name: format!("far{number}"),
            public_keys: vec![key],
            endpoint: Some(peer.endpoint.clone()),
            rate_max: None,
            is_guest: false,
        })
    });
    peers.collect()
}

/// Returns the TLS options for connections from far gateways to servers.
fn server_tls(scheme: Scheme, verify: &CertificateCheck) -> Option<ServerTls> {
    let mode = match scheme {
        Scheme::Ftp | Scheme::Https | Scheme::Sftp => return None,
        Scheme::Explicit => TlsStart::Explicit,
        Scheme::Implicit => TlsStart::Implicit,
    };
    Some(ServerTls {
        mode,
        verify: verify.clone(),
    })
}

/// Returns the first session number. The number is derived from the clock, so that a session never
/// has the number of an earlier process's session.
fn first_session() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_millis() as u64 * 1_000
}

/// Time limit for sessions to end, and afterwards for the link to end.
const DRAIN_MAX: Duration = Duration::from_millis(20);

/// Time limit for informing the far gateways of aborted sessions.
const CUT_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use net::tls::Fingerprint;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[test]
    fn a_peer_is_a_key_and_an_endpoint() {
        let peer = FarGateway::parse("a+b/c=@far.example:4810").expect("a peer");
        assert_eq!(peer.public_key, "a+b/c=");
        assert_eq!(peer.endpoint, "far.example:4810");
        for wrong in [
            "far.example:4810",
            "@far:1",
            "key@far",
            "key@far:x",
            "key@:1",
        ] {
            assert!(FarGateway::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_link_at_a_time_has_a_key() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("key");
        assert!(matches!(lock(&path), Err(EmbeddedGatewayError::NoKey(_))));
        Identity::generate().write_new(&path).expect("room");
        let first = lock(&path).expect("free");
        assert!(matches!(
            lock(&path),
            Err(EmbeddedGatewayError::KeyInUse(_))
        ));
        drop(first);
        lock(&path).expect("free again");
    }

    fn peer(public_key: &str, endpoint: &str) -> FarGateway {
        FarGateway {
            public_key: public_key.to_owned(),
            endpoint: endpoint.to_owned(),
        }
    }

    #[test]
    fn peers_have_keys_of_their_own_and_endpoints() {
        let [own, far] = [(); 2].map(|()| Identity::generate().public_key());
        let (mine, theirs) = (own.to_string(), far.to_string());
        let refused = |peers: &[FarGateway]| of_link(peers, own).expect_err("refused");
        let at = "far.example:4810";
        let short = refused(&[peer("short", at)]);
        assert!(
            matches!(short, EmbeddedGatewayError::PublicKey(_)),
            "{short}"
        );
        let ours = refused(&[peer(&mine, at)]);
        assert!(matches!(ours, EmbeddedGatewayError::OwnKey(_)), "{ours}");
        let same = refused(&[peer(&theirs, at), peer(&theirs, "other.example:4810")]);
        assert!(matches!(same, EmbeddedGatewayError::SameKey(_)), "{same}");
        let nowhere = refused(&[peer(&theirs, "far.example")]);
        assert!(
            matches!(nowhere, EmbeddedGatewayError::Endpoint(_)),
            "{nowhere}"
        );
        let of_link = of_link(&[peer(&theirs, at)], own).expect("a peer");
        assert_eq!(of_link[0].endpoint.as_deref(), Some(at));
        assert_eq!(of_link[0].public_keys, [far]);
    }

    #[test]
    fn far_gateways_verify_servers_as_we_would() {
        let verifies = [
            CertificateCheck::Roots(None),
            CertificateCheck::Pin(Fingerprint([7; 32])),
            CertificateCheck::Off,
        ];
        for verify in verifies {
            assert_eq!(server_tls(Scheme::Ftp, &verify), None);
            for (scheme, mode) in [
                (Scheme::Explicit, TlsStart::Explicit),
                (Scheme::Implicit, TlsStart::Implicit),
            ] {
                let tls = server_tls(scheme, &verify).expect("TLS");
                assert_eq!((tls.mode, tls.verify), (mode, verify.clone()));
            }
        }
    }

    #[tokio::test]
    async fn the_listeners_within_the_process_greet_and_end_with_the_gateway() {
        let folder = tempfile::tempdir().expect("room");
        let key = folder.path().join("key");
        Identity::generate().write_new(&key).expect("room");
        let far = Identity::generate().public_key().to_string();
        let peers = [peer(&far, "127.0.0.1:1")];
        let near = EmbeddedGateway::start(&peers, &key, Scheme::Ftp, &CertificateCheck::Off)
            .expect("a link");
        let GatewayListeners { ftp, ssh } = near.listeners(0);
        let network = ftp.network.clone().expect("its own network");
        let connect = |listener: &GatewayListener| {
            let at = format!("{}:{}", listener.host, listener.port);
            network.connect(at.parse().expect("an address"))
        };
        for (listener, greeting) in [(&ftp, b"220 "), (&ssh, b"SSH-")] {
            let mut leg = net::tls::Leg::plain(connect(listener).expect("it listens"));
            let mut begin = [0; 4];
            let read = timeout(Duration::from_secs(60), leg.read_exact(&mut begin)).await;
            read.expect("in time").expect("a greeting");
            assert_eq!(&begin, greeting);
        }
        near.end().await;
        for listener in [&ftp, &ssh] {
            connect(listener).expect_err("nobody listens");
        }
    }
}
