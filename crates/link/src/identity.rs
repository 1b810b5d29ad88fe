//! Identity of a gateway: an Ed25519 key pair in a file, and the public keys of its peers.
//!
//! The key file contains the private key as PKCS#8 in PEM. A public key is written as one line of
//! base64, which encodes its 32 bytes.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};

/// Ed25519 public key, which identifies a gateway. Its text form is base64 with 44 characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

/// Ed25519 key pair. The `Debug` output contains only the public key.
#[derive(Clone)]
pub struct Identity {
    pkcs8: Arc<PrivatePkcs8KeyDer<'static>>,
    public: PublicKey,
}

/// Reason why a key file cannot be read or written, or is not safe to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file system reported the error `source`.
    #[error("key file {path}")]
    Io {
        /// Path of the key file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// Other users can read the private key, so it does not reliably identify this gateway.
    #[error("{path}: group or others can read this key (mode {mode:o}); run: chmod 600 {path}")]
    Exposed {
        /// Path of the key file.
        path: PathBuf,
        /// Permission bits of the key file.
        mode: u32,
    },
    /// The file contains no private key.
    #[error("{path}: not an Ed25519 private key in PKCS#8 PEM; make one with: longhaul keygen")]
    NotAKey {
        /// Path of the key file.
        path: PathBuf,
    },
}

/// Error: a text is not a valid public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a public key: expected 44 characters of base64 as `longhaul pubkey` prints them")]
pub struct PublicKeyError;

impl Identity {
    /// Generates a new identity with random numbers from the operating system.
    pub fn generate() -> Self {
        let pair = Ed25519KeyPair::generate().expect("the system's randomness works");
        let document = pair
            .to_pkcs8v1()
            .expect("a generated key has a PKCS#8 form");
        Self::from_pkcs8(document.as_ref()).expect("a generated key reads back")
    }

    /// Returns the identity with the given private seed. Tests and simulations use it to have the
    /// same keys in every run.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a seed");
        let document = pair.to_pkcs8v1().expect("a seeded key has a PKCS#8 form");
        Self::from_pkcs8(document.as_ref()).expect("a seeded key reads back")
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// Returns [`IdentityError::Exposed`] if group or others can read the file. Returns another
    /// error if the file cannot be read or contains no private key.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let io_error = |source| IdentityError::Io {
            path: path.to_owned(),
            source,
        };
        let mode = fs::metadata(path).map_err(io_error)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::Exposed {
                path: path.to_owned(),
                mode,
            });
        }
        let text = fs::read(path).map_err(io_error)?;
        PrivatePkcs8KeyDer::from_pem_slice(&text)
            .ok()
            .and_then(|key| Self::from_pkcs8(key.secret_pkcs8_der()))
            .ok_or_else(|| IdentityError::NotAKey {
                path: path.to_owned(),
            })
    }

    /// Writes a new key file that only its owner can read.
    ///
    /// # Errors
    /// Returns [`IdentityError::Io`] if the file cannot be written or already exists. An existing
    /// key is never overwritten.
    pub fn write_new(&self, path: &Path) -> Result<(), IdentityError> {
        let io_error = |source| IdentityError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(io_error)?;
        let body = BASE64_STANDARD.encode(self.pkcs8.secret_pkcs8_der());
        let mut text = String::from("-----BEGIN PRIVATE KEY-----\n");
        for line in body.as_bytes().chunks(64) {
            text.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
            text.push('\n');
        }
        text.push_str("-----END PRIVATE KEY-----\n");
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(io_error)
    }

    /// Returns the public key of this identity.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// Returns the private key in the form that the TLS library needs.
    pub(crate) fn pkcs8(&self) -> PrivatePkcs8KeyDer<'static> {
        self.pkcs8.clone_key()
    }

    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self {
            pkcs8: Arc::new(PrivatePkcs8KeyDer::from(der.to_vec())),
            public,
        })
    }
}

impl PublicKey {
    /// Returns the SubjectPublicKeyInfo of this key, the encoding of a raw public key in TLS (RFC
    /// 7250, RFC 8410 section 4).
    pub(crate) fn to_spki(self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.public == other.public
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let bytes = BASE64_STANDARD
            .decode(text.trim())
            .map_err(|_| PublicKeyError)?;
        bytes.try_into().map(Self).map_err(|_| PublicKeyError)
    }
}

/// First bytes of the DER encoding of an Ed25519 SubjectPublicKeyInfo (RFC 8410 section 10.1). The
/// 32 bytes of the key follow.
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_key_file_reads_back_and_is_never_written_over() {
        let path = scratch("identity");
        let identity = Identity::generate();
        identity
            .write_new(&path)
            .expect("a new file can be written");
        let read = Identity::read(&path).expect("the file was just written");
        assert_eq!(read.public_key(), identity.public_key());
        assert!(
            Identity::generate().write_new(&path).is_err(),
            "the file exists"
        );
        fs::remove_file(&path).expect("the file exists");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let path = scratch("exposed");
        Identity::generate()
            .write_new(&path)
            .expect("a new file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("the file is ours");
        let error = Identity::read(&path).expect_err("group can read it");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::remove_file(&path).expect("the file exists");
    }

    #[test]
    fn a_public_key_prints_and_parses() {
        let key = Identity::from_seed([7; 32]).public_key();
        assert_eq!(key.to_string().len(), 44);
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!("AAAA".parse::<PublicKey>(), Err(PublicKeyError));
    }
}
