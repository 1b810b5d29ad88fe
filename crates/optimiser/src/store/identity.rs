//! Identity of a store, in a file of its own. The identity consists of the store's id, and of the
//! secret for cutting chunks.
//!
//! The file contains a magic number, a version, the id, the secret and a checksum. It is the only
//! file that the store syncs and replaces atomically. The store writes the file only when the store
//! is created or cleared. Without the identity, all segments are worthless.

use std::{fmt, io, path::Path};

use xxhash_rust::xxh3::xxh3_64;

use super::files::{self, StoreFileSystem};

/// Id of a store. Clearing a store gives it a new id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(pub [u8; 16]);

impl fmt::Debug for StoreId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Random bytes for the identity of a new store. The caller provides them, since the store has no
/// random number generator.
#[derive(Clone, Copy)]
pub struct IdentitySeed {
    /// Id of the new store.
    pub id: [u8; 16],
    /// Secret for cutting chunks.
    pub secret: [u8; 32],
}

impl fmt::Debug for IdentitySeed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IdentitySeed(***)")
    }
}

/// Content of the identity file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreIdentity {
    pub id: StoreId,
    pub secret: [u8; 32],
}

impl From<IdentitySeed> for StoreIdentity {
    fn from(fresh: IdentitySeed) -> Self {
        Self {
            id: StoreId(fresh.id),
            secret: fresh.secret,
        }
    }
}

/// Reads the identity in a folder. Returns `None` if the file is missing or damaged.
///
/// # Errors
/// The error of the file if this process has no permission to read it. The folder then contains
/// another user's store, which must not be replaced.
pub(super) fn read(
    files: &dyn StoreFileSystem,
    folder: &Path,
) -> io::Result<Option<StoreIdentity>> {
    let mut bytes = [0; FILE_BYTES];
    let read = files
        .open(&folder.join(FILE))
        .and_then(|file| files::read_exact_at(&*file, &mut bytes, 0));
    match read {
        Ok(()) => Ok(decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(None),
    }
}

/// Replaces the identity in a folder.
///
/// # Errors
/// The error of the files. The folder then contains either the old or the new identity.
pub(super) fn write(
    files: &dyn StoreFileSystem,
    folder: &Path,
    identity: &StoreIdentity,
) -> io::Result<()> {
    let (new, place) = (folder.join(NEW_FILE), folder.join(FILE));
    let file = files.create(&new)?;
    files::write_all_at(&*file, &encode(identity), 0)?;
    file.sync()?;
    files.rename(&new, &place)?;
    files.sync_folder(folder)
}

fn encode(identity: &StoreIdentity) -> [u8; FILE_BYTES] {
    let mut bytes = [0; FILE_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&identity.id.0);
    bytes[32..64].copy_from_slice(&identity.secret);
    let checksum = xxh3_64(&bytes[..64]);
    bytes[64..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes an identity. Returns `None` for damaged bytes and for an unknown version. After a
/// downgrade of the program, the store therefore starts empty.
fn decode(bytes: &[u8; FILE_BYTES]) -> Option<StoreIdentity> {
    let (id, secret) = (bytes[16..32].try_into(), bytes[32..64].try_into());
    let identity = StoreIdentity {
        id: StoreId(id.ok()?),
        secret: secret.ok()?,
    };
    (encode(&identity) == *bytes).then_some(identity)
}

/// Names of the identity's files: the file itself, and the temporary file that replaces it.
pub(super) const FILES: [&str; 2] = [FILE, NEW_FILE];

const FILE: &str = "identity";
const NEW_FILE: &str = "identity.new";
const MAGIC: &[u8; 8] = b"LHstore\0";
const VERSION: u32 = 1;
const FILE_BYTES: usize = 72;
