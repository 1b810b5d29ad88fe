//! Accounts and passwords: of a netrc file, the environment or a file. Never of the command line, which others see.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use crate::{location::Server, server::Password};

/// An account on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub user: String,
    /// Its password; `None` where nobody has told one.
    pub password: Option<Password>,
}

/// A file with a password cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// It cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no netrc file.
    #[error("{path}, line {line}: {what}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What was expected.
        what: &'static str,
    },
}

/// The passwords that a user has put somewhere.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// For any server that has none in the netrc file.
    pub password: Option<Password>,
    /// Entries of the netrc file in their order.
    pub netrc: Vec<Entry>,
    /// Passwords that somebody was asked for, by server and account.
    pub asked: Vec<(Server, String, Password)>,
}

/// An entry of a netrc file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The host; `None`: any (`default`).
    pub machine: Option<String>,
    /// The account.
    pub login: Option<String>,
    /// Its password.
    pub password: Option<Password>,
}

impl Credentials {
    /// Reads the netrc file at `path`; none is no error.
    ///
    /// # Errors
    /// [`CredentialsError`] if there is one and it cannot be used.
    pub fn read_netrc(&mut self, path: &Path) -> Result<(), CredentialsError> {
        match fs::read_to_string(path) {
            Ok(text) => {
                self.netrc =
                    parse_netrc(&text).map_err(|(line, what)| CredentialsError::Syntax {
                        path: path.to_owned(),
                        line,
                        what,
                    })?;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(CredentialsError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Reads a file whose first line is a password.
    ///
    /// # Errors
    /// [`CredentialsError`] if it cannot be read.
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

    /// The account for a server: the URL's user, else that of the netrc file, else `anonymous`. The password is that of the
    /// netrc file for this account, else the one for all servers.
    pub fn account(&self, server: &Server) -> Account {
        let fits = |entry: &&Entry| {
            // A web server asks for no account, so that none may be given to any.
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
        let is_anonymous = server.user.is_none() && login.is_none();
        let user = server
            .user
            .clone()
            .or(login)
            .unwrap_or_else(|| ANONYMOUS.to_owned());
        // The password for all is for accounts that somebody has named, and not for whoever takes guests.
        let for_all = self.password.clone().filter(|_| !is_anonymous);
        let password = entry.and_then(|it| it.password.clone()).or(for_all);
        let password = match password {
            // By custom an address (RFC 1635); nobody's is given away.
            None if is_anonymous || user == ANONYMOUS => Some(Password::guest()),
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

/// Reads the text of a netrc file: words, of which `machine`, `default`, `login`, `password`, `account` and `macdef` are
/// known.
fn parse_netrc(text: &str) -> Result<Vec<Entry>, (usize, &'static str)> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut words = Vec::new();
    while let Some((at, line)) = lines.next() {
        let line = line.trim();
        // A comment stands for itself: passwords may begin with a hash.
        if line.starts_with('#') {
            continue;
        }
        if line.starts_with("macdef") {
            // A macro ends with an empty line.
            for (_, line) in lines.by_ref() {
                if line.trim().is_empty() {
                    break;
                }
            }
            continue;
        }
        words.extend(line.split_ascii_whitespace().map(|word| (at + 1, word)));
    }
    let mut words = words.into_iter();
    while let Some((line, word)) = words.next() {
        let mut value = |what| {
            words
                .next()
                .map(|(_, word)| word.to_owned())
                .ok_or((line, what))
        };
        match word {
            "machine" => entries.push(Entry {
                machine: Some(value("a host is expected behind \"machine\"")?),
                ..Entry::default()
            }),
            "default" => entries.push(Entry::default()),
            "login" | "password" | "account" => {
                let value =
                    value("a value is expected behind \"login\", \"password\" and \"account\"")?;
                let Some(entry) = entries.last_mut() else {
                    return Err((line, "\"machine\" or \"default\" is expected first"));
                };
                match word {
                    "login" => entry.login = Some(value),
                    "password" => entry.password = Some(Password(value.into_bytes())),
                    _ => {}
                }
            }
            _ => {
                return Err((
                    line,
                    "expected \"machine\", \"default\", \"login\" or \"password\"",
                ));
            }
        }
    }
    Ok(entries)
}

pub const ANONYMOUS: &str = "anonymous";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Scheme;

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
            netrc: parse_netrc(NETRC).expect("a netrc file"),
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
    fn a_wrong_file_names_the_line() {
        let wrong = |text| parse_netrc(text).expect_err("wrong").0;
        assert_eq!(wrong("login x"), 1);
        assert_eq!(wrong("machine a\nlogin"), 2);
        assert_eq!(wrong("machine a\n\nlogn x"), 3);
    }

    #[test]
    fn no_password_is_printed() {
        let entries = parse_netrc(NETRC).expect("a netrc file");
        assert!(!format!("{entries:?}").contains("cret"));
    }
}
