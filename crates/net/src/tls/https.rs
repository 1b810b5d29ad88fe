//! TLS with browsers. The gateway presents its certificate, and may request a certificate from the
//! browser.
//!
//! A client certificate is optional. The handshake accepts any certificate whose key the client
//! has, since browsers hardly explain failed handshakes to their users. [`judge`] checks the
//! certificate at each request, since certificates expire and roots change. For the same reasons,
//! TLS sessions are not resumed.

use std::{io, sync::Arc, time::Duration};

use rustls::{
    CertificateError, Error, ServerConfig,
    pki_types::{CertificateDer, UnixTime},
    server::{Acceptor, NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::LazyConfigAcceptor;

use super::{
    HANDSHAKE_TIMEOUT,
    certificate::{CertError, CertSource},
    current_certificate::CurrentCertificate,
    leg::Leg,
    provider,
    roots::{self, RootsError},
    tcp::Tcp,
    timeout_error,
};

/// Acceptor of TLS handshakes from browsers.
#[derive(Debug)]
pub struct HttpsAcceptor {
    current: Arc<CurrentCertificate>,
}

impl HttpsAcceptor {
    /// Loads the certificate. If the source is self-signed, creates a missing certificate.
    ///
    /// # Errors
    /// [`CertError`] if the certificate is unusable.
    pub fn new(source: CertSource) -> Result<Self, CertError> {
        let current = Arc::new(CurrentCertificate::new(source)?);
        Ok(Self { current })
    }

    /// Performs the handshake with a client. Requests a certificate if `roots` is not empty.
    ///
    /// # Errors
    /// The error of the connection. `TimedOut` if the client is too slow. `InvalidData` if the
    /// client sends other bytes than TLS.
    pub async fn accept(
        &self,
        tcp: TcpStream,
        roots: &[CertificateDer<'static>],
    ) -> io::Result<Leg> {
        self.current.refresh();
        let time_max = match roots {
            [] => HANDSHAKE_TIMEOUT,
            _ => CERTIFICATE_CHOICE_TIMEOUT,
        };
        let config = self.config(roots).map_err(io::Error::other)?;
        let handshake = async {
            let start = LazyConfigAcceptor::new(Acceptor::default(), Tcp::new(tcp.into()));
            // The browser asks its user to choose a certificate only after this first message.
            let start = timeout(HANDSHAKE_TIMEOUT, start).await;
            start
                .map_err(|_| timeout_error())??
                .into_stream(config)
                .await
        };
        let stream = timeout(time_max, handshake).await;
        Ok(Leg::tls(stream.map_err(|_| timeout_error())??))
    }

    fn config(&self, roots: &[CertificateDer<'static>]) -> Result<Arc<ServerConfig>, RootsError> {
        let clients: Arc<dyn ClientCertVerifier> = match roots {
            [] => WebPkiClientVerifier::no_client_auth(),
            _ => roots::optional_client_verifier(roots)?,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider has suites for both versions")
            .with_client_cert_verifier(clients)
            .with_cert_resolver(self.current.clone());
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![ALPN_HTTP.to_vec()];
        Ok(Arc::new(config))
    }
}

/// Verifies a client's certificates with these roots. The client's own certificate is the first.
///
/// # Errors
/// The reason why the certificate is currently not valid.
pub fn judge(
    shown: &[CertificateDer<'static>],
    roots: &[CertificateDer<'static>],
) -> Result<(), Error> {
    let (own, others) = shown.split_first().ok_or(Error::NoCertificatesPresented)?;
    let by = roots::client_verifier(roots).map_err(|_| CertificateError::UnknownIssuer)?;
    by.verify_client_cert(own, others, UnixTime::now())
        .map(drop)
}

/// Timeout of a handshake during which a browser asks its user to choose a certificate.
const CERTIFICATE_CHOICE_TIMEOUT: Duration = Duration::from_secs(60);

/// ALPN identifier of HTTP/1.1 (RFC 7301 section 6).
const ALPN_HTTP: &[u8] = b"http/1.1";

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "plays a client, and has a clock")]
mod tests {
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpStream},
        time::Instant,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_silent_is_cut_off() {
        let path = std::env::temp_dir().join(format!("longhaul-late-{}", std::process::id()));
        let acceptor = HttpsAcceptor::new(CertSource {
            cert_file: path.with_extension("pem"),
            key_file: path.with_extension("key"),
            self_signed: true,
        });
        let acceptor = acceptor.expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("a bound socket");
        // No bytes, and the start of a ClientHello of 512 bytes.
        for said in [&[][..], &[22, 3, 1, 2, 0, 1]] {
            let (client, served) = tokio::join!(TcpStream::connect(at), listener.accept());
            let mut client = client.expect("the listener accepts");
            client.write_all(said).await.expect("a connection");
            let begun = Instant::now();
            let (served, _) = served.expect("a connection");
            let error = acceptor.accept(served, &[]).await.expect_err("it is late");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(begun.elapsed() < CERTIFICATE_CHOICE_TIMEOUT);
        }
        for kind in ["pem", "key"] {
            std::fs::remove_file(path.with_extension(kind)).expect("it was made");
        }
    }
}
