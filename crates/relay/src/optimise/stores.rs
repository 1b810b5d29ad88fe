//! Chunk stores of a gateway. Each peer has its own store, and so has each tenant of a peer.
//!
//! A peer or tenant must not detect which files another peer or tenant has moved. The gateway
//! therefore searches and evicts chunks only within one store.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use aws_lc_rs::{digest, rand};
use link::PublicKey;
use optimiser::store::{ClearError, IdentitySeed, Store, StoreCounts, StoreOpenError};
use tracing::{info, warn};
use units::ByteCount;

/// Folder of the chunk stores, and the maximum size of each store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoresSettings {
    /// Folder that contains one folder for each store.
    pub folder: PathBuf,
    /// Maximum size of each store on the disk.
    pub size_max: ByteCount,
}

/// All chunk stores of a gateway. The gateway opens a store at its first use.
#[derive(Debug)]
pub struct Stores {
    settings: StoresSettings,
    open: Mutex<OpenStores>,
}

#[derive(Debug, Default)]
struct OpenStores {
    /// Open stores, by folder name.
    stores: BTreeMap<String, Store>,
    /// For each store that could not be opened, the time of the latest attempt.
    failed: BTreeMap<String, Instant>,
    is_retired: bool,
}

/// Name of a store's folder. The name identifies the owner of the chunks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreName {
    /// Name of the folder.
    pub folder: String,
    /// Name of the peer.
    pub peer: String,
    /// Name of the tenant. Empty for chunks that belong to no tenant.
    pub tenant: String,
}

/// Owner of the chunks in a store: a peer, or a tenant of a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkOwner<'a> {
    pub(crate) peer: &'a str,
    /// Public key of the peer. If the key changes, the peer counts as a different peer, even under
    /// the same name.
    pub(crate) key: &'a PublicKey,
    /// Name of the tenant. Empty for chunks that belong to no tenant.
    pub(crate) tenant: &'a str,
}

impl Stores {
    /// Creates the stores. Also creates their folder, if its parent folder exists. If the folder
    /// cannot be used, the function logs the reason, and the gateway works without stores.
    pub(crate) fn new(settings: StoresSettings) -> Arc<Self> {
        let mut builder = fs::DirBuilder::new();
        let made = match fs::metadata(&settings.folder) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(_) => builder.mode(0o700).create(&settings.folder),
        };
        if let Err(error) = made {
            let folder = settings.folder.display();
            warn!(%folder, %error, "the folder of the chunk stores cannot be used; files move without deduplication until it can");
        }
        Arc::new(Self {
            settings,
            open: Mutex::default(),
        })
    }

    /// Returns the store of `owner`. Returns `None` if the store cannot be opened. The first call
    /// for a store blocks during file operations.
    pub(crate) fn get(&self, owner: ChunkOwner<'_>) -> Option<Store> {
        let name = owner.folder();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.stores.get(&name) {
            return Some(store.clone());
        }
        let is_hopeless = |failed: &Instant| failed.elapsed() < PAUSE;
        if open.is_retired || open.failed.get(&name).is_some_and(is_hopeless) {
            return None;
        }
        let folder = self.settings.folder.join(&name);
        let mut seed = [0; 16];
        fill(&mut seed);
        let settings = optimiser::store::StoreSettings {
            folder: folder.clone(),
            size_max_bytes: self.settings.size_max.bytes(),
            queue_max_bytes: QUEUE_MAX_BYTES,
            pause: PAUSE,
            seed,
        };
        match Store::open(settings, fresh()) {
            Ok(store) => {
                info!(folder = %folder.display(), "chunk store");
                open.failed.remove(&name);
                open.stores.insert(name, store.clone());
                Some(store)
            }
            // The replaced process releases the store in a moment.
            Err(StoreOpenError::InUse { .. }) => None,
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                // Repeated attempts are logged only once.
                if open.failed.insert(name, Instant::now()).is_none() {
                    warn!(%error, cause, "no chunk store; files move without deduplication until it can be opened");
                }
                None
            }
        }
    }

    /// Returns the name and the counts of each open store. If a store accepts no new chunks, the
    /// last value is the reason.
    pub(crate) fn counts(&self) -> Vec<(StoreName, StoreCounts, Option<String>)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let stores = open.stores.iter();
        stores
            .filter_map(|(folder, store)| {
                Some((StoreName::parse(folder)?, store.counts(), store.trouble()))
            })
            .collect()
    }

    /// Returns the maximum size of each store on the disk.
    pub(crate) fn size_max(&self) -> ByteCount {
        self.settings.size_max
    }

    /// Removes all chunks from the open store with this folder name. Returns `None` if no such
    /// store is open. Blocks while files are removed.
    ///
    /// # Errors
    /// [`ClearError`] if the chunks cannot be removed. The store is then unchanged.
    pub fn clear(&self, folder: &str) -> Option<Result<(), ClearError>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let store = open.stores.get(folder)?.clone();
        drop(open);
        Some(store.clear(fresh()))
    }

    /// Releases the stores for another process. This process can still read chunks that it has
    /// referenced.
    pub fn retire(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_retired = true;
        for store in open.stores.values() {
            store.retire();
        }
    }
}

impl ChunkOwner<'_> {
    /// Returns the name of the store's folder, in a readable format: `PEER-KEY` or
    /// `PEER-KEY-TENANT`.
    fn folder(&self) -> String {
        let key = digest::digest(&digest::SHA256, &self.key.0);
        let key = &key.as_ref()[..8];
        let mut name = escaped(self.peer);
        name.push('-');
        for byte in key {
            let _ = write!(name, "{byte:02x}");
        }
        if !self.tenant.is_empty() {
            name.push('-');
            name += &escaped(self.tenant);
        }
        name
    }
}

impl StoreName {
    /// Parses the name of a folder. Returns `None` if the folder does not belong to a store.
    pub fn parse(folder: &str) -> Option<Self> {
        let mut parts = folder.split('-');
        let (peer, key, tenant) = (parts.next()?, parts.next()?, parts.next());
        let is_key = key.len() == 16 && key.bytes().all(|it| it.is_ascii_hexdigit());
        if !is_key || parts.next().is_some() || tenant == Some("") {
            return None;
        }
        Some(Self {
            folder: folder.to_owned(),
            peer: unescaped(peer)?,
            tenant: unescaped(tenant.unwrap_or_default())?,
        })
    }

    /// Returns the names of all stores in `folder`, sorted.
    ///
    /// # Errors
    /// An error of the system if the folder cannot be read.
    pub fn all_in(folder: &Path) -> io::Result<Vec<Self>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                let name = entry.file_name().into_string().ok();
                names.extend(name.as_deref().and_then(Self::parse));
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Escapes a text for a folder name. Letters, digits and `_` are unchanged. All other bytes become
/// `%XX`.
fn escaped(text: &str) -> String {
    let mut name = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            name.push(byte.into());
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// Reverses [`escaped`]. Returns `None` if `name` is not an escaped text.
fn unescaped(name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _ => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (escaped(&text) == name).then_some(text)
}

fn fresh() -> IdentitySeed {
    let mut fresh = IdentitySeed {
        id: [0; 16],
        secret: [0; 32],
    };
    fill(&mut fresh.id);
    fill(&mut fresh.secret);
    fresh
}

fn fill(bytes: &mut [u8]) {
    rand::fill(bytes).expect("the system's randomness works");
}

/// Maximum number of bytes that wait to be written to the disk. At 1 Gbit/s, 125 MB arrive per
/// second. If this queue is full because the disk is slow, the gateway does not store further
/// chunks.
const QUEUE_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Pause between a failed file operation and the next attempt. A full disk may have free space
/// again by then.
const PAUSE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_owners_have_one_folder() {
        let (one, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let folder = |peer, key, tenant| ChunkOwner { peer, key, tenant }.folder();
        let names = [
            folder("a", &one, ""),
            folder("a", &other, ""),
            folder("a", &one, "b"),
            folder("a-b", &one, ""),
            folder("../a", &one, ""),
            folder("a", &one, "../b"),
            folder(".", &one, "."),
            folder("A%2D", &one, ""),
            folder("A-", &one, ""),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
            assert!(!name.contains(['/', '.']), "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_missing_is_made_and_one_that_cannot_be_comes_back_later() {
        let all = std::env::temp_dir().join(format!("longhaul-stores-{}", std::process::id()));
        fs::create_dir(&all).expect("room");
        let at = |folder: &str| {
            Stores::new(StoresSettings {
                folder: all.join(folder),
                size_max: ByteCount::mebibytes(64),
            })
        };
        let key = PublicKey([1; 32]);
        let owner = || ChunkOwner {
            peer: "oslo",
            key: &key,
            tenant: "",
        };
        let stores = at("store");
        assert!(all.join("store").is_dir());
        assert!(stores.get(owner()).is_some());
        let stores = at("disk/store");
        assert!(stores.get(owner()).is_none());
        assert!(!all.join("disk").exists());
        fs::create_dir(all.join("disk")).expect("room");
        let mut open = stores.open.lock().expect("no panic");
        // Simulates the end of the pause.
        for failed in open.failed.values_mut() {
            *failed = failed
                .checked_sub(PAUSE)
                .expect("the machine runs for longer");
        }
        drop(open);
        assert!(stores.get(owner()).is_some());
        drop(stores);
        fs::remove_dir_all(&all).expect("it is ours");
    }

    #[test]
    fn the_name_of_a_folder_says_whose_it_is() {
        let key = PublicKey([1; 32]);
        for (peer, tenant) in [("oslo", ""), ("site-b/ü", "a_b"), ("%2D", "-"), ("..", ".")] {
            let owner = ChunkOwner {
                peer,
                key: &key,
                tenant,
            };
            let name = StoreName::parse(&owner.folder()).expect("it is one");
            assert_eq!((&*name.peer, &*name.tenant), (peer, tenant));
        }
        for other in [
            "",
            "oslo",
            "oslo-1234",
            "oslo-0123456789abcdeg",
            "oslo-0123456789abcdef-",
            "oslo-0123456789abcdef-a-b",
            "os.lo-0123456789abcdef",
            "os%2dlo-0123456789abcdef",
            "os%2-0123456789abcdef",
            "%FF-0123456789abcdef",
        ] {
            assert_eq!(StoreName::parse(other), None, "{other}");
        }
    }
}
