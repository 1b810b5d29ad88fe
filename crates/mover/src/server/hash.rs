//! Hashes of files, computed by servers or by this machine.

use std::{io, time::Duration};

use aws_lc_rs::digest;
use ftp::client::{Features, Reply};
use md5::{Digest as _, Md5};

use super::{ServerError, Session};

/// Hash algorithm for comparing files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-1 (FIPS 180-4).
    Sha1,
    /// MD5 (RFC 1321).
    Md5,
}

/// A hash computation in progress.
enum Hasher {
    Sha(digest::Context),
    Md5(Md5),
}

impl Algorithm {
    /// All algorithms in order of preference. SHA-256 is first, because processors have
    /// instructions for it.
    pub const ALL: [Self; 4] = [Self::Sha256, Self::Sha512, Self::Sha1, Self::Md5];

    /// Returns the algorithm's name for the command `HASH` (draft-bryan-ftpext-hash). Also returns
    /// other commands by which some servers compute this hash.
    fn names(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Sha512 => ("SHA-512", &["XSHA512"]),
            Self::Sha256 => ("SHA-256", &["XSHA256"]),
            Self::Sha1 => ("SHA-1", &["XSHA1", "XSHA"]),
            Self::Md5 => ("MD5", &["XMD5", "MD5"]),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Sha512 => 64,
            Self::Sha256 => 32,
            Self::Sha1 => 20,
            Self::Md5 => 16,
        }
    }

    fn hasher(self) -> Hasher {
        match self {
            Self::Sha512 => Hasher::Sha(digest::Context::new(&digest::SHA512)),
            Self::Sha256 => Hasher::Sha(digest::Context::new(&digest::SHA256)),
            Self::Sha1 => Hasher::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Self::Md5 => Hasher::Md5(Md5::new()),
        }
    }

    /// Computes the hash of a local file. `read_at` reads bytes at an offset.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn of_content(
        self,
        mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<Vec<u8>> {
        let (mut hasher, mut at) = (self.hasher(), 0);
        let mut bytes = vec![0; STEP_BYTES];
        loop {
            let count = read_at(&mut bytes, at)?;
            if count == 0 {
                return Ok(hasher.end());
            }
            hasher.add(&bytes[..count]);
            at += count as u64;
        }
    }

    /// Returns the command that computes this hash, or `None` if the server supports no such
    /// command.
    fn asked(self, features: &Features) -> Option<HashCommand> {
        let (name, commands) = self.names();
        let mut hashes = features.hashes.iter();
        if let Some(at) = hashes.position(|it| it.eq_ignore_ascii_case(name)) {
            return Some(HashCommand::Hash {
                name,
                is_chosen: at == 0,
            });
        }
        let has = |command: &&&str| {
            let mut offered = features.hash_commands.iter();
            offered.any(|it| it.eq_ignore_ascii_case(command))
        };
        commands.iter().find(has).map(|it| HashCommand::Command(it))
    }

    /// Searches a reply for words that have the form of this hash. Returns the first such word.
    fn read(self, reply: &Reply) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(reply.text()).ok()?;
        let digits = 2 * self.bytes();
        let is_hash = |it: &&str| it.len() == digits && it.chars().all(|it| it.is_ascii_hexdigit());
        let word = text.split_ascii_whitespace().find(is_hash)?;
        let byte = |at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok();
        (0..digits).step_by(2).map(byte).collect()
    }
}

/// Command that makes a server compute a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HashCommand {
    /// `HASH`, which can compute hashes of several algorithms.
    Hash { name: &'static str, is_chosen: bool },
    /// A command that computes hashes of only one algorithm.
    Command(&'static str),
}

impl Hasher {
    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha(context) => context.update(bytes),
            Self::Md5(md5) => md5.update(bytes),
        }
    }

    fn end(self) -> Vec<u8> {
        match self {
            Self::Sha(context) => context.finish().as_ref().to_vec(),
            Self::Md5(md5) => md5.finalize().to_vec(),
        }
    }
}

impl Session {
    /// Returns whether the server can compute hashes of this algorithm.
    pub fn makes(&self, algorithm: Algorithm) -> bool {
        algorithm.asked(&self.features).is_some()
    }

    /// Returns the hash that the server has computed for a file, or `None` if the server cannot
    /// compute this hash.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, or if the connection is lost.
    pub async fn hash(
        &mut self,
        path: &[u8],
        algorithm: Algorithm,
    ) -> Result<Option<Vec<u8>>, ServerError> {
        let sent = match algorithm.asked(&self.features) {
            None => return Ok(None),
            Some(HashCommand::Command(command)) => self.control.send(command, path)?,
            Some(HashCommand::Hash { name, is_chosen }) => {
                if !is_chosen {
                    let chosen = self
                        .control
                        .ask("OPTS", format!("HASH {name}").as_bytes())
                        .await?;
                    if !chosen.is_completed() {
                        return Ok(None);
                    }
                    let hashes = &mut self.features.hashes;
                    hashes.sort_by_key(|it| !it.eq_ignore_ascii_case(name));
                }
                self.control.send("HASH", path)?
            }
        };
        let reply = self.control.last_within(sent, HASH_TIMEOUT).await?;
        Ok(match reply.is_completed() {
            true => algorithm.read(&reply),
            false => None,
        })
    }
}

const STEP_BYTES: usize = 1024 * 1024;

/// Longest time that a server may need to compute a hash. At 300 MB/s, a server can read 1 TB in
/// this time.
const HASH_TIMEOUT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_hash_that_a_server_makes_is_asked_for_by_its_command() {
        let features = |hashes: &[&str], commands: &[&str]| Features {
            hashes: hashes.iter().map(|it| (*it).to_owned()).collect(),
            hash_commands: commands.iter().map(|it| (*it).to_owned()).collect(),
            ..Features::default()
        };
        let best = |features: &Features| {
            let mut all = Algorithm::ALL.into_iter();
            all.find_map(|it| it.asked(features))
        };
        let name = "SHA-256";
        let is_chosen = false;
        assert_eq!(
            best(&features(&["SHA-1", "SHA-256"], &["XMD5"])),
            Some(HashCommand::Hash { name, is_chosen })
        );
        assert_eq!(
            best(&features(&[], &["XCRC", "XMD5"])),
            Some(HashCommand::Command("XMD5"))
        );
        assert_eq!(best(&features(&["CRC32"], &["XCRC"])), None);
    }

    #[test]
    fn files_have_the_hashes_that_everybody_knows() {
        let read_at = |bytes: &mut [u8], at: u64| {
            let rest = &b"abc"[at as usize..];
            bytes[..rest.len()].copy_from_slice(rest);
            Ok(rest.len())
        };
        let known = [
            (Algorithm::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                Algorithm::Sha256,
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
        ];
        for (algorithm, expected) in known {
            let hash = algorithm.of_content(read_at).expect("it can be read");
            let text: String = hash.iter().map(|it| format!("{it:02x}")).collect();
            assert_eq!(text, expected);
        }
    }
}
