//! The mover as its own near gateway: a link to far gateways, and a front door on loopback for each of them.
#![allow(
    clippy::disallowed_methods,
    reason = "locks the key file for as long as the link is used"
)]

use std::{
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use gatewayd::{
    config::{Config, ConfigError},
    daemon::{self, BindError, Bound, Reloads, RunError, Watch},
};
use net::tls::Verify;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{location::Scheme, server::Door};

/// A far gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its public key, as `longhaul pubkey` prints it.
    pub public_key: String,
    /// `HOST:PORT` of its link.
    pub endpoint: String,
}

/// A near gateway within this process.
#[derive(Debug)]
pub struct Near {
    /// In the order of the peers.
    doors: Vec<SocketAddr>,
    manner: (Scheme, Verify),
    end: oneshot::Sender<()>,
    running: JoinHandle<Result<daemon::CutShort, RunError>>,
    /// Nobody orders a reload.
    _orders: mpsc::Sender<()>,
    /// Two links with one key would take each other's place at the far gateway.
    _key: File,
}

/// There is no near gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NearError {
    /// A text is no peer.
    #[error("{0:?} is no peer: expected KEY@HOST:PORT")]
    Peer(String),
    /// There is no key.
    #[error(
        "there is no key {0}: make one by longhaul keygen, and give its public key to the far gateway"
    )]
    NoKey(PathBuf),
    /// The key cannot be read.
    #[error("the key {path} cannot be used")]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process has a link with this key.
    #[error(
        "another process uses the key {0}: give each mover that runs at the same time a key of its own"
    )]
    KeyInUse(PathBuf),
    /// The peer or the key is wrong.
    #[error("{0}")]
    Config(ConfigError),
    /// A socket cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A bound socket could not be used.
    #[error("a socket could not be used")]
    Socket(#[from] io::Error),
}

impl Peer {
    /// Reads `KEY@HOST:PORT`.
    ///
    /// # Errors
    /// [`NearError::Peer`] for another text. Whether the key is one shows when it is used.
    pub fn parse(text: &str) -> Result<Self, NearError> {
        let wrong = || NearError::Peer(text.to_owned());
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

impl Near {
    /// Starts a near gateway with these peers. They have TLS with servers as `scheme` says, and verify them by `verify`.
    ///
    /// # Errors
    /// [`NearError`] if the key or the peer cannot be used.
    pub fn start(
        peers: &[Peer],
        key_file: &Path,
        scheme: Scheme,
        verify: &Verify,
    ) -> Result<Self, NearError> {
        let key = lock(key_file)?;
        // It is found where the process began, not where this text seems to be.
        let key_path = key_file.canonicalize()?;
        let config = Config::parse(&text(peers, &key_path, scheme, verify), Path::new("--peer"));
        let config = config.map_err(NearError::Config)?;
        let bound = Bound::bind(&config)?;
        let doors = bound.ftp.iter().map(|door| door.local_addr());
        let doors = doors.collect::<Result<_, _>>()?;
        let (end, ended) = oneshot::channel();
        let shutdown = async {
            // A dropped sender ends it, too.
            let _ = ended.await;
        };
        let (reloads, orders) = Reloads::never(&config);
        let running = tokio::spawn(daemon::run(config, bound, reloads, Watch::none(), shutdown));
        Ok(Self {
            doors,
            manner: (scheme, verify.clone()),
            end,
            running,
            _orders: orders,
            _key: key,
        })
    }

    /// The front door that leads to the peer with this number, for the log-in.
    ///
    /// # Panics
    /// If there are not so many peers.
    pub fn door(&self, peer: usize) -> Door {
        let door = self.doors[peer];
        Door {
            host: door.ip().to_string(),
            port: door.port(),
            has_tls: true,
            is_ours: true,
            network: None,
        }
    }

    /// How the far gateway reaches servers, and verifies them.
    pub fn manner(&self) -> &(Scheme, Verify) {
        &self.manner
    }

    /// Ends the link, so that the far gateway knows at once.
    pub async fn end(self) {
        // It may have ended by itself.
        let _ = self.end.send(());
        let _ = self.running.await;
    }
}

fn lock(path: &Path) -> Result<File, NearError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(NearError::NoKey(path.to_owned()));
        }
        Err(source) => {
            return Err(NearError::Key {
                path: path.to_owned(),
                source,
            });
        }
    };
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(NearError::KeyInUse(path.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(NearError::Key {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The configuration of such a gateway. It ends once nothing is copied any more: sessions have said `QUIT`, and nobody
/// waits for the answers.
fn text(peers: &[Peer], key_file: &Path, scheme: Scheme, verify: &Verify) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let key_file = quoted(&key_file.to_string_lossy());
    let verify = match verify {
        Verify::Roots(_) => String::new(),
        Verify::Pin(pin) => format!(", pin = \"{pin}\""),
        Verify::Off => ", verify = false".to_owned(),
    };
    let server_tls = match scheme {
        Scheme::Ftp | Scheme::Https => String::new(),
        Scheme::Explicit => format!("server_tls = {{ mode = \"explicit\"{verify} }}\n"),
        Scheme::Implicit => format!("server_tls = {{ mode = \"implicit\"{verify} }}\n"),
    };
    let mut text = format!(
        "[identity]\nkey_file = {key_file}\n\
         [link]\nlisten = \"0.0.0.0:0\"\ndrain_max = \"20ms\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n"
    );
    for (number, peer) in peers.iter().enumerate() {
        let (public_key, endpoint) = (quoted(&peer.public_key), quoted(&peer.endpoint));
        text += &format!(
            "[[peer]]\nname = \"far{number}\"\npublic_key = {public_key}\nendpoint = {endpoint}\n\
             [[ftp]]\nlisten = \"127.0.0.1:0\"\nclients = [\"127.0.0.1/32\"]\nvia = \"far{number}\"\n{server_tls}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::tls::Fingerprint;

    #[test]
    fn a_peer_is_a_key_and_an_endpoint() {
        let peer = Peer::parse("a+b/c=@far.example:4810").expect("a peer");
        assert_eq!(peer.public_key, "a+b/c=");
        assert_eq!(peer.endpoint, "far.example:4810");
        for wrong in [
            "far.example:4810",
            "@far:1",
            "key@far",
            "key@far:x",
            "key@:1",
        ] {
            assert!(Peer::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_link_at_a_time_has_a_key() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("key");
        assert!(matches!(lock(&path), Err(NearError::NoKey(_))));
        link::Identity::generate().write_new(&path).expect("room");
        let first = lock(&path).expect("free");
        assert!(matches!(lock(&path), Err(NearError::KeyInUse(_))));
        drop(first);
        lock(&path).expect("free again");
    }

    #[test]
    fn far_gateways_verify_servers_as_we_would() {
        let folder = tempfile::tempdir().expect("room");
        let key = folder.path().join("key");
        link::Identity::generate().write_new(&key).expect("room");
        let peers = ["a", "b"].map(|name| {
            let far = link::Identity::generate().public_key().to_string();
            Peer::parse(&format!("{far}@{name}.example:4810")).expect("a peer")
        });
        let verifies = [
            Verify::Roots(None),
            Verify::Pin(Fingerprint([7; 32])),
            Verify::Off,
        ];
        for verify in verifies {
            for scheme in [Scheme::Ftp, Scheme::Explicit, Scheme::Implicit] {
                let text = text(&peers, &key, scheme, &verify);
                let config = Config::parse(&text, Path::new("--peer")).expect("a configuration");
                assert_eq!(config.ftp.len(), 2);
                for (number, door) in config.ftp.iter().enumerate() {
                    assert_eq!(door.via, Some(number), "{text}");
                    let verified = door.server_tls.as_ref().map(|it| it.verify.clone());
                    let expected = (scheme != Scheme::Ftp).then(|| verify.clone());
                    assert_eq!(verified, expected, "{text}");
                }
            }
        }
    }
}
