//! Host keys of servers in the format of OpenSSH (sshd(8), section "SSH_KNOWN_HOSTS FILE FORMAT").

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use aws_lc_rs::hmac;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use net::target::{Host, HostPort};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use russh::keys::{PublicKey, key::parse_public_key};

/// Entries of a file for one server.
#[derive(Debug, Default)]
pub(crate) struct ServerKeys {
    /// Known keys, each with the number of its line.
    known: Vec<(usize, PublicKey)>,
    /// Revoked keys, each with the number of its line.
    revoked: Vec<(usize, PublicKey)>,
}

/// Result of the check of a host key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The file contains the key.
    Known,
    /// The file contains no key of the server.
    Unknown,
    /// The file contains other keys of the server. The first one is in this line.
    Changed(usize),
    /// This line revokes the key.
    Revoked(usize),
}

impl ServerKeys {
    /// Reads the entries for `server`. A missing file has no entries.
    ///
    /// # Errors
    /// The error of a system call, or an error for a file that is too large.
    pub(crate) fn read(path: &Path, server: &HostPort) -> io::Result<Self> {
        match File::open(path) {
            Ok(file) => Ok(Self::parse(&read_all(&file)?, server)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Returns the entries for `server` in the content of a file. The function ignores invalid
    /// lines, as OpenSSH does.
    pub(crate) fn parse(content: &str, server: &HostPort) -> Self {
        let name = entry_name(server);
        let mut keys = Self::default();
        for (index, line) in content.lines().enumerate() {
            let mut fields = line.split_ascii_whitespace();
            let Some(first) = fields.next().filter(|it| !it.starts_with('#')) else {
                continue;
            };
            let (list, patterns) = match first {
                "@revoked" => (&mut keys.revoked, fields.next()),
                // Other markers, such as @cert-authority, do not name a host key.
                _ if first.starts_with('@') => continue,
                _ => (&mut keys.known, Some(first)),
            };
            let (Some(patterns), Some(_), Some(key)) = (patterns, fields.next(), fields.next())
            else {
                continue;
            };
            if !matches(patterns, &name) {
                continue;
            }
            let key = BASE64_STANDARD.decode(key).ok();
            if let Some(key) = key.and_then(|it| parse_public_key(&it).ok()) {
                list.push((index + 1, key));
            }
        }
        keys
    }

    /// Checks a host key.
    pub(crate) fn check(&self, key: &PublicKey) -> Verdict {
        let line_of = |list: &[(usize, PublicKey)]| {
            let mut entries = list.iter();
            let entry = entries.find(|(_, it)| it.key_data() == key.key_data());
            entry.map(|(line, _)| *line)
        };
        match (line_of(&self.revoked), line_of(&self.known)) {
            (Some(line), _) => Verdict::Revoked(line),
            (None, Some(_)) => Verdict::Known,
            (None, None) => match self.known.first() {
                Some((line, _)) => Verdict::Changed(*line),
                None => Verdict::Unknown,
            },
        }
    }

    /// Adds the known keys of another file.
    pub(crate) fn add_known(&mut self, other: &Self) {
        self.known.extend(other.known.iter().cloned());
    }

    /// Returns the known keys of the server.
    pub(crate) fn known(&self) -> impl Iterator<Item = &PublicKey> {
        self.known.iter().map(|(_, key)| key)
    }
}

/// Appends the key of a server to a file that does not contain the key yet. Existing entries stay
/// unchanged. If another session has added an entry for the server in the meantime, the function
/// appends nothing. The function then returns the verdict that follows from that entry.
///
/// The file must not be a link. The reason is that `setup` appends as root, and the folder may
/// belong to the gateway's user.
///
/// # Errors
/// The error of a system call, or an error for a link or for a file that is too large.
pub(crate) fn append(path: &Path, server: &HostPort, key: &PublicKey) -> io::Result<Verdict> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o644);
    options.custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let mut file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() != 1 {
        return Err(io::Error::other(
            "not a file, or a file with several hard links",
        ));
    }
    // Another session or process may append at the same time.
    file.lock()?;
    let content = read_all(&file)?;
    let verdict = ServerKeys::parse(&content, server).check(key);
    if verdict != Verdict::Unknown {
        return Ok(verdict);
    }
    let separator = match content.is_empty() || content.ends_with('\n') {
        true => "",
        false => "\n",
    };
    let line = format!("{separator}{}\n", entry(server, key));
    file.seek(SeekFrom::End(0))?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    Ok(Verdict::Known)
}

/// Returns the line of a file for a key of `server`.
pub(crate) fn entry(server: &HostPort, key: &PublicKey) -> String {
    let mut key = key.clone();
    key.set_comment("");
    let key = key.to_openssh().expect("a public key has a text form");
    format!("{} {}", entry_name(server), key.trim_end())
}

/// Returns the name of a server in the file.
fn entry_name(server: &HostPort) -> String {
    let host = match &server.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    match server.port {
        22 => host,
        port => format!("[{host}]:{port}"),
    }
}

/// Whether a list of patterns matches the name of a server. A negated pattern that matches excludes
/// the server.
fn matches(patterns: &str, name: &str) -> bool {
    let mut has_match = false;
    for pattern in patterns.split(',') {
        if let Some(hashed) = pattern.strip_prefix("|1|") {
            has_match |= matches_hash(hashed, name);
        } else if let Some(negated) = pattern.strip_prefix('!') {
            if matches_wildcards(negated.as_bytes(), name.as_bytes()) {
                return false;
            }
        } else {
            has_match |= matches_wildcards(pattern.as_bytes(), name.as_bytes());
        }
    }
    has_match
}

/// Whether the HMAC of the name with the salt is the stored hash. Both are in base64.
fn matches_hash(hashed: &str, name: &str) -> bool {
    let decode = |text: &str| BASE64_STANDARD.decode(text).ok();
    let Some((salt, hash)) = hashed.split_once('|') else {
        return false;
    };
    let (Some(salt), Some(hash)) = (decode(salt), decode(hash)) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    hmac::verify(&key, name.as_bytes(), &hash).is_ok()
}

/// Whether a pattern with `*` and `?` matches a name. The comparison ignores case.
///
/// The loop remembers only the last `*`, so its time is bounded by the product of both lengths.
pub fn matches_wildcards(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || byte.eq_ignore_ascii_case(&name[in_name]) => {
                at += 1;
                in_name += 1;
            }
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (at, in_name) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

fn read_all(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(io::Error::other("the file has more than 16 MiB"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Maximum length of the file in bytes.
const FILE_MAX: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const OTHER: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G2sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";

    fn key(text: &str) -> PublicKey {
        let bytes = BASE64_STANDARD.decode(text).expect("base64");
        parse_public_key(&bytes).expect("a key")
    }

    fn server(host: &str, port: u16) -> HostPort {
        let host = Host::parse(host).expect("a host");
        HostPort { host, port }
    }

    fn check(content: &str, host: &str, port: u16) -> Verdict {
        ServerKeys::parse(content, &server(host, port)).check(&key(KEY))
    }

    #[test]
    fn plain_entries_match_names_addresses_and_ports() {
        let content = format!(
            "# a comment\n\nfiles.example,10.0.0.5 ssh-ed25519 {KEY} comment\n\
             [files.example]:2222 ssh-ed25519 {OTHER}\n*.internal,!bad.internal ssh-ed25519 {KEY}\n"
        );
        assert_eq!(check(&content, "files.example", 22), Verdict::Known);
        assert_eq!(check(&content, "10.0.0.5", 22), Verdict::Known);
        assert_eq!(check(&content, "files.example", 2222), Verdict::Changed(4));
        assert_eq!(check(&content, "10.0.0.5", 2222), Verdict::Unknown);
        assert_eq!(check(&content, "a.internal", 22), Verdict::Known);
        assert_eq!(check(&content, "bad.internal", 22), Verdict::Unknown);
        assert_eq!(check("", "files.example", 22), Verdict::Unknown);
    }

    #[test]
    fn hashed_entries_match_the_hashed_name() {
        let salt = [7; 20];
        let of = |name: &str| {
            let hmac_key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
            let hash = hmac::sign(&hmac_key, name.as_bytes());
            let [salt, hash] = [&salt[..], hash.as_ref()].map(|it| BASE64_STANDARD.encode(it));
            format!("|1|{salt}|{hash} ssh-ed25519 {KEY}\n")
        };
        assert_eq!(
            check(&of("files.example"), "files.example", 22),
            Verdict::Known
        );
        assert_eq!(
            check(&of("files.example"), "other.example", 22),
            Verdict::Unknown
        );
        let with_port = of("[files.example]:2222");
        assert_eq!(check(&with_port, "files.example", 2222), Verdict::Known);
        let known = "|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= ssh-ed25519 \
                     AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";
        assert_eq!(check(known, "example.com", 22), Verdict::Changed(1));
    }

    #[test]
    fn a_revoked_key_is_refused_even_if_another_line_contains_it() {
        let content = format!("files.example ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {KEY}\n");
        assert_eq!(check(&content, "files.example", 22), Verdict::Revoked(2));
        let authority = format!("@cert-authority * ssh-ed25519 {KEY}\n");
        assert_eq!(check(&authority, "files.example", 22), Verdict::Unknown);
    }

    #[test]
    fn an_append_keeps_all_lines_and_never_replaces_a_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("known_hosts");
        let first = format!("a.example ssh-ed25519 {OTHER}");
        std::fs::write(&path, &first).expect("written");
        let server = server("files.example", 2222);
        assert_eq!(
            append(&path, &server, &key(KEY)).expect("appended"),
            Verdict::Known
        );
        let content = std::fs::read_to_string(&path).expect("a file");
        let expected = format!("{first}\n[files.example]:2222 ssh-ed25519 {KEY}\n");
        assert_eq!(content, expected);
        let verdict = append(&path, &server, &key(OTHER)).expect("read");
        assert_eq!(verdict, Verdict::Changed(2));
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), expected);
    }

    #[test]
    fn an_append_follows_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let [target, soft, hard] = ["target", "soft", "hard"].map(|it| folder.path().join(it));
        let server = server("files.example", 22);
        std::os::unix::fs::symlink(&target, &soft).expect("a link");
        append(&soft, &server, &key(KEY)).expect_err("a link");
        assert!(!target.exists());
        std::fs::write(&target, "text\n").expect("written");
        std::fs::hard_link(&target, &hard).expect("a link");
        append(&soft, &server, &key(KEY)).expect_err("a link");
        append(&hard, &server, &key(KEY)).expect_err("a link");
        assert_eq!(std::fs::read_to_string(&target).expect("a file"), "text\n");
    }

    #[test]
    fn an_append_waits_for_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("known_hosts");
        let server = server("files.example", 22);
        let mut other = File::create(&path).expect("a file");
        other.lock().expect("locked");
        let (appended, result) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| appended.send(append(&path, &server, &key(KEY))));
            let early = result.recv_timeout(Duration::from_millis(50));
            assert!(early.is_err(), "{early:?}");
            let line = format!("{}\n", entry(&server, &key(OTHER)));
            other.write_all(line.as_bytes()).expect("written");
            other.unlock().expect("unlocked");
            let verdict = result.recv().expect("a result").expect("read");
            assert_eq!(verdict, Verdict::Changed(1));
        });
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "*a".repeat(200);
        assert!(!matches_wildcards(
            pattern.as_bytes(),
            "a".repeat(199).as_bytes()
        ));
        assert!(matches_wildcards(
            pattern.as_bytes(),
            "a".repeat(200).as_bytes()
        ));
    }
}
