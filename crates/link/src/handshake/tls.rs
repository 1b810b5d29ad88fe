//! TLS 1.3 with raw public keys, using `rustls::quic`: this side's identity, the accepted key of
//! the peer, and the transport parameters.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key,
    },
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::{
        AlwaysResolvesServerRawPublicKeys,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
    version::TLS13,
};

use crate::{
    Identity, PublicKey,
    version::FrameVersion,
    wire::varint::{self, ByteReader, Malformed},
};

/// TLS configurations for one pair of identities, one for each role.
#[derive(Debug, Clone)]
pub(crate) struct TlsConfig {
    pub(crate) client: Arc<rustls::ClientConfig>,
    pub(crate) server: Arc<rustls::ServerConfig>,
}

impl TlsConfig {
    /// Creates configurations that use the identity `us` and accept only the key `peer`.
    pub(crate) fn new(us: &Identity, peer: &PublicKey) -> Result<Self, Error> {
        let provider = Arc::new(provider());
        let key = aws_lc_rs::sign::any_eddsa_type(&us.pkcs8())?;
        let spki = CertificateDer::from(us.public_key().to_spki());
        let certified = Arc::new(CertifiedKey::new(vec![spki], key));
        debug_assert!(matches!(
            PrivateKeyDer::from(us.pkcs8()),
            PrivateKeyDer::Pkcs8(_)
        ));
        let pinned = Arc::new(PinnedKey {
            spki: peer.to_spki(),
            algorithms: provider.signature_verification_algorithms,
        });
        let mut client = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                certified.clone(),
            )));
        client.resumption = rustls::client::Resumption::disabled();
        client.alpn_protocols = vec![ALPN.to_vec()];
        let mut server = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(pinned)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        server.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }
}

/// Transport parameters that each side sends in the TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransportParameters {
    /// Highest protocol version that the sender supports. After decoding, it is the highest version
    /// that both sides support. The connection uses that version.
    pub(crate) version: FrameVersion,
    /// Random number of this run of the program. A peer that has restarted sends another number, so
    /// this side can distinguish a restart from a period without packets.
    pub(crate) instance: u64,
    /// Initial window in slots. It applies to the first bulk stream that the receiver of the
    /// parameters opens. The windows of later streams are computed from this window.
    pub(crate) initial_window: u64,
    /// Number of streams that the receiver of the parameters may open.
    pub(crate) stream_limit: u32,
    /// Start of this handshake by the sender's clock, in nanoseconds since the Unix epoch.
    ///
    /// The initiator's first flight contains the same value without authentication by TLS.
    pub(crate) began_unix_ns: u64,
}

impl TransportParameters {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FrameVersion::OLDEST.byte()];
        out.extend_from_slice(&self.instance.to_be_bytes());
        varint::put(&mut out, self.initial_window);
        varint::put(&mut out, u64::from(self.stream_limit));
        out.extend_from_slice(&self.began_unix_ns.to_be_bytes());
        if self.version > FrameVersion::OLDEST {
            out.push(self.version.byte());
        }
        out
    }

    /// Decodes the peer's parameters. Bytes after the known fields belong to later versions and are
    /// ignored.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the bytes are invalid, or if the two sides have no common version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader(bytes);
        let oldest = reader.byte()?;
        let instance = u64::from_be_bytes(reader.array()?);
        let initial_window = reader.varint()?;
        let stream_limit = reader.varint_u32()?;
        let began_unix_ns = u64::from_be_bytes(reader.array()?);
        // A peer that supports only one version sends only one version.
        let latest = reader.byte().unwrap_or(oldest);
        Ok(Self {
            version: FrameVersion::common(oldest, latest).ok_or(Malformed)?,
            instance,
            initial_window,
            stream_limit,
            began_unix_ns,
        })
    }
}

/// TLS verifier that accepts exactly one raw public key.
#[derive(Debug)]
struct PinnedKey {
    spki: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedKey {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        if presented.as_ref() == self.spki {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(cert.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, dss, &self.algorithms)
    }
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for PinnedKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Returns a TLS provider that prefers AES-128-GCM if the processor has AES instructions, and
/// ChaCha20-Poly1305 otherwise.
///
/// Both ciphers stay enabled, because the processor of the peer may differ.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let aes = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let chacha = aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
    provider.cipher_suites = if has_aes_hardware() {
        vec![aes, chacha]
    } else {
        vec![chacha, aes]
    };
    provider
}

fn has_aes_hardware() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Server name in the TLS handshake. It has no meaning, since identities are keys.
pub(crate) const SERVER_NAME: &str = "longhaul";
const ALPN: &[u8] = b"longhaul/1";

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded parameters of version 2, as a test vector.
    const OF_VERSION_2: [u8; 21] = [
        0x02, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x50, 0x00, 0x50, 0x00, 0x17, 0x97,
        0x9c, 0xfe, 0x36, 0x2a, 0x00, 0x00,
    ];

    fn parameters(version: FrameVersion) -> TransportParameters {
        TransportParameters {
            version,
            instance: 0x0102_0304_0506_0708,
            initial_window: 4096,
            stream_limit: 4096,
            began_unix_ns: 1_700_000_000_000_000_000,
        }
    }

    #[test]
    fn parameters_of_version_2_have_the_bytes_of_that_release() {
        let parameters = parameters(FrameVersion::V2);
        assert_eq!(parameters.encode(), OF_VERSION_2);
        assert_eq!(TransportParameters::decode(&OF_VERSION_2), Ok(parameters));
    }

    #[test]
    fn version_2_reads_later_parameters_as_its_own_with_bytes_behind() {
        let bytes = parameters(FrameVersion::LATEST).encode();
        assert_eq!(bytes.split_at(OF_VERSION_2.len()).0, OF_VERSION_2);
        let read = TransportParameters::decode(&bytes);
        assert_eq!(read, Ok(parameters(FrameVersion::LATEST)));
    }

    #[test]
    fn both_ends_speak_the_latest_version_that_they_have_in_common() {
        let read = |oldest: u8, behind: &[u8]| {
            let bytes = [&[oldest], &OF_VERSION_2[1..], behind].concat();
            TransportParameters::decode(&bytes).map(|it| it.version)
        };
        assert_eq!(read(2, &[]), Ok(FrameVersion::V2));
        assert_eq!(read(3, &[]), Ok(FrameVersion::V3));
        assert_eq!(read(1, &[2]), Ok(FrameVersion::V2));
        assert_eq!(read(3, &[4, 7]), Ok(FrameVersion::V3));
        for (oldest, behind) in [(1, &[][..]), (4, &[]), (4, &[5]), (3, &[2])] {
            assert_eq!(read(oldest, behind), Err(Malformed), "{oldest} {behind:?}");
        }
    }
}
