//! Location of files: a local path, or a URL of a server.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _, path::PathBuf};

use ftp::{command::escape, logon::split_port};
use percent_encoding::{
    AsciiSet, CONTROLS, percent_decode, percent_decode_str, percent_encode, utf8_percent_encode,
};

use crate::names::last_name;

/// The location of a source or of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path on this machine.
    Local(PathBuf),
    /// A URL of a server.
    Remote(Remote),
}

/// A server and a path on that server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The server.
    pub server: Server,
    /// The path, in the bytes that the server uses. A path without a leading slash is relative to
    /// the login directory. An empty path means that directory.
    pub path: Vec<u8>,
}

/// A server and a user name on that server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// The protocol, and how the protocol uses TLS.
    pub scheme: Scheme,
    /// The user name. If `None`, the user name comes from `.netrc`, or else is `anonymous`.
    pub user: Option<String>,
    /// Host name or IP address. An IPv6 address has no brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `ftp://`: without TLS.
    Ftp,
    /// `ftpes://`: TLS after the command `AUTH TLS`.
    Explicit,
    /// `ftps://`: TLS from the first byte.
    Implicit,
    /// `https://`: a file on a web server. Only a source may have this scheme.
    Https,
    /// `sftp://`: SFTP in an SSH session.
    Sftp,
}

/// An error: the text is not a valid location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// The URL contains a password, which other processes on this machine could see.
    #[error(
        "a URL must not contain a password: use ~/.netrc, LONGHAUL_PASSWORD or --password-file"
    )]
    Password,
    /// The scheme is unknown.
    #[error(
        "{0:?} is no scheme that can be used: ftp, ftps (implicit TLS), ftpes (explicit TLS), sftp, https (as a source)"
    )]
    Scheme(String),
    /// The host is missing, or the port is not valid.
    #[error("{0:?} is no server: expected [USER@]HOST[:PORT]")]
    Server(String),
    /// The path contains a byte that the protocol cannot carry: a line break in FTP, or a zero
    /// byte.
    #[error("the path has a zero byte, or a line break, which only SFTP can carry")]
    Path,
    /// The path of an `https` URL ends in no file name.
    #[error("a URL with https must name a file: nothing is listed there")]
    NoFile,
    /// The text has the form by which scp and rsync name a path on another machine.
    #[error(
        "{written:?} is how scp and rsync name a place on another machine: did you mean {url} or ./{written}"
    )]
    ScpStyle {
        /// The rejected text.
        written: String,
        /// A URL that names the same location.
        url: String,
    },
    /// The text is empty.
    #[error("the location is empty")]
    Empty,
}

impl Location {
    /// Parses a command-line argument. The argument is a URL if it has a scheme, and otherwise a
    /// local path.
    ///
    /// The path of a URL is percent-decoded. The path is relative to the login directory. If the
    /// path begins with a second slash, as in `ftp://host//srv/files`, it begins at the server's
    /// root.
    ///
    /// # Errors
    /// [`LocationError`] if the text is empty, or if it has the form of a URL and is not valid.
    pub fn parse(text: &OsStr) -> Result<Self, LocationError> {
        if text.is_empty() {
            return Err(LocationError::Empty);
        }
        match text.to_str().and_then(split_scheme) {
            Some((scheme, rest)) => Ok(Self::Remote(parse_remote(scheme, rest)?)),
            None => Ok(Self::Local(PathBuf::from(text))),
        }
    }

    /// Parses the location of a source.
    ///
    /// The form `[USER@]HOST:PATH` of scp and rsync is refused, unless this machine has a file of
    /// that name. Such a name can result from a pattern that the shell has expanded. A text with a
    /// user and an absolute path is always refused.
    ///
    /// # Errors
    /// The errors of [`Location::parse`], and [`LocationError::ScpStyle`].
    pub fn parse_source(text: &OsStr) -> Result<Self, LocationError> {
        let location = Self::parse(text)?;
        let style = scp_style(text).filter(|it| match &location {
            Self::Local(path) => it.is_certain || path.symlink_metadata().is_err(),
            Self::Remote(_) => false,
        });
        style.map_or(Ok(location), |it| Err(it.refusal(text)))
    }

    /// Parses the location of a destination. The form `[USER@]HOST:PATH` of scp and rsync is
    /// refused. Otherwise the mover would create a local folder with that name.
    ///
    /// # Errors
    /// The errors of [`Location::parse`], and [`LocationError::ScpStyle`].
    pub fn parse_destination(text: &OsStr) -> Result<Self, LocationError> {
        match (Self::parse(text)?, scp_style(text)) {
            (Self::Local(_), Some(style)) => Err(style.refusal(text)),
            (location, _) => Ok(location),
        }
    }

    /// Returns the server. Returns `None` for a local path.
    pub fn server(&self) -> Option<&Server> {
        match self {
            Self::Local(_) => None,
            Self::Remote(remote) => Some(&remote.server),
        }
    }

    /// Returns the last name of the path, or an empty name if the path has no name.
    pub fn name(&self) -> Vec<u8> {
        match self {
            Self::Remote(remote) if remote.server.scheme == Scheme::Https => web_name(&remote.path),
            _ => last_name(&self.path()),
        }
    }

    /// Returns the path as bytes. The result does not contain the server.
    pub fn path(&self) -> Vec<u8> {
        match self {
            Self::Local(path) => path.as_os_str().as_bytes().to_vec(),
            Self::Remote(remote) => remote.path.clone(),
        }
    }
}

impl Scheme {
    /// Returns whether the protocol is FTP.
    pub fn is_ftp(self) -> bool {
        !matches!(self, Self::Https | Self::Sftp)
    }

    /// Returns whether the protocol is HTTP. A web server can only be a source, and provides no
    /// listings.
    pub fn is_web(self) -> bool {
        self == Self::Https
    }
}

impl Server {
    /// Returns the same server without a user name.
    pub(crate) fn without_user(&self) -> Self {
        Self {
            user: None,
            ..self.clone()
        }
    }

    /// Returns the host and the port, for display.
    pub(crate) fn place(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Returns the default port of a scheme. The default applies to a URL that contains no port.
    fn default_port(scheme: Scheme) -> u16 {
        match scheme {
            Scheme::Ftp | Scheme::Explicit => 21,
            Scheme::Implicit => 990,
            Scheme::Https => 443,
            Scheme::Sftp => 22,
        }
    }
}

/// Components of a text of the form `[USER@]HOST:PATH`.
struct ScpStyle<'a> {
    user: Option<&'a [u8]>,
    host: &'a [u8],
    path: &'a [u8],
    /// Whether the text certainly has the scp form, because it contains a user name and an absolute
    /// path.
    is_certain: bool,
}

/// Splits a text that has the scp form, in which a colon precedes the first slash. If only one
/// letter precedes the colon, the letter names a drive, and the text does not have the scp form.
fn scp_style(text: &OsStr) -> Option<ScpStyle<'_>> {
    let bytes = text.as_bytes();
    let slash = bytes.iter().position(|it| *it == b'/');
    let front = &bytes[..slash.unwrap_or(bytes.len())];
    let at = front.iter().position(|it| *it == b'@');
    let host_start = at.map_or(0, |it| it + 1);
    let is_bracketed = bytes.get(host_start) == Some(&b'[');
    let colon = match is_bracketed {
        true => front.windows(2).position(|it| it == b"]:")? + 1,
        false => host_start + front[host_start..].iter().position(|it| *it == b':')?,
    };
    let host = bytes.get(host_start..colon)?;
    let is_host = |it: &u8| it.is_ascii_alphanumeric() || b"-._[]:%".contains(it);
    let is_long_enough = host.len() > 1 || (at.is_some() && !host.is_empty());
    let path = &bytes[colon + 1..];
    (is_long_enough && host.iter().all(is_host)).then(|| ScpStyle {
        user: at.map(|it| &bytes[..it]),
        host,
        path,
        is_certain: at.is_some() && path.starts_with(b"/"),
    })
}

impl ScpStyle<'_> {
    fn refusal(&self, text: &OsStr) -> LocationError {
        let user = self.user.filter(|it| !it.is_empty()).map(|it| {
            // A password is left out, since a log may show this text.
            let user = it.split(|byte| *byte == b':').next().unwrap_or_default();
            format!("{}@", percent_encode(user, IN_USER))
        });
        let user = user.unwrap_or_default();
        let host = String::from_utf8_lossy(self.host);
        // A double colon stands before a module of rsync.
        let path = self.path.strip_prefix(b":").unwrap_or(self.path);
        let path = path.strip_prefix(b"~/").unwrap_or(path);
        let first = path.split(|it| *it == b'/').next().unwrap_or_default();
        let port = std::str::from_utf8(first).ok();
        let port = port.and_then(|it| it.parse::<u16>().ok().filter(|_| path.len() > it.len()));
        let path = percent_encode(path, IN_PATH);
        let url = match port {
            Some(_) => format!("sftp://{user}{host}:{path}"),
            None => format!("sftp://{user}{host}/{path}"),
        };
        LocationError::ScpStyle {
            written: escape(text.as_bytes()),
            url,
        }
    }
}

/// Returns the scheme in lower case, and the text after `://`. A single letter before `://` is a
/// drive letter and not a scheme.
fn split_scheme(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|it: char| it.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it));
    is_scheme.then(|| (scheme.to_ascii_lowercase(), rest))
}

fn parse_remote(scheme: String, rest: &str) -> Result<Remote, LocationError> {
    let scheme = match scheme.as_str() {
        "ftp" => Scheme::Ftp,
        "ftpes" => Scheme::Explicit,
        "ftps" => Scheme::Implicit,
        "https" => Scheme::Https,
        "sftp" => Scheme::Sftp,
        _ => return Err(LocationError::Scheme(scheme)),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if user.is_some_and(|it| it.contains(':')) {
        return Err(LocationError::Password);
    }
    let no_server = || LocationError::Server(host.to_owned());
    let user = user
        .filter(|it| !it.is_empty())
        .map(|it| percent_decode_str(it).decode_utf8())
        .transpose()
        .map_err(|_| no_server())?;
    let is_named = !host.ends_with(':') && !host.contains(' ');
    let (name, port) = split_port(host)
        .filter(|_| is_named)
        .ok_or_else(no_server)?;
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(front, _)| !front.contains(':') || front.ends_with(']'));
    if name.is_empty() || port == 0 {
        return Err(no_server());
    }
    let path = match scheme {
        Scheme::Https => web_path(path)?,
        _ => percent_decode_str(path).collect(),
    };
    let is_line_break = |it: u8| scheme != Scheme::Sftp && matches!(it, b'\r' | b'\n');
    if path.iter().any(|it| *it == 0 || is_line_break(*it)) {
        return Err(LocationError::Path);
    }
    let server = Server {
        scheme,
        user: user.map(Into::into),
        host: name.to_owned(),
        port: if has_port {
            port
        } else {
            Server::default_port(scheme)
        },
    };
    Ok(Remote { server, path })
}

/// Returns the path and the query of a file on a web server. The result stays percent-encoded,
/// because only the server interprets it.
fn web_path(path: &str) -> Result<Vec<u8>, LocationError> {
    let path = path.split_once('#').map_or(path, |(front, _)| front);
    let name = path.split_once('?').map_or(path, |(front, _)| front);
    let last: Vec<u8> =
        percent_decode(name.rsplit('/').next().unwrap_or_default().as_bytes()).collect();
    if matches!(last.as_slice(), b"" | b"." | b"..") {
        return Err(LocationError::NoFile);
    }
    Ok(utf8_percent_encode(path, IN_WEB_PATH)
        .to_string()
        .into_bytes())
}

/// Returns the local name for a file that is downloaded from a web server's path.
fn web_name(path: &[u8]) -> Vec<u8> {
    let path = path.split(|it| *it == b'?').next().unwrap_or_default();
    let name: Vec<u8> = percent_decode(&last_name(path)).collect();
    let is_name = !name.iter().any(|it| matches!(it, b'/' | b'\r' | b'\n' | 0));
    match is_name && !matches!(name.as_slice(), b"" | b"." | b"..") {
        true => name,
        false => last_name(path),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => f.write_str(&escape(path.as_os_str().as_bytes())),
            Self::Remote(remote) => remote.fmt(f),
        }
    }
}

/// Writes the URL. [`Location::parse`] accepts the result.
impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server.scheme {
            Scheme::Https => write!(f, "{}/{}", self.server, String::from_utf8_lossy(&self.path)),
            _ => write!(f, "{}/{}", self.server, percent_encode(&self.path, IN_PATH)),
        }
    }
}

/// Writes the URL without a path.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Ftp => "ftp",
            Scheme::Explicit => "ftpes",
            Scheme::Implicit => "ftps",
            Scheme::Https => "https",
            Scheme::Sftp => "sftp",
        };
        write!(f, "{scheme}://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", percent_encode(user.as_bytes(), IN_USER))?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if self.port != Self::default_port(self.scheme) {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// Characters that must be percent-encoded in a path. A shell or a URL parser would misread them.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'"').add(b'\\');

/// Characters that must be percent-encoded in a user name.
const IN_USER: &AsciiSet = &IN_PATH.add(b':').add(b'/').add(b'@');

/// Characters that must be percent-encoded in the path of a web URL. The percent sign is not
/// included, because it begins an encoded character.
const IN_WEB_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_web_server_names_a_file_and_stays_as_it_is() {
        let url = "https://host.example:8443/a%20b/film%201.mov?token=a%2Fb&x=/y";
        let location = parse(&format!("{url}#part")).expect("a location");
        assert_eq!(location.to_string(), url);
        assert_eq!(location.name(), b"film 1.mov");
        let name = |url| parse(url).expect("a location").name();
        assert_eq!(name("https://host/a%2Fb"), b"a%2Fb");
        let path = parse("https://host/a b\u{e4}\r\n")
            .expect("a location")
            .path();
        assert_eq!(path, b"a%20b%C3%A4%0D%0A");
        for url in [
            "https://host",
            "https://host/",
            "https://host/a/",
            "https://host/?x",
            "https://host/x/..",
            "https://host/x/%2e%2E",
        ] {
            assert_eq!(parse(url), Err(LocationError::NoFile), "{url}");
        }
    }

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(text))
    }

    fn remote(text: &str) -> Remote {
        match parse(text) {
            Ok(Location::Remote(remote)) => remote,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn urls_are_read_and_written() {
        let plain = remote("ftp://host/a/b%20c");
        assert_eq!(plain.server.scheme, Scheme::Ftp);
        assert_eq!(
            (plain.server.host.as_str(), plain.server.port),
            ("host", 21)
        );
        assert_eq!(plain.path, b"a/b c");
        assert_eq!(remote("ftps://host").server.port, 990);
        assert_eq!(remote("ftpes://host").server.port, 21);
        assert_eq!(remote("sftp://host").server.port, 22);
        assert_eq!(remote("sftp://host/a%0d%0a%ff").path, b"a\r\n\xff");
        let full = remote("FTPES://me%40home@[::1]:2121//srv/caf%E9");
        assert_eq!(full.server.user.as_deref(), Some("me@home"));
        assert_eq!((full.server.host.as_str(), full.server.port), ("::1", 2121));
        assert_eq!(full.path, b"/srv/caf\xe9");
        for text in [
            "ftp://host/a/b%20c",
            "ftps://host/",
            "ftps://host:21/x",
            "ftpes://me%40home@[::1]:2121//srv/caf%E9",
            "sftp://me@host//srv/a%0D%0A",
            "sftp://host:2222/x",
        ] {
            assert_eq!(remote(text).to_string(), text);
        }
    }

    #[test]
    fn what_has_no_scheme_is_a_path() {
        for text in ["/srv/files", "a b", "./ftp:/x", "C:/x", "host:21/path"] {
            assert_eq!(parse(text), Ok(Location::Local(PathBuf::from(text))));
        }
    }

    #[test]
    fn a_place_of_scp_is_refused_and_its_url_is_suggested() {
        for (text, url) in [
            (
                "me@ftp.example.com:/takes",
                "sftp://me@ftp.example.com//takes",
            ),
            ("ftp.example.com:takes", "sftp://ftp.example.com/takes"),
            ("ftp.example.com:", "sftp://ftp.example.com/"),
            ("me@host:~/takes 1", "sftp://me@host/takes%201"),
            ("host::module/x", "sftp://host/module/x"),
            ("127.0.0.1:2121/d", "sftp://127.0.0.1:2121/d"),
            ("[::1]:/d", "sftp://[::1]//d"),
            ("me@[::1]:d", "sftp://me@[::1]/d"),
            ("m@h:d", "sftp://m@h/d"),
        ] {
            for parse in [Location::parse_source, Location::parse_destination] {
                let refused = parse(OsStr::new(text)).expect_err(text).to_string();
                let words = format!("did you mean {url} or ./{text}");
                assert!(refused.contains(&words), "{text}: {refused}");
            }
        }
        for text in [
            "C:/x",
            "./me@host:/x",
            "/a:b",
            "a/b:c",
            "my film: part 1",
            ":x",
            "a@b",
            "ftp://host/a:b",
        ] {
            Location::parse_source(OsStr::new(text)).expect(text);
            Location::parse_destination(OsStr::new(text)).expect(text);
        }
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong() {
        assert_eq!(
            parse("ftp://me:secret@host/x"),
            Err(LocationError::Password)
        );
        let scheme = LocationError::Scheme("scp".to_owned());
        assert_eq!(parse("scp://host/x"), Err(scheme));
        for text in [
            "ftp:///x",
            "ftp://host:/x",
            "ftp://host:0/x",
            "ftp://host:70000/x",
            "ftp://a b/x",
        ] {
            assert!(
                matches!(parse(text), Err(LocationError::Server(_))),
                "{text}"
            );
        }
        assert_eq!(
            parse("ftp://host/a%0d%0aDELE%20b"),
            Err(LocationError::Path)
        );
        assert_eq!(parse("sftp://host/a%00"), Err(LocationError::Path));
        assert_eq!(parse(""), Err(LocationError::Empty));
    }
}
