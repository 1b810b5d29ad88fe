//! Host key that the near gateway presents to its clients.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use russh::keys::{
    Algorithm, HashAlg, PrivateKey,
    ssh_key::{self, LineEnding},
};

/// Private host key of the near gateway.
#[derive(Clone)]
pub struct HostKey {
    key: PrivateKey,
}

/// Reason why the gateway has no host key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostKeyError {
    /// The file cannot be read or created.
    #[error("host key {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// Group or others can access the file.
    #[error(
        "host key {}: its mode {mode:04o} lets other users read it; set the mode to 0600",
        path.display()
    )]
    Permissions {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file contains no usable private key.
    #[error("host key {}: not a private key in the format of OpenSSH: {source}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        source: ssh_key::Error,
    },
    /// A passphrase protects the key.
    #[error("host key {}: a passphrase protects the key; remove it with ssh-keygen -p", path.display())]
    Encrypted {
        /// Path of the file.
        path: PathBuf,
    },
}

impl HostKey {
    /// Creates an Ed25519 key without a file. Only clients within the process can trust it.
    ///
    /// # Errors
    /// The reason why the system provides no key.
    pub fn generate() -> io::Result<Self> {
        let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519);
        key.map(|key| Self { key }).map_err(io::Error::other)
    }

    /// Loads the host key from a file in the format of OpenSSH. If the file does not exist, the
    /// function creates an Ed25519 key and the file.
    ///
    /// # Errors
    /// [`HostKeyError`] if the file is not a private key, or if other users can read it.
    pub fn load_or_create(path: &Path) -> Result<Self, HostKeyError> {
        let failed = |source| HostKeyError::Io {
            path: path.to_owned(),
            source,
        };
        match File::open(path) {
            Ok(file) => Self::load(file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match Self::create(path) {
                    // Another process has created the file at the same time.
                    Err(HostKeyError::Io { source, .. })
                        if source.kind() == io::ErrorKind::AlreadyExists =>
                    {
                        Self::load(File::open(path).map_err(failed)?, path)
                    }
                    created => created,
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the SHA-256 fingerprint of the public key, as OpenSSH prints it.
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Returns the public key as a line of OpenSSH.
    pub fn public_key(&self) -> String {
        let line = self.key.public_key().to_openssh();
        line.expect("a public key has a text form")
    }

    /// Returns the private key.
    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }

    fn load(file: File, path: &Path) -> Result<Self, HostKeyError> {
        let failed = |source| HostKeyError::Io {
            path: path.to_owned(),
            source,
        };
        let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(HostKeyError::Permissions {
                path: path.to_owned(),
                mode,
            });
        }
        let mut text = String::new();
        let read = file.take(FILE_MAX).read_to_string(&mut text);
        read.map_err(failed)?;
        let key = PrivateKey::from_openssh(&text).map_err(|source| HostKeyError::Format {
            path: path.to_owned(),
            source,
        })?;
        if key.is_encrypted() {
            return Err(HostKeyError::Encrypted {
                path: path.to_owned(),
            });
        }
        Ok(Self { key })
    }

    /// Creates a key and its file. The file appears with its whole content, and never replaces
    /// another file.
    fn create(path: &Path) -> Result<Self, HostKeyError> {
        let failed = |source| HostKeyError::Io {
            path: path.to_owned(),
            source,
        };
        let format = |source| HostKeyError::Format {
            path: path.to_owned(),
            source,
        };
        let mut random = russh::keys::key::safe_rng();
        let key = PrivateKey::random(&mut random, Algorithm::Ed25519).map_err(format)?;
        let text = key.to_openssh(LineEnding::LF).map_err(format)?;
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let written = (|| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::hard_link(&part, path)
        })();
        // The part is only a second name of the file.
        let _ = std::fs::remove_file(&part);
        written.map_err(failed)?;
        Ok(Self { key })
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostKey").field(&self.fingerprint()).finish()
    }
}

/// Maximum length of a file with a private key, in bytes.
const FILE_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_use_creates_a_private_file_and_later_uses_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let created = HostKey::load_or_create(&path).expect("created");
        let mode = std::fs::metadata(&path).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
        let loaded = HostKey::load_or_create(&path).expect("loaded");
        assert_eq!(created.fingerprint(), loaded.fingerprint());
        assert!(created.fingerprint().starts_with("SHA256:"));
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            1
        );
    }

    #[test]
    fn a_file_that_other_users_can_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        HostKey::load_or_create(&path).expect("created");
        let readable = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(&path, readable).expect("own file");
        let error = HostKey::load_or_create(&path).expect_err("readable");
        assert!(error.to_string().contains("0640"), "{error}");
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path).expect("a file");
        file.write_all(b"no key").expect("written");
        let error = HostKey::load_or_create(&path).expect_err("no key");
        assert!(matches!(error, HostKeyError::Format { .. }), "{error}");
        assert_eq!(std::fs::read(&path).expect("a file"), b"no key");
    }
}
