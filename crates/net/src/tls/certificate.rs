//! The certificate that clients receive, and its key. They are stored in two PEM files.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    Error, InconsistentKeys,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use super::provider;

/// Paths of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertSource {
    /// File with the certificate, followed by the chain of certificates to a root.
    pub cert_file: PathBuf,
    /// File with the unencrypted private key. Only its owner and its group may read it.
    pub key_file: PathBuf,
    /// Whether the gateway creates both files if they are missing.
    pub self_signed: bool,
}

/// Reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertError {
    /// The file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The file contains no valid certificate.
    #[error("{path}: expected certificates in PEM: {why}")]
    NotACertificate {
        /// Path of the file.
        path: PathBuf,
        /// Reason, as text.
        why: String,
    },
    /// The file contains no usable private key.
    #[error("{path}: expected an unencrypted private key in PEM: {why}")]
    NotAKey {
        /// Path of the file.
        path: PathBuf,
        /// Reason, as text.
        why: String,
    },
    /// Other users can read the key, or its group can write it.
    #[error(
        "{path}: others can use this key (mode {mode:04o}), expected at most 0640: chmod 640 {path}"
    )]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The private key does not belong to the certificate.
    #[error("{key_file}: this key does not fit the certificate in {cert_file}")]
    Mismatch {
        /// Path of the certificate file.
        cert_file: PathBuf,
        /// Path of the key file.
        key_file: PathBuf,
    },
}

impl CertSource {
    /// Checks that both files are usable.
    ///
    /// # Errors
    /// [`CertError`] names the unusable file.
    pub fn check(&self) -> Result<(), CertError> {
        self.load().map(drop)
    }

    /// Loads both files.
    ///
    /// # Errors
    /// [`CertError`] names the unusable file. An expired certificate is not an error, since clients
    /// check the expiry.
    pub(super) fn load(&self) -> Result<Arc<CertifiedKey>, CertError> {
        let chain = read_certificates(&self.cert_file)?;
        let not_a_key = |why: String| CertError::NotAKey {
            path: self.key_file.clone(),
            why,
        };
        self.check_mode()?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key_file)?)
            .map_err(|error| not_a_key(error.to_string()))?;
        match CertifiedKey::from_der(chain, key, &provider()) {
            Ok(certified) => Ok(Arc::new(certified)),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(CertError::Mismatch {
                    cert_file: self.cert_file.clone(),
                    key_file: self.key_file.clone(),
                })
            }
            Err(error @ Error::InvalidCertificate(_)) => Err(CertError::NotACertificate {
                path: self.cert_file.clone(),
                why: error.to_string(),
            }),
            Err(error) => Err(not_a_key(error.to_string())),
        }
    }
}

impl CertSource {
    /// Refuses a key file that other users can read. Its group may read it, as with Debian's
    /// `ssl-cert`.
    fn check_mode(&self) -> Result<(), CertError> {
        let path = &self.key_file;
        let metadata = fs::metadata(path).map_err(|source| CertError::Io {
            path: path.clone(),
            source,
        })?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o037 == 0 {
            return Ok(());
        }
        let path = path.clone();
        Err(CertError::Exposed { path, mode })
    }
}

impl CertError {
    /// Returns the path of the unusable file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::NotACertificate { path, .. }
            | Self::NotAKey { path, .. }
            | Self::Exposed { path, .. } => path,
            Self::Mismatch { key_file, .. } => key_file,
        }
    }
}

/// Reads the certificates in a PEM file. The file must contain at least one certificate.
///
/// # Errors
/// [`CertError::Io`] or [`CertError::NotACertificate`].
pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertError> {
    let not_a_certificate = |why: String| CertError::NotACertificate {
        path: path.to_owned(),
        why,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| not_a_certificate(error.to_string()))?;
    if found.is_empty() {
        return Err(not_a_certificate("there is none in it".to_owned()));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, CertError> {
    fs::read(path).map_err(|source| CertError::Io {
        path: path.to_owned(),
        source,
    })
}
