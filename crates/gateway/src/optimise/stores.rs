//! The chunk stores of a gateway: one for each peer, and for each tenant of a peer.
//!
//! What one peer or tenant moves is no other one's business: chunks are neither found nor evicted across stores.

use std::{
    collections::HashMap,
    fmt::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use aws_lc_rs::{digest, rand};
use link::PublicKey;
use optimiser::store::{Fresh, OpenError, Store};
use tracing::{info, warn};
use units::ByteCount;

/// Where chunk stores are, and how large each may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The folder of all of them.
    pub folder: PathBuf,
    /// Most bytes of each on the disk.
    pub size_max: ByteCount,
}

/// All chunk stores of a gateway. One is opened when it is first asked for.
#[derive(Debug)]
pub(crate) struct Stores {
    settings: Settings,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By their folders.
    stores: HashMap<String, Store>,
    /// Those that could not be opened, and when.
    failed: HashMap<String, Instant>,
    is_retired: bool,
}

/// Whose chunks a store has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) peer: &'a str,
    /// Who has another key is another peer, whatever it is called.
    pub(crate) key: &'a PublicKey,
    /// Empty: what belongs to no tenant.
    pub(crate) tenant: &'a str,
}

impl Stores {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            open: Mutex::default(),
        })
    }

    /// The store of `scope`, if it can be opened. Blocks for some file operations the first time.
    pub(crate) fn get(&self, scope: Scope<'_>) -> Option<Store> {
        let name = scope.folder();
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
        let settings = optimiser::store::Settings {
            folder: folder.clone(),
            size_max_bytes: self.settings.size_max.bytes(),
            queue_max_bytes: QUEUE_MAX_BYTES,
            pause: PAUSE,
            seed,
        };
        match Store::open(settings, fresh()) {
            Ok(store) => {
                info!(folder = %folder.display(), "chunk store");
                open.stores.insert(name, store.clone());
                Some(store)
            }
            // The process that this one has replaced lets go of it in a moment.
            Err(OpenError::InUse { .. }) => None,
            Err(error) => {
                open.failed.insert(name, Instant::now());
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                warn!(%error, cause, "no chunk store; nothing is found there");
                None
            }
        }
    }

    /// Another process takes the stores over. What has been referred to can still be read.
    pub(crate) fn retire(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_retired = true;
        for store in open.stores.values() {
            store.retire();
        }
    }
}

impl Scope<'_> {
    /// The name of the folder, by which people may know it: `PEER-KEY` or `PEER-KEY-TENANT`.
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

/// The text with only letters, digits and `_`; all other bytes as `%XX`.
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

fn fresh() -> Fresh {
    let mut fresh = Fresh {
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

/// What waits for the disk. A second of 1 Gbit/s takes 125 MB; what comes faster than the disk writes is not kept.
const QUEUE_MAX_BYTES: usize = 32 * 1024 * 1024;

/// After a file operation that failed: a full disk may have room again.
const PAUSE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_scopes_have_one_folder() {
        let (one, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let folder = |peer, key, tenant| Scope { peer, key, tenant }.folder();
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
}
