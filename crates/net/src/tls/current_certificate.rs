//! The certificate in use. The gateway reloads the certificate when its files change. If the new
//! files are unusable, the old certificate stays in use.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tracing::{info, warn};

use super::{
    certificate::{CertError, CertSource},
    fingerprint::Fingerprint,
    self_signed,
};

/// The certificate that clients currently receive.
#[derive(Debug)]
pub(super) struct CurrentCertificate {
    source: CertSource,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    certified: Arc<CertifiedKey>,
    stamps: [FileStamp; 2],
}

/// File metadata that reveals a change of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length_bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl CurrentCertificate {
    /// Loads the files of `source`. Creates missing files if the certificate is self-signed.
    ///
    /// # Errors
    /// [`CertError`] if the certificate is unusable.
    pub(super) fn new(source: CertSource) -> Result<Self, CertError> {
        if source.self_signed {
            self_signed::ensure(&source)?;
        }
        let stamps = stamps(&source);
        let certified = source.load()?;
        let fingerprint = fingerprint(&certified);
        info!(cert_file = %source.cert_file.display(), %fingerprint, "certificate in use");
        let state = RwLock::new(State { certified, stamps });
        Ok(Self { source, state })
    }

    /// Loads the files again if they have changed since they were loaded.
    pub(super) fn refresh(&self) {
        if stamps(&self.source) != self.read(|state| state.stamps) {
            self.reload();
        }
    }

    /// Loads the files again.
    pub(super) fn reload(&self) {
        // The stamps are read before the contents: a change in between leads to another load.
        let stamps = stamps(&self.source);
        let loaded = self.source.load();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.stamps = stamps;
        match loaded {
            Ok(certified) => {
                if certified.cert != state.certified.cert {
                    let fingerprint = fingerprint(&certified);
                    info!(%fingerprint, "new certificate in use");
                }
                state.certified = certified;
            }
            Err(error) => {
                warn!(%error, "the changed certificate is invalid; the old one stays in use")
            }
        }
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.read(|state| fingerprint(&state.certified))
    }

    fn read<T>(&self, what: impl FnOnce(&State) -> T) -> T {
        what(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.read(|state| state.certified.clone()))
    }
}

fn fingerprint(certified: &CertifiedKey) -> Fingerprint {
    Fingerprint::of(certified.cert.first().expect("a chain is never empty"))
}

fn stamps(source: &CertSource) -> [FileStamp; 2] {
    [stamp(&source.cert_file), stamp(&source.key_file)]
}

/// Returns the stamp of a file. The stamp of a missing file consists of zeros.
fn stamp(path: &Path) -> FileStamp {
    let metadata = fs::metadata(path).ok();
    let of = |what: fn(&fs::Metadata) -> i64| metadata.as_ref().map_or(0, what);
    FileStamp {
        inode: metadata.as_ref().map_or(0, MetadataExt::ino),
        length_bytes: metadata.as_ref().map_or(0, MetadataExt::size),
        modified_s: of(MetadataExt::mtime),
        modified_ns: of(MetadataExt::mtime_nsec),
    }
}
