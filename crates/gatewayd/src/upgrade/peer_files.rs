//! Removed peers, as an old process reads them from the gateway's files.
//!
//! After an upgrade, the new process informs the old process of removed peers (see
//! `older_processes`). If the new process ends, the old process has no channel to any later
//! process. It then reads the configuration file and the register. Each removal of a peer is
//! written to these files first.
//!
//! The old process may be unable to read a configuration file of a newer version. It then applies
//! only the removals in the register.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use link::PublicKey;
use tokio::{task::spawn_blocking, time::interval};
use tracing::{info, warn};

use super::older_processes::keys_of;
use crate::{
    config::{Config, ConfigError},
    register::Register,
};

/// Function that reads the configuration file.
type LoadConfig = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// The configuration file and the register, which determine the peers.
pub(crate) struct PeerFiles {
    load: LoadConfig,
    register: PathBuf,
    /// Removals that were in the register before this process was replaced. The values are Unix
    /// times in seconds.
    known_removals: HashMap<PublicKey, u64>,
    /// The keys of all peers in the previous reading.
    last_keys: Option<HashSet<PublicKey>>,
}

/// The keys that one reading of the files has found.
#[derive(Debug)]
struct KeyReading {
    /// Keys of all peers. `None` if the configuration file is invalid for this process.
    keys: Option<HashSet<PublicKey>>,
    removed: Vec<(PublicKey, u64)>,
}

impl PeerFiles {
    /// Creates the value for a gateway that is being replaced. Reads the present removals from the
    /// register.
    pub(crate) fn new(load: LoadConfig, register: PathBuf) -> Self {
        let known_removals = removals(&register).into_iter().collect();
        Self {
            load,
            register,
            known_removals,
            last_keys: None,
        }
    }

    /// Reads the files once a second. After each reading, calls `keep` with a function that returns
    /// whether a key may stay. Never returns.
    pub(crate) async fn follow(mut self, mut keep: impl FnMut(&dyn Fn(&PublicKey) -> bool)) {
        info!("peers that are removed are found in the configuration and the register from now on");
        let mut ticks = interval(READ_EVERY);
        let mut is_readable = true;
        loop {
            ticks.tick().await;
            let (load, register) = (self.load.clone(), self.register.clone());
            let reading = spawn_blocking(move || read(&load, &register)).await;
            let reading = reading.expect("reading does not panic");
            if is_readable && reading.keys.is_none() {
                warn!("the configuration cannot be read here: only the register's removals count");
            }
            is_readable = reading.keys.is_some();
            self.apply_reading(reading, &mut keep);
        }
    }

    /// Applies one reading of the files. A key counts as removed if two successive readings are
    /// equal and lack the key. One reading is not enough, because an editor may be writing the
    /// file. A removal in the register applies immediately.
    fn apply_reading(
        &mut self,
        reading: KeyReading,
        keep: &mut impl FnMut(&dyn Fn(&PublicKey) -> bool),
    ) {
        let is_stable = reading.keys.is_some() && reading.keys == self.last_keys;
        let keys = reading.keys.as_ref();
        let removed = reading.removed.iter();
        let removed = removed.filter(|(key, since_unix_s)| {
            // If an operator has added a key again by hand, the register still contains the removal
            // of that key.
            let is_added = keys.is_some_and(|it| it.contains(key));
            !is_added && self.known_removals.get(key) != Some(since_unix_s)
        });
        let removed: HashSet<_> = removed.map(|(key, _)| *key).collect();
        let listed = keys.filter(|_| is_stable);
        keep(&|key| !removed.contains(key) && listed.is_none_or(|it| it.contains(key)));
        self.last_keys = reading.keys;
    }
}

fn read(load: &LoadConfig, register: &Path) -> KeyReading {
    let config = load();
    KeyReading {
        keys: config.ok().map(|it| keys_of(&it).into_iter().collect()),
        removed: removals(register),
    }
}

/// Returns the removals in the register. If the register is missing or unreadable, returns none.
fn removals(register: &Path) -> Vec<(PublicKey, u64)> {
    let text = fs::read_to_string(register).unwrap_or_default();
    Register::removals(&text)
}

/// Interval between two readings of the files.
const READ_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> PublicKey {
        PublicKey([seed; 32])
    }

    fn unreadable() -> LoadConfig {
        Arc::new(|| Config::parse("[newer]\n", Path::new("gateway.toml")))
    }

    /// Applies a reading. Returns which of the keys 1 to 3 may stay.
    fn kept(files: &mut PeerFiles, keys: Option<&[u8]>, removed: &[(u8, u64)]) -> Vec<u8> {
        let mut kept = Vec::new();
        let reading = KeyReading {
            keys: keys.map(|it| it.iter().map(|seed| key(*seed)).collect()),
            removed: removed.iter().map(|(seed, at)| (key(*seed), *at)).collect(),
        };
        files.apply_reading(reading, &mut |may_stay: &dyn Fn(&PublicKey) -> bool| {
            kept = (1..=3).filter(|seed| may_stay(&key(*seed))).collect();
        });
        kept
    }

    #[test]
    fn a_removed_key_goes_at_once_and_a_missing_one_at_the_second_reading() {
        let mut files = PeerFiles::new(unreadable(), PathBuf::from("/proc/no.peers"));
        assert_eq!(kept(&mut files, Some(&[1, 2, 3]), &[]), [1, 2, 3]);
        assert_eq!(kept(&mut files, Some(&[1, 3]), &[]), [1, 2, 3]);
        assert_eq!(kept(&mut files, Some(&[1, 3]), &[]), [1, 3]);
        assert_eq!(kept(&mut files, Some(&[1]), &[(3, 7)]), [1, 2]);
        assert_eq!(kept(&mut files, Some(&[1, 3]), &[(3, 7)]), [1, 2, 3]);
    }

    #[test]
    fn removals_count_where_the_configuration_is_of_another_version() {
        let mut files = PeerFiles::new(unreadable(), PathBuf::from("/proc/no.peers"));
        files.known_removals.insert(key(1), 5);
        assert_eq!(kept(&mut files, None, &[(1, 5)]), [1, 2, 3]);
        assert_eq!(kept(&mut files, None, &[(1, 6), (2, 6)]), [3]);
        assert_eq!(kept(&mut files, None, &[]), [1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_files_are_read_again_and_again() {
        let folder = std::env::temp_dir().join(format!("longhaul-orphan-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("room");
        let path = folder.join("a.key.peers");
        let files = PeerFiles::new(unreadable(), path.clone());
        // A field and a section of another version are ignored.
        let text = format!(
            "newer = 1\n[[dismissed]]\npublic_key = \"{}\"\nsince_unix_s = 9\nby = \"root\"\n[[dismissed]]\nodd = 1\n",
            key(2)
        );
        fs::write(&path, text).expect("room");
        let mut readings = 0;
        let (done, is_done) = tokio::sync::oneshot::channel();
        let mut done = Some(done);
        let following = files.follow(|may_stay| {
            assert!(may_stay(&key(1)) && !may_stay(&key(2)));
            readings += 1;
            if readings == 3 {
                let _ = done.take().map(|it| it.send(()));
            }
        });
        tokio::select! {
            () = following => unreachable!("it goes on"),
            read = is_done => read.expect("three readings"),
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
