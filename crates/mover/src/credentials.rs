//! User names and passwords from a netrc file, the environment or a password file. Passwords are
//! never read from the command line, because other users can see the command line.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use crate::{
    location::{Scheme, Server},
    server::Password,
};

/// An account on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user name.
    pub user: String,
    /// The password. `None` if no source contains a password for the user.
    pub password: Option<Password>,
}

/// An error: a file with passwords cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The file system's error.
        #[source]
        source: io::Error,
    },
}

/// Passwords from all sources: the netrc file, the environment, a password file and the user.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The common password of all named accounts that have no password in the netrc file.
    pub password: Option<Password>,
    /// Entries of the netrc file, in the order of the file.
    pub netrc: Vec<NetrcEntry>,
    /// Passwords that the user has typed, with their servers and user names.
    pub asked: Vec<(Server, String, Password)>,
}

/// An entry of a netrc file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetrcEntry {
    /// The host. `None` means any FTP server (the keyword `default`).
    pub machine: Option<String>,
    /// The user name.
    pub login: Option<String>,
    /// The password of the user.
    pub password: Option<Password>,
}

impl Credentials {
    /// Reads the netrc file at `path`. If the file does not exist, the function returns `Ok`.
    ///
    /// # Errors
    /// [`CredentialsError`] if the file exists and cannot be read.
    pub fn read_netrc(&mut self, path: &Path) -> Result<(), CredentialsError> {
        match fs::read(path) {
            Ok(text) => {
                self.netrc = parse_netrc(&text);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(CredentialsError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Reads a password from the first line of a file.
    ///
    /// # Errors
    /// [`CredentialsError`] if the file cannot be read.
    pub fn read_password(&mut self, path: &Path) -> Result<(), CredentialsError> {
        let bytes = fs::read(path).map_err(|source| CredentialsError::Read {
            path: path.to_owned(),
            source,
        })?;
        let line = bytes.split(|it| *it == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.password = Some(Password(line.to_vec()));
        Ok(())
    }

    /// Returns the account for a server. The user name comes from the URL, or else from the netrc
    /// file. If neither contains a user name, the user is `anonymous`.
    ///
    /// The password comes from the netrc file's entry for this user. Without such a password, a
    /// named user receives the password for all servers, and a guest (`anonymous` or `ftp`)
    /// receives the guest password. SFTP servers have no guests. A guest in the URL counts as a
    /// named user. If a named user still has no password, the password that was typed for this
    /// server and user is returned.
    pub fn account(&self, server: &Server) -> Account {
        let fits = |entry: &&NetrcEntry| {
            // A web server requires no account, and an SSH server takes keys. A `default` entry
            // must not give them an account.
            let is_host = match &entry.machine {
                Some(machine) => machine.eq_ignore_ascii_case(&server.host),
                None => server.scheme.is_ftp(),
            };
            let is_user = match (&server.user, &entry.login) {
                (Some(user), Some(login)) => user == login,
                _ => true,
            };
            is_host && is_user
        };
        let entry = self.netrc.iter().find(fits);
        let login = entry.and_then(|it| it.login.clone());
        let user = server
            .user
            .clone()
            .or(login)
            .unwrap_or_else(|| ANONYMOUS.to_owned());
        let is_guest = match server.scheme {
            Scheme::Sftp => false,
            Scheme::Https => user == ANONYMOUS,
            _ => user == ANONYMOUS || user == FTP_GUEST,
        };
        // The password for all servers applies to named accounts. It applies to a guest's account
        // only if the URL names this account.
        let for_all = self.password.clone();
        let for_all = for_all.filter(|_| !is_guest || server.user.is_some());
        let password = entry.and_then(|it| it.password.clone()).or(for_all);
        let password = match password {
            // Guests usually send an address as their password (RFC 1635). The mover discloses no
            // real address.
            None if is_guest => Some(Password::guest()),
            password => password,
        };
        let asked = || {
            let mut asked = self.asked.iter();
            let found = asked.find(|(at, account, _)| at == server && *account == user);
            found.map(|(_, _, password)| password.clone())
        };
        Account {
            password: password.or_else(asked),
            user,
        }
    }
}

/// Parses the text of a netrc file as curl and ftp do.
///
/// The parser evaluates `machine`, `default`, `login`, `password`, `account` and `macdef`. The
/// parser skips unknown words, because other programs use words of their own in the file.
fn parse_netrc(text: &[u8]) -> Vec<NetrcEntry> {
    let mut entries: Vec<NetrcEntry> = Vec::new();
    // The key whose value is still missing. The value may stand on the next line.
    let mut waiting: Option<NetrcKey> = None;
    let mut is_macro = false;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|it| *it == b'\n') {
        let line = line.trim_ascii();
        if is_macro {
            // A macro ends with an empty line.
            is_macro = !line.is_empty();
            continue;
        }
        // A hash starts a comment only at the beginning of a line, because a password may also
        // begin with a hash.
        if line.starts_with(b"#") {
            continue;
        }
        for word in words(line) {
            if let Some(key) = waiting.take() {
                key.set(word, &mut entries);
                continue;
            }
            waiting = match word.as_slice() {
                b"machine" => Some(NetrcKey::Machine),
                b"login" => Some(NetrcKey::Login),
                b"password" => Some(NetrcKey::Password),
                b"account" => Some(NetrcKey::Account),
                b"default" => {
                    entries.push(NetrcEntry::default());
                    None
                }
                b"macdef" => {
                    is_macro = true;
                    break;
                }
                _ => None,
            };
        }
    }
    entries
}

/// A key of a netrc file.
enum NetrcKey {
    Machine,
    Login,
    Password,
    Account,
}

impl NetrcKey {
    /// Stores the value in the last entry. A value before the first entry belongs to no host and is
    /// ignored.
    fn set(&self, value: Vec<u8>, entries: &mut Vec<NetrcEntry>) {
        let text = || String::from_utf8_lossy(&value).into_owned();
        match (self, entries.last_mut()) {
            (Self::Machine, _) => entries.push(NetrcEntry {
                machine: Some(text()),
                ..NetrcEntry::default()
            }),
            (Self::Login, Some(entry)) => entry.login = Some(text()),
            (Self::Password, Some(entry)) => entry.password = Some(Password(value)),
            (Self::Account, _) | (_, None) => {}
        }
    }
}

/// Splits a line into words. A word in double quotes may contain blanks. Inside the quotes, a
/// backslash escapes a quote or a backslash. A quote without a closing quote is an ordinary
/// character.
fn words(line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let quoted = rest.strip_prefix(b"\"").and_then(quoted_word);
        let (word, behind) = quoted.unwrap_or_else(|| {
            let end = rest.iter().position(u8::is_ascii_whitespace);
            let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
            (word.to_vec(), behind)
        });
        words.push(word);
        rest = behind.trim_ascii_start();
    }
    words
}

/// Returns the word up to the closing quote, and the remaining text of the line. Returns `None` if
/// the text contains no closing quote.
fn quoted_word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((word, &text[at + 1..])),
            b'\\' => word.push(match bytes.next()?.1 {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                other => *other,
            }),
            _ => word.push(*byte),
        }
    }
    None
}

/// User name for logging in without an account (RFC 1635).
pub const ANONYMOUS: &str = "anonymous";

/// Second user name that many FTP servers accept for guests.
const FTP_GUEST: &str = "ftp";

#[cfg(test)]
mod tests {
    use super::*;

    const NETRC: &str = "\
# mine
machine one.example login me password se#cret
machine two.example
  login you
  password other
macdef init
  put x
  password none

default login guest password any
";

    fn server(user: Option<&str>, host: &str) -> Server {
        Server {
            scheme: Scheme::Ftp,
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port: 21,
        }
    }

    fn account(credentials: &Credentials, user: Option<&str>, host: &str) -> (String, String) {
        let account = credentials.account(&server(user, host));
        let password = account.password.map(|it| it.0).unwrap_or_default();
        (account.user, String::from_utf8(password).expect("text"))
    }

    #[test]
    fn an_account_comes_from_url_and_netrc() {
        let credentials = Credentials {
            password: Some(Password(b"for all".to_vec())),
            netrc: parse_netrc(NETRC.as_bytes()),
            ..Credentials::default()
        };
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        assert_eq!(
            account(&credentials, None, "ONE.example"),
            pair("me", "se#cret")
        );
        assert_eq!(
            account(&credentials, Some("you"), "two.example"),
            pair("you", "other")
        );
        assert_eq!(
            account(&credentials, Some("x"), "two.example"),
            pair("x", "for all")
        );
        assert_eq!(account(&credentials, None, "three"), pair("guest", "any"));
        let none = Credentials::default();
        assert_eq!(
            account(&none, None, "three"),
            pair("anonymous", "longhaul@")
        );
        assert_eq!(none.account(&server(Some("me"), "three")).password, None);
    }

    #[test]
    fn guests_have_the_guest_password_in_place_of_the_password_for_all() {
        let netrc = b"machine one.example login ftp\nmachine two.example login anonymous";
        let mut credentials = Credentials {
            netrc: parse_netrc(netrc),
            ..Credentials::default()
        };
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        for user in ["ftp", "anonymous"] {
            assert_eq!(
                account(&credentials, Some(user), "h"),
                pair(user, "longhaul@")
            );
        }
        credentials.password = Some(Password(b"for all".to_vec()));
        for (host, user) in [
            ("one.example", "ftp"),
            ("two.example", "anonymous"),
            ("three.example", "anonymous"),
        ] {
            assert_eq!(account(&credentials, None, host), pair(user, "longhaul@"));
        }
        // The URL names the guest's account, so the given password applies to this account.
        assert_eq!(
            account(&credentials, Some("ftp"), "one.example"),
            pair("ftp", "for all")
        );
    }

    #[test]
    fn an_sftp_server_has_no_guests_and_no_default_account() {
        let credentials = Credentials {
            password: Some(Password(b"for all".to_vec())),
            netrc: parse_netrc(NETRC.as_bytes()),
            ..Credentials::default()
        };
        let account = |user: &str, host: &str| {
            let account = credentials.account(&Server {
                scheme: Scheme::Sftp,
                port: 22,
                ..server(Some(user), host)
            });
            account.password.map(|it| it.0)
        };
        assert_eq!(account("me", "one.example"), Some(b"se#cret".to_vec()));
        for user in ["ftp", "anonymous", "me"] {
            assert_eq!(account(user, "three"), Some(b"for all".to_vec()));
        }
        let none = Credentials::default();
        let guest = Server {
            scheme: Scheme::Sftp,
            ..server(Some("anonymous"), "three")
        };
        assert_eq!(none.account(&guest).password, None);
    }

    #[test]
    fn an_empty_first_line_of_a_password_file_is_an_empty_password() {
        let folder = tempfile::tempdir().expect("room");
        let file = folder.path().join("password");
        let mut credentials = Credentials::default();
        for text in ["", "\n", "\r\nsecond\n"] {
            fs::write(&file, text).expect("room");
            credentials.read_password(&file).expect("it is readable");
            let account = credentials.account(&server(Some("me"), "h"));
            assert_eq!(account.password, Some(Password(Vec::new())), "{text:?}");
        }
    }

    #[test]
    fn words_of_other_programs_and_quoted_passwords_are_read_as_curl_does() {
        let netrc = br#"
login nobody
machine api.heroku.example
  login me@example.com
  password 0123-4567
  method interactive
machine git.example login u password p port 443 protocol https
machine work.example login u password p # of work
machine quoted.example login "the user" password "super \"secret\\ word"
machine open.example login u password "half
machine macro.example login u password x macdef init
  machine trap.example password y

machine last.example login u password
"next line"
"#;
        let mut netrc = netrc.to_vec();
        netrc.extend_from_slice(b"\nmachine bytes.example login u password caf\xe9\r\n");
        netrc.extend_from_slice(b"machine cut.example login");
        let credentials = Credentials {
            netrc: parse_netrc(&netrc),
            ..Credentials::default()
        };
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        for (host, user, password) in [
            ("api.heroku.example", "me@example.com", "0123-4567"),
            ("git.example", "u", "p"),
            ("quoted.example", "the user", "super \"secret\\ word"),
            ("open.example", "u", "\"half"),
            ("macro.example", "u", "x"),
            ("trap.example", "anonymous", "longhaul@"),
            ("last.example", "u", "next line"),
        ] {
            assert_eq!(account(&credentials, None, host), pair(user, password));
        }
        let bytes = credentials.account(&server(None, "bytes.example")).password;
        assert_eq!(bytes.map(|it| it.0), Some(b"caf\xe9".to_vec()));
    }

    #[test]
    fn no_password_is_printed() {
        let entries = parse_netrc(NETRC.as_bytes());
        assert!(!format!("{entries:?}").contains("cret"));
    }
}
