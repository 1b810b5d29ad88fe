//! Features of a server: the reply to `FEAT` (RFC 2389).

use super::Reply;

/// Features of a server beyond RFC 959. The default value has no features. It stands for a server
/// without `FEAT`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Whether the server supports `MLSD` and `MLST` (RFC 3659): listings in a format for programs.
    pub machine_listings: bool,
    /// Whether the server supports `SIZE`, which returns the size of a file.
    pub size: bool,
    /// Whether the server supports `MDTM`, which returns the modification time of a file.
    pub modified: bool,
    /// Whether the server supports `MFMT`, which sets the modification time of a file.
    pub set_modified: bool,
    /// Whether the server supports `REST STREAM`, which starts a transfer at an offset.
    pub restart: bool,
    /// Whether file names are UTF-8 (RFC 2640).
    pub utf8: bool,
    /// Whether the server supports `EPSV`.
    pub extended_passive: bool,
    /// Whether the server supports `AUTH TLS`.
    pub auth_tls: bool,
    /// Names of the hash algorithms for `HASH`, in the server's spelling. The first element is the
    /// algorithm that the server has selected. The server marks this algorithm with `*`.
    pub hashes: Vec<String>,
    /// Commands that return a hash of a file: `XSHA256`, `XSHA1`, `XMD5`, `XCRC`, and similar ones.
    pub hash_commands: Vec<String>,
}

impl Features {
    /// Parses the reply to `FEAT`. A refusal yields no features.
    pub fn from_reply(reply: &Reply) -> Self {
        let mut features = Self::default();
        if !reply.is_completed() {
            return features;
        }
        // The first and the last line are not features.
        for line in reply.lines() {
            let Some(line) = line.strip_prefix(b" ") else {
                continue;
            };
            features.read(&String::from_utf8_lossy(line));
        }
        features
    }

    fn read(&mut self, line: &str) {
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word.to_ascii_uppercase().as_str() {
            // A line "MLST" with a list of facts announces MLST and MLSD (RFC 3659 section 7.8).
            // Some servers list "MLSD" alone.
            "MLST" | "MLSD" => self.machine_listings = true,
            "SIZE" => self.size = true,
            "MDTM" => self.modified = true,
            "MFMT" => self.set_modified = true,
            "REST" => self.restart |= rest.eq_ignore_ascii_case("STREAM"),
            "UTF8" => self.utf8 = true,
            "EPSV" => self.extended_passive = true,
            "AUTH" => {
                let mut methods = rest.split([' ', ';']);
                self.auth_tls |= methods.any(|it| it.eq_ignore_ascii_case("TLS"));
            }
            "HASH" => {
                let names = rest.split(';').filter(|it| !it.is_empty());
                let mut names: Vec<&str> = names.collect();
                names.sort_by_key(|it| !it.ends_with('*'));
                self.hashes = names
                    .iter()
                    .map(|it| it.trim_end_matches('*').to_ascii_uppercase())
                    .collect();
            }
            command if HASH_COMMANDS.contains(&command) => {
                self.hash_commands.push(command.to_owned());
            }
            _ => {}
        }
    }
}

const HASH_COMMANDS: [&str; 7] = ["XSHA512", "XSHA256", "XSHA1", "XSHA", "XMD5", "MD5", "XCRC"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::FtpClient;

    fn features(reply: &str) -> Features {
        let mut client = FtpClient::default();
        client.receive(reply.as_bytes());
        let answer = client.next_reply().expect("a reply").expect("a whole one");
        Features::from_reply(&answer.reply)
    }

    #[test]
    fn features_of_real_servers_are_read() {
        let proftpd = "211-Features:\r\n AUTH TLS\r\n CCC\r\n CLNT\r\n EPRT\r\n EPSV\r\n HASH CRC32;MD5;SHA-1;SHA-256*;SHA-512;\r\n HOST\r\n LANG en-US.UTF-8*\r\n MDTM\r\n MFF modify;UNIX.group;UNIX.mode;\r\n MFMT\r\n MLST modify*;perm*;size*;type*;unique*;UNIX.group*;UNIX.mode*;UNIX.owner*;\r\n PBSZ\r\n PROT\r\n REST STREAM\r\n SIZE\r\n SSCN\r\n TVFS\r\n UTF8\r\n XCRC\r\n XMD5\r\n211 End\r\n";
        let found = features(proftpd);
        assert!(found.machine_listings && found.size && found.modified && found.set_modified);
        assert!(found.restart && found.utf8 && found.extended_passive && found.auth_tls);
        assert_eq!(
            found.hashes,
            ["SHA-256", "CRC32", "MD5", "SHA-1", "SHA-512"]
        );
        assert_eq!(found.hash_commands, ["XCRC", "XMD5"]);

        let vsftpd = "211-Features:\r\n EPRT\r\n EPSV\r\n MDTM\r\n PASV\r\n REST STREAM\r\n SIZE\r\n TVFS\r\n211 End\r\n";
        let found = features(vsftpd);
        assert!(!found.machine_listings && !found.set_modified && found.modified && found.restart);
    }

    #[test]
    fn a_server_without_feat_has_no_features() {
        assert_eq!(features("500 what?\r\n"), Features::default());
        assert_eq!(features("211 no features\r\n"), Features::default());
    }
}
