//! The register: a file in the folder of the gateway's key. It contains the enrolled peers and the
//! open invites.
//!
//! Only the operator changes the configuration file, and only the gateway and its commands change
//! the register. The register adds peers. The configuration determines the servers that these peers
//! may reach.
#![allow(clippy::disallowed_methods, reason = "waits for its lock")]

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use link::PublicKey;
use nix::{libc::O_NOFOLLOW, unistd::geteuid};
use serde::{Deserialize, Serialize};

/// Content of the register file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// This gateway's endpoint in the last invite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Peers in addition to those in the configuration file.
    #[serde(default, rename = "peer", skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<EnrolledPeer>,
    /// Open invites, and invites that were used or expired recently.
    #[serde(default, rename = "invite", skip_serializing_if = "Vec::is_empty")]
    pub invites: Vec<OpenInvite>,
    /// Peers that an operator has removed recently. When such a peer connects, the gateway informs
    /// it of the removal.
    #[serde(default, rename = "dismissed", skip_serializing_if = "Vec::is_empty")]
    pub dismissed: Vec<DismissedPeer>,
}

/// A peer that an operator has removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DismissedPeer {
    /// Public key of the peer.
    #[serde(with = "text")]
    pub public_key: PublicKey,
    /// Time of the removal, in seconds of Unix time.
    pub since_unix_s: u64,
}

/// A peer that was added by an invite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolledPeer {
    /// Name of the peer at this gateway, in logs and in the key `via`.
    pub name: String,
    /// Public key of the peer.
    #[serde(with = "text")]
    pub public_key: PublicKey,
    /// Endpoint of the peer. `None` if only the peer opens the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Servers that this gateway reaches through the peer, written like `serves` in the
    /// configuration. If the list is empty, the peer serves no servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<String>,
    /// Time of the enrolment, in seconds of Unix time.
    pub since_unix_s: u64,
}

/// An invite that this gateway has created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenInvite {
    /// Name for the future peer. With `None`, the peer chooses its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Servers that this gateway reaches through the future peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<String>,
    /// Public key that is derived from the invite's token.
    #[serde(with = "text")]
    pub public_key: PublicKey,
    /// Time at which the invite expires, in seconds of Unix time.
    pub expires_unix_s: u64,
    /// Public key of the gateway that has used the invite.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_text"
    )]
    pub used_by: Option<PublicKey>,
    /// Whether the operator has withdrawn the invite.
    #[serde(default, skip_serializing_if = "is_false")]
    pub withdrawn: bool,
}

/// Reason why a gateway with an invite does not become a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InviteRefusal {
    /// Another gateway has used the invite.
    #[error("the invite was used before, by another gateway: ask for a new one")]
    Used,
    /// The invite has expired.
    #[error("the invite has expired: ask for a new one")]
    Expired,
    /// The gateway that used the invite has since been removed from the peers.
    #[error(
        "this gateway became a peer by this invite, and was removed since: ask for a new invite"
    )]
    Dismissed,
    /// The invite was withdrawn.
    #[error("the invite was withdrawn: ask for a new one")]
    Withdrawn,
    /// The invited gateway has sent the key of the far gateway itself.
    #[error("this is the far gateway's own key: each gateway needs a key of its own")]
    OwnKey,
}

/// Error: too many invites are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{INVITES_MAX} invites are open; \"longhaul peer rm --invites\" withdraws them")]
pub struct TooManyInvites;

/// Error: the register file is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The file system reported an error.
    #[error("{path}")]
    Io {
        /// Path of the register file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The content of the file is invalid.
    #[error("{path}: {message}")]
    Wrong {
        /// Path of the register file.
        path: PathBuf,
        /// The mistake, with its line and column.
        message: String,
    },
}

/// Error: the text of a register is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RegisterTextError(String);

/// Reason why the register was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RegisterChangeError<E> {
    /// The register file is unusable.
    #[error(transparent)]
    File(#[from] RegisterError),
    /// The change itself has failed with this error.
    #[error("{0}")]
    Refused(E),
}

impl Register {
    /// Returns the path of the register that belongs to the gateway with this key file.
    pub fn path(key_file: &Path) -> PathBuf {
        key_file.with_added_extension("peers")
    }

    /// Reads a register. If the file does not exist, returns an empty register.
    ///
    /// # Errors
    /// [`RegisterError`] if the file exists but is unusable.
    pub fn read(path: &Path) -> Result<Self, RegisterError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(io_error(path, source)),
        };
        Self::parse(&text).map_err(|RegisterTextError(message)| RegisterError::Wrong {
            path: path.to_owned(),
            message,
        })
    }

    /// Parses the text of a register.
    ///
    /// # Errors
    /// [`RegisterTextError`] with the line and the column of the mistake.
    pub fn parse(text: &str) -> Result<Self, RegisterTextError> {
        let parsed = toml::from_str::<Self>(text)
            .map_err(|error| RegisterTextError(error.to_string().trim_end().replace('`', "\"")))?;
        #[cfg(fuzz_canary)]
        assert!(
            !parsed.peers.iter().any(|it| it.since_unix_s % 64 == 37),
            "canary: in the reader of registers"
        );
        Ok(parsed)
    }

    /// Returns the register as text, in the form that [`parse`](Self::parse) accepts.
    ///
    /// # Errors
    /// If the number of seconds of a time is too large for an integer of TOML.
    pub fn print(&self) -> io::Result<String> {
        toml::to_string(self).map_err(io::Error::other)
    }

    /// Returns the keys of removed peers, with the times of the removals in seconds of Unix time.
    ///
    /// Another version may have written the text, so the function skips entries that it cannot
    /// read.
    pub fn removals(text: &str) -> Vec<(PublicKey, u64)> {
        let table: toml::Table = toml::from_str(text).unwrap_or_default();
        let entries = table.get("dismissed").and_then(toml::Value::as_array);
        let removals = entries.into_iter().flatten().filter_map(|entry| {
            let key = entry.get("public_key")?.as_str()?.parse().ok()?;
            let since_unix_s = entry.get("since_unix_s")?.as_integer()?;
            Some((key, u64::try_from(since_unix_s).ok()?))
        });
        removals.collect()
    }

    /// Reads the register file, applies `change`, and replaces the file atomically. If another
    /// process is changing the file, waits until that process has finished. Deletes invites that
    /// expired more than a day ago, and removals older than 90 days.
    ///
    /// # Errors
    /// [`RegisterChangeError`] if `change` fails or the file is unusable.
    pub fn change<T, E>(
        path: &Path,
        now_unix_s: u64,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, RegisterChangeError<E>> {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let failed = |source| io_error(path, source);
        let _lock = lock(path).map_err(failed)?;
        let before = Self::read(path)?;
        let mut register = before.clone();
        let done = change(&mut register).map_err(RegisterChangeError::Refused)?;
        register
            .invites
            .retain(|it| it.expires_unix_s + REMEMBERED_S > now_unix_s);
        register
            .dismissed
            .retain(|it| it.since_unix_s + DISMISSED_S > now_unix_s);
        if register != before {
            register.write(path, folder).map_err(failed)?;
        }
        Ok(done)
    }

    /// Adds a gateway to the peers. The gateway has connected with the key `invited` of an invite.
    /// Returns the gateway's name, and whether the gateway is a new peer.
    ///
    /// A gateway that has not received the reply may repeat the request as long as it is a peer.
    /// `of_file` contains the names of the peers in the configuration file. `known` is the name of
    /// the configured peer with the same key, if there is one.
    ///
    /// # Errors
    /// [`InviteRefusal`] if the invite is not valid.
    pub fn enrol(
        &mut self,
        invited: PublicKey,
        (public_key, name): (PublicKey, &str),
        (of_file, known): (&[String], Option<&str>),
        now_unix_s: u64,
    ) -> Result<(String, bool), InviteRefusal> {
        let is_peer = known.is_some() || self.peers.iter().any(|it| it.public_key == public_key);
        let mut invites = self.invites.iter_mut();
        let invite = invites.find(|it| it.public_key == invited);
        let invite = invite.ok_or(InviteRefusal::Withdrawn)?;
        match invite.used_by {
            Some(user) if user != public_key => return Err(InviteRefusal::Used),
            Some(_) if !is_peer => return Err(InviteRefusal::Dismissed),
            _ if invite.withdrawn => return Err(InviteRefusal::Withdrawn),
            Some(_) => {}
            None if now_unix_s >= invite.expires_unix_s => return Err(InviteRefusal::Expired),
            None => invite.used_by = Some(public_key),
        }
        let of_register = self.peers.iter().find(|it| it.public_key == public_key);
        if let Some(name) = known.or(of_register.map(|it| it.name.as_str())) {
            return Ok((name.to_owned(), false));
        }
        let wanted = invite.name.as_deref().unwrap_or(name);
        let is_taken =
            |name: &String| of_file.contains(name) || self.peers.iter().any(|it| it.name == *name);
        let numbered = (2..).map(|number| format!("{wanted}-{number}"));
        let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
        let name = names.find(|it| !is_taken(it));
        let name = name.expect("there are more numbers than peers");
        self.peers.push(EnrolledPeer {
            name: name.clone(),
            public_key,
            endpoint: None,
            serves: invite.serves.clone(),
            since_unix_s: now_unix_s,
        });
        Ok((name, true))
    }

    /// Removes the peers that have this name or one of these keys, and invalidates the invites that
    /// they used. Returns whether a peer was removed.
    pub fn dismiss(&mut self, name: &str, keys: &[PublicKey], now_unix_s: u64) -> bool {
        let goes = |it: &EnrolledPeer| it.name == name || keys.contains(&it.public_key);
        let removed = self.peers.extract_if(.., |it| goes(it));
        let removed: Vec<_> = removed.map(|it| it.public_key).collect();
        for invite in &mut self.invites {
            let is_theirs = |user: PublicKey| removed.contains(&user) || keys.contains(&user);
            invite.withdrawn |= invite.used_by.is_some_and(is_theirs);
        }
        for key in removed.iter().chain(keys) {
            self.dismissed.retain(|it| it.public_key != *key);
            self.dismissed.push(DismissedPeer {
                public_key: *key,
                since_unix_s: now_unix_s,
            });
        }
        let too_many = self.dismissed.len().saturating_sub(DISMISSED_MAX);
        self.dismissed.drain(..too_many);
        !removed.is_empty()
    }

    /// Withdraws all invites. Afterwards, a gateway that has already used an invite cannot repeat
    /// its request.
    pub fn withdraw_invites(&mut self) {
        for invite in &mut self.invites {
            invite.withdrawn = true;
        }
    }

    /// Adds an invite.
    ///
    /// # Errors
    /// [`TooManyInvites`] if [`INVITES_MAX`] invites are already open.
    pub fn invite(&mut self, invite: OpenInvite, now_unix_s: u64) -> Result<(), TooManyInvites> {
        let is_open = |it: &OpenInvite| it.is_open(now_unix_s);
        if self.invites.iter().filter(|it| is_open(it)).count() >= INVITES_MAX {
            return Err(TooManyInvites);
        }
        if self.invites.len() >= 2 * INVITES_MAX {
            self.invites.retain(is_open);
        }
        self.invites.push(invite);
        Ok(())
    }

    /// Reverts the [`enrol`](Self::enrol) of a new peer.
    pub fn withdraw(&mut self, public_key: PublicKey) {
        self.peers.retain(|it| it.public_key != public_key);
        for invite in &mut self.invites {
            invite.used_by.take_if(|it| *it == public_key);
        }
    }

    fn write(&self, path: &Path, folder: &Path) -> io::Result<()> {
        let body = self.print()?;
        let new = path.with_added_extension("new");
        // A process that was killed at this point may have left this file.
        let _ = fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(HEAD.as_bytes())?;
        file.write_all(body.as_bytes())?;
        file.sync_all()?;
        give_to_owner_of_key(&file, path)?;
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    }
}

impl OpenInvite {
    /// Returns a text for people: the name of the future peer, or a note that the peer chooses its
    /// name.
    pub fn peer_name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => "(its own name)".to_owned(),
        }
    }

    /// Whether the invite is unused, not withdrawn and not expired.
    pub fn is_open(&self, now_unix_s: u64) -> bool {
        let is_good = self.used_by.is_none() && !self.withdrawn;
        is_good && now_unix_s < self.expires_unix_s
    }
}

/// Changes the owner of a file to the owner of the gateway's key. A command may run as root when it
/// writes the file. The gateway must still be able to read the file.
fn give_to_owner_of_key(file: &File, path: &Path) -> io::Result<()> {
    if let (true, Ok(key)) = (geteuid().is_root(), fs::metadata(path.with_extension(""))) {
        // The change uses the descriptor: another user may have replaced the file at the path.
        fchown(file, Some(key.uid()), Some(key.gid()))?;
    }
    Ok(())
}

/// Locks the register at `path` against changes by other programs. The lock is on a separate file
/// of mode 0600. Other users cannot open this file, so they cannot lock it.
fn lock(path: &Path) -> io::Result<File> {
    let path = &path.with_added_extension("lock");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW)
        .open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    give_to_owner_of_key(&file, &path.with_extension(""))?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    let message = format!("another program holds a lock of {}", path.display());
    Err(io::Error::new(io::ErrorKind::TimedOut, message))
}

/// Maximum number of attempts to lock the register. A change by another program takes only
/// milliseconds.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

fn io_error(path: &Path, source: io::Error) -> RegisterError {
    RegisterError::Io {
        path: path.to_owned(),
        source,
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Serialises a public key as text.
mod text {
    use link::PublicKey;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(key: &PublicKey, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(key)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(Error::custom)
    }
}

/// Serialises an optional public key as text.
mod optional_text {
    use link::PublicKey;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        key: &Option<PublicKey>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match key {
            Some(key) => super::text::serialize(key, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PublicKey>, D::Error> {
        super::text::deserialize(from).map(Some)
    }
}

/// Maximum number of removed peers in the register. The next constant is the time for which a
/// removed peer remains in the register, in seconds.
const DISMISSED_MAX: usize = 64;
const DISMISSED_S: u64 = 90 * 24 * 3600;

/// Maximum number of open invites.
pub const INVITES_MAX: usize = 8;

/// Time for which an expired invite remains in the register, in seconds. During this time, a
/// gateway that uses the invite gets the reason for the refusal.
const REMEMBERED_S: u64 = 24 * 3600;

const HEAD: &str = "\
# Peers that came by an invite, and the invites that are open. The gateway writes this file, and so does
# longhaul peer add, rm and invite. Peers of the configuration are not in here.
";

#[cfg(test)]
mod tests {
    use link::Identity;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn key(seed: u8) -> PublicKey {
        Identity::from_seed([seed; 32]).public_key()
    }

    fn invite(name: Option<&str>) -> OpenInvite {
        OpenInvite {
            name: name.map(str::to_owned),
            serves: Vec::new(),
            public_key: key(1),
            expires_unix_s: NOW + 60,
            used_by: None,
            withdrawn: false,
        }
    }

    fn register(name: Option<&str>) -> Register {
        Register {
            endpoint: None,
            peers: Vec::new(),
            invites: vec![invite(name)],
            dismissed: Vec::new(),
        }
    }

    #[test]
    fn an_invite_is_good_once_and_in_time() {
        let mut register = register(None);
        let nobody: (&[String], _) = (&[], None);
        let late = register
            .clone()
            .enrol(key(1), (key(2), "a"), nobody, NOW + 60);
        assert_eq!(late, Err(InviteRefusal::Expired));
        let unknown = register.enrol(key(9), (key(2), "a"), nobody, NOW);
        assert_eq!(unknown, Err(InviteRefusal::Withdrawn));
        let first = register.enrol(key(1), (key(2), "a"), nobody, NOW);
        assert_eq!(first, Ok(("a".to_owned(), true)));
        // The reply was lost, and the invite has expired meanwhile.
        let again = register.enrol(key(1), (key(2), "a"), nobody, NOW + 100);
        assert_eq!(again, Ok(("a".to_owned(), false)));
        let other = register.enrol(key(1), (key(3), "b"), nobody, NOW);
        assert_eq!(other, Err(InviteRefusal::Used));
        assert_eq!(register.peers.len(), 1);
        register.withdraw(key(2));
        assert_eq!(register, self::register(None));
        // A gateway that is already a peer also uses up the invite.
        let known = register.enrol(key(1), (key(2), "a"), (&[], Some("oslo")), NOW);
        assert_eq!(known, Ok(("oslo".to_owned(), false)));
        assert_eq!(
            register.enrol(key(1), (key(3), "b"), nobody, NOW),
            Err(InviteRefusal::Used)
        );
    }

    #[test]
    fn invites_have_a_bound_and_ended_ones_make_room() {
        let mut register = Register::default();
        for seed in 0..INVITES_MAX as u8 {
            let invite = OpenInvite {
                public_key: key(seed),
                ..invite(None)
            };
            assert_eq!(register.invite(invite, NOW), Ok(()));
        }
        assert_eq!(register.invite(invite(None), NOW), Err(TooManyInvites));
        register.invites[0].withdrawn = true;
        let withdrawn = register.enrol(key(0), (key(99), "a"), (&[], None), NOW);
        assert_eq!(withdrawn, Err(InviteRefusal::Withdrawn));
        for _ in 0..3 * INVITES_MAX {
            assert_eq!(register.invite(invite(None), NOW), Ok(()));
            register.invites.last_mut().expect("one").withdrawn = true;
        }
        assert!(register.invites.len() <= 2 * INVITES_MAX);
    }

    #[test]
    fn a_used_invite_is_good_only_while_its_user_is_a_peer() {
        let nobody: (&[String], _) = (&[], None);
        let mut register = register(None);
        register.invites[0].serves = vec!["*.example".to_owned()];
        let first = register.enrol(key(1), (key(2), "a"), nobody, NOW);
        assert_eq!(first, Ok(("a".to_owned(), true)));
        assert_eq!(register.peers[0].serves, ["*.example"]);
        let mut removed_by_hand = register.clone();
        removed_by_hand.peers.clear();
        let again = removed_by_hand.enrol(key(1), (key(2), "a"), nobody, NOW);
        assert_eq!(again, Err(InviteRefusal::Dismissed));
        assert!(removed_by_hand.peers.is_empty());
        let mut withdrawn = register.clone();
        withdrawn.withdraw_invites();
        let again = withdrawn.enrol(key(1), (key(2), "a"), nobody, NOW);
        assert_eq!(again, Err(InviteRefusal::Withdrawn));
        assert!(register.dismiss("a", &[], NOW));
        assert!(!register.dismiss("a", &[], NOW), "it is gone");
        let again = register.enrol(key(1), (key(2), "a"), nobody, NOW);
        assert_eq!(again, Err(InviteRefusal::Dismissed));
        // The peer's key is added again, but the invite stays invalid.
        let known = register.enrol(key(1), (key(2), "a"), (&[], Some("a")), NOW);
        assert_eq!(known, Err(InviteRefusal::Withdrawn));
    }

    #[test]
    fn a_lock_on_the_folder_holds_nobody_up_and_the_lock_file_is_private() {
        let folder = std::env::temp_dir().join(format!("longhaul-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("room");
        let held = File::open(&folder).expect("it is there");
        held.lock().expect("nobody else has it");
        let path = Register::path(&folder.join("a.key"));
        let begun = std::time::Instant::now();
        let put = |it: &mut Register| {
            *it = register(None);
            Ok::<_, InviteRefusal>(())
        };
        Register::change(&path, NOW, put).expect("the folder's lock is no matter");
        assert!(begun.elapsed() < LOCK_PAUSE * LOCK_TRIES);
        let lock = fs::metadata(path.with_added_extension("lock")).expect("it is there");
        assert_eq!(lock.mode() & 0o777, 0o600);
        fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        for (wanted, given) in [(None, "a-3"), (Some("oslo"), "oslo")] {
            let mut register = register(wanted);
            register.peers.push(EnrolledPeer {
                name: "a-2".to_owned(),
                public_key: key(5),
                endpoint: None,
                serves: Vec::new(),
                since_unix_s: NOW,
            });
            let enrolled = register.enrol(key(1), (key(2), "a"), (&["a".to_owned()], None), NOW);
            assert_eq!(enrolled, Ok((given.to_owned(), true)));
        }
    }

    #[test]
    fn the_file_is_changed_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("longhaul-register-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("room");
        let path = Register::path(&folder.join("a.key"));
        let _ = fs::remove_file(&path);
        assert_eq!(Register::read(&path).expect("none"), Register::default());
        let put = |it: &mut Register| {
            *it = register(Some("oslo"));
            Ok::<_, InviteRefusal>(())
        };
        Register::change(&path, NOW, put).expect("room");
        assert_eq!(Register::read(&path).expect("read"), register(Some("oslo")));
        let mode = fs::metadata(&path).expect("there").mode() & 0o777;
        assert_eq!(mode, 0o600);
        let refused = Register::change(&path, NOW, |it| {
            it.invites.clear();
            Err::<(), _>(InviteRefusal::Used)
        });
        assert!(matches!(
            refused,
            Err(RegisterChangeError::Refused(InviteRefusal::Used))
        ));
        assert_eq!(Register::read(&path).expect("read"), register(Some("oslo")));
        Register::change(&path, NOW + 100_000, |_| Ok::<_, InviteRefusal>(())).expect("room");
        assert_eq!(Register::read(&path).expect("read"), Register::default());
        fs::write(&path, "[[peer]]\nname = 1\n").expect("room");
        let wrong = Register::read(&path).expect_err("wrong").to_string();
        assert!(
            wrong.contains("a.key.peers") && wrong.contains("line 2"),
            "{wrong}"
        );
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
