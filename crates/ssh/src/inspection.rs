//! An SSH server as a client sees it before a log-in: its host key, and its ways to log in.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use russh::{
    Preferred,
    client::{self, AuthResult, DisconnectReason, Handle, Handler, Session},
    keys::{Algorithm, HashAlg, PublicKey, PublicKeyOrCertificate},
};
use tokio::{net::TcpStream, time::timeout};

use crate::algorithms;

/// Host key algorithms that a client offers to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKeyOffer(Vec<Algorithm>);

/// Public host key that a server has presented, with a proof of its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHostKey(PublicKey);

/// Reason why a server has presented no host key or no ways to log in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectionError {
    /// The server has refused the connection with a sentence.
    #[error("{0}")]
    Refused(String),
    /// The server speaks another protocol, or has ended the connection without a reason.
    #[error("no SSH server answers: {0}")]
    Protocol(#[from] russh::Error),
    /// The server has not answered in time.
    #[error("no answer within {} s", TIME_MAX.as_secs())]
    Timeout,
}

/// Returns the host key of a server, as `ssh-keyscan` does. The function sends no credential. If
/// the server has several host keys, the function returns the first key of an algorithm in `offer`.
///
/// # Errors
/// [`InspectionError`] if the server presents no host key.
pub async fn fetch_host_key(
    stream: TcpStream,
    offer: &HostKeyOffer,
) -> Result<ServerHostKey, InspectionError> {
    let observer = Observer {
        ends_after_key: true,
        ..Observer::default()
    };
    let seen = observer.seen.clone();
    let preferred = Preferred {
        key: offer.0.clone().into(),
        ..algorithms::preferred()
    };
    let connected = timeout(TIME_MAX, connect(stream, preferred, observer)).await;
    let mut seen = seen.take();
    match (seen.host_key.take(), connected) {
        (Some(key), _) => Ok(key),
        (None, Err(_)) => Err(InspectionError::Timeout),
        (None, Ok(ended)) => Err(seen.refusal(ended.err())),
    }
}

/// Returns the log-in methods that a server offers to `user`, such as `password`. An SSH listener
/// of a gateway answers only after the real server has answered.
///
/// # Errors
/// [`InspectionError`] if the server offers nothing. The error contains the reason that the server
/// has sent.
pub async fn offered_methods(
    stream: TcpStream,
    user: &str,
) -> Result<Vec<String>, InspectionError> {
    let observer = Observer::default();
    let seen = observer.seen.clone();
    let asked = async {
        let mut session = connect(stream, algorithms::preferred(), observer).await?;
        session.authenticate_none(user).await
    };
    match timeout(TIME_MAX, asked).await {
        Err(_) => Err(InspectionError::Timeout),
        Ok(Ok(AuthResult::Success)) => Ok(vec!["none".to_owned()]),
        Ok(Ok(AuthResult::Failure {
            remaining_methods, ..
        })) => {
            let methods = remaining_methods.iter();
            let methods: Vec<_> = methods.map(|it| <&str>::from(it).to_owned()).collect();
            match methods.is_empty() {
                // A server that ends the connection offers nothing.
                true => Err(seen.take().refusal(None)),
                false => Ok(methods),
            }
        }
        Ok(Err(error)) => Err(seen.take().refusal(Some(error))),
    }
}

impl From<io::Error> for InspectionError {
    fn from(error: io::Error) -> Self {
        Self::Protocol(error.into())
    }
}

async fn connect(
    stream: TcpStream,
    preferred: Preferred,
    observer: Observer,
) -> Result<Handle<Observer>, russh::Error> {
    let config = client::Config {
        preferred,
        ..client::Config::default()
    };
    client::connect_stream(Arc::new(config), stream, observer).await
}

impl From<Vec<Algorithm>> for HostKeyOffer {
    fn from(algorithms: Vec<Algorithm>) -> Self {
        Self(algorithms)
    }
}

impl ServerHostKey {
    /// Returns the SHA-256 fingerprint, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Returns the name of the key's algorithm, such as `ssh-ed25519`.
    pub fn algorithm(&self) -> String {
        self.0.algorithm().to_string()
    }

    /// Returns the key.
    pub(crate) fn public_key(&self) -> &PublicKey {
        &self.0
    }
}

impl From<PublicKey> for ServerHostKey {
    fn from(key: PublicKey) -> Self {
        Self(key)
    }
}

/// Handler of a connection that ends before the log-in.
#[derive(Default)]
struct Observer {
    seen: Arc<SharedMessages>,
    /// Whether the connection ends as soon as the host key is known.
    ends_after_key: bool,
}

/// Messages of a server. The handler of a connection shares them with the caller.
#[derive(Default)]
struct SharedMessages(Mutex<Messages>);

#[derive(Default)]
struct Messages {
    host_key: Option<ServerHostKey>,
    /// Latest text before the end: a banner, or the text of a disconnect message.
    text: Option<String>,
}

impl SharedMessages {
    fn change(&self, change: impl FnOnce(&mut Messages)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn take(&self) -> Messages {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Messages {
    /// Returns the reason why the connection has ended.
    fn refusal(self, error: Option<russh::Error>) -> InspectionError {
        let text = self.text.map(|it| it.trim().to_owned());
        match text.filter(|it| !it.is_empty()) {
            Some(text) => InspectionError::Refused(text),
            None => InspectionError::Protocol(error.unwrap_or(russh::Error::Disconnect)),
        }
    }
}

impl Handler for Observer {
    type Error = russh::Error;

    async fn auth_banner(&mut self, banner: &str, _: &mut Session) -> Result<(), russh::Error> {
        self.seen.change(|it| it.text = Some(clean(banner)));
        Ok(())
    }

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        if let PublicKeyOrCertificate::PublicKey { key, .. } = key {
            let key = ServerHostKey(key.clone());
            self.seen.change(|it| it.host_key = Some(key));
        }
        Ok(!self.ends_after_key)
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<russh::Error>,
    ) -> Result<(), russh::Error> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                self.seen.change(|it| it.text = Some(clean(&info.message)));
                Ok(())
            }
            DisconnectReason::Error(error) => Err(error),
        }
    }
}

/// Returns a text of a server as one line of limited length, without control characters.
fn clean(text: &str) -> String {
    let one_line = text.chars().map(|it| match it.is_control() {
        true => ' ',
        false => it,
    });
    let text: String = one_line.take(TEXT_MAX).collect();
    text.trim().to_owned()
}

/// Time limit of an inspection. A far gateway waits up to 10 s for a server.
const TIME_MAX: Duration = Duration::from_secs(15);

/// Maximum length of a text of a server, in characters.
const TEXT_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use russh::{
        keys::{PrivateKey, key::safe_rng},
        server::{self, Auth},
    };
    use tokio::{
        io::AsyncWriteExt as _,
        net::{TcpListener, ToSocketAddrs},
    };

    use super::*;

    /// Server that refuses every log-in.
    struct Refusing;

    impl server::Handler for Refusing {
        type Error = russh::Error;

        async fn auth_none(&mut self, _: &str) -> Result<Auth, russh::Error> {
            Ok(Auth::reject())
        }
    }

    #[allow(clippy::disallowed_methods, reason = "plays the server")]
    async fn listener() -> (TcpListener, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    #[allow(clippy::disallowed_methods, reason = "connects to the server")]
    async fn open(address: impl ToSocketAddrs) -> TcpStream {
        TcpStream::connect(address).await.expect("it listens")
    }

    /// Starts a server with this host key for one client.
    async fn serve(key: PrivateKey) -> std::net::SocketAddr {
        let (listener, address) = listener().await;
        let config = server::Config {
            keys: vec![key],
            auth_rejection_time: Duration::ZERO,
            ..server::Config::default()
        };
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            let session = server::run_stream(Arc::new(config), stream, Refusing).await;
            // The client ends the connection before the log-in.
            let _ = session.expect("a session").await;
        });
        address
    }

    /// Starts a server that sends these bytes to its only client, and closes the connection.
    async fn serve_bytes(bytes: Vec<u8>) -> std::net::SocketAddr {
        let (listener, address) = listener().await;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            stream.write_all(&bytes).await.expect("the client reads");
            stream.shutdown().await.expect("open");
            let mut unread = vec![0; 4096];
            while let Ok(1..) = tokio::io::AsyncReadExt::read(&mut stream, &mut unread).await {}
        });
        address
    }

    fn all() -> HostKeyOffer {
        HostKeyOffer(Preferred::DEFAULT.key.into_owned())
    }

    fn new_key() -> PrivateKey {
        PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key")
    }

    #[tokio::test]
    async fn the_host_key_of_a_server_is_fetched_without_a_log_in() {
        let key = new_key();
        let expected = key.fingerprint(HashAlg::Sha256).to_string();
        let address = serve(key).await;
        let fetched = fetch_host_key(open(address).await, &all()).await;
        let fetched = fetched.expect("a key");
        assert_eq!(fetched.fingerprint(), expected);
        assert_eq!(fetched.algorithm(), "ssh-ed25519");
    }

    #[tokio::test]
    async fn the_offered_ways_to_log_in_are_listed() {
        let address = serve(new_key()).await;
        let methods = offered_methods(open(address).await, "joe").await;
        let methods = methods.expect("the server answers");
        assert!(methods.contains(&"password".to_owned()), "{methods:?}");
    }

    #[tokio::test]
    async fn a_server_without_ssh_is_no_ssh_server() {
        let address = serve_bytes(b"220 ready\r\n".to_vec()).await;
        let error = fetch_host_key(open(address).await, &all()).await;
        let error = error.expect_err("no host key").to_string();
        assert!(error.starts_with("no SSH server answers: "), "{error}");
    }

    #[tokio::test]
    async fn the_sentence_of_a_refusal_is_the_error() {
        for inspects_methods in [false, true] {
            let address = serve_bytes(refusal("server\n10.0.0.9:22 is not allowed")).await;
            let stream = open(address).await;
            let refused = match inspects_methods {
                false => fetch_host_key(stream, &all()).await.map(|_| ()),
                true => offered_methods(stream, "joe").await.map(|_| ()),
            };
            let error = refused.expect_err("no host key").to_string();
            assert_eq!(error, "server 10.0.0.9:22 is not allowed");
        }
    }

    /// Returns the identification of a server and an unencrypted disconnect message (RFC 4253
    /// section 11.1).
    fn refusal(text: &str) -> Vec<u8> {
        let mut payload = vec![1, 0, 0, 0, 7];
        payload.extend((text.len() as u32).to_be_bytes());
        payload.extend(text.as_bytes());
        payload.extend([0; 4]);
        let padding = 4 + (8 - (payload.len() + 5 + 4) % 8) % 8;
        let mut bytes = b"SSH-2.0-test\r\n".to_vec();
        bytes.extend(((payload.len() + padding + 1) as u32).to_be_bytes());
        bytes.push(padding as u8);
        bytes.extend(&payload);
        bytes.extend(vec![0; padding]);
        bytes
    }
}
