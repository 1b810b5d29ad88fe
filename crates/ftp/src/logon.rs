//! Proxy logons: an account and its server. `USER name@host[:port]` names both. Alternatively
//! `HOST`, `OPEN` or `SITE` names the server, and `USER` the account.
//!
//! The last `@` splits, since account names contain `@`. Without any `@`, a `%` splits instead. The
//! gateway checks whether the host is a valid name or address, and allowed.

/// A parsed proxy logon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logon {
    /// The account on the server, as it is sent there.
    pub user: Vec<u8>,
    /// The server.
    pub server: NamedServer,
}

/// A server as a client writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedServer {
    /// Name or address, without brackets.
    pub host: String,
    /// The port. 21 if the client named none.
    pub port: u16,
}

/// Reason why an argument is no proxy logon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogonError {
    /// An account without a server. The reply requests `name@server`.
    #[error("no server named")]
    NoServer,
    /// The text in place of the server is malformed.
    #[error("malformed server")]
    Malformed,
}

impl Logon {
    /// Reads the argument of `USER`: `name@host`, `name@host:port`, `name@[v6]:port`, `name@host
    /// port`, and the same with `%` for `@`. An account on the gateway may follow after another
    /// space. It is ignored, since the gateway has no accounts.
    ///
    /// # Errors
    /// [`LogonError`] if no server is named, or if the text in its place is malformed.
    pub fn parse(argument: &[u8]) -> Result<Self, LogonError> {
        let split = argument
            .iter()
            .rposition(|&b| b == b'@')
            .or_else(|| argument.iter().rposition(|&b| b == b'%'))
            .ok_or(LogonError::NoServer)?;
        let user = argument[..split].to_vec();
        let server = &argument[split + 1..];
        let server = match server.iter().position(|&b| b == b' ') {
            Some(space) if !server[space + 1..].iter().all(u8::is_ascii_digit) => &server[..space],
            _ => server,
        };
        if user.is_empty() {
            return Err(LogonError::Malformed);
        }
        let server = NamedServer::parse(server)?;
        Ok(Self { user, server })
    }
}

impl NamedServer {
    /// Reads the forms that [`split_port`] does.
    ///
    /// # Errors
    /// [`LogonError`] if no server is named, or if the text in its place is malformed.
    pub fn parse(argument: &[u8]) -> Result<Self, LogonError> {
        let text = std::str::from_utf8(argument)
            .map_err(|_| LogonError::Malformed)?
            .trim_ascii();
        let (host, port) = split_port(text).ok_or(LogonError::Malformed)?;
        if host.is_empty() || host.len() > HOST_MAX {
            return Err(LogonError::Malformed);
        }
        let host = host.to_owned();
        Ok(Self { host, port })
    }
}

/// Reads the forms of [`units::split_port`]. The default port is 21.
pub fn split_port(server: &str) -> Option<(&str, u16)> {
    let (host, port) = units::split_port(server)?;
    Some((host, port.unwrap_or(FTP_PORT)))
}

/// The port of FTP's control connection (RFC 959).
pub const FTP_PORT: u16 = 21;

/// Longest host name (RFC 1123 section 2.1).
const HOST_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<(String, String, u16), LogonError> {
        Logon::parse(text.as_bytes()).map(|l| {
            (
                String::from_utf8_lossy(&l.user).into_owned(),
                l.server.host,
                l.server.port,
            )
        })
    }

    fn is(user: &str, host: &str, port: u16) -> Result<(String, String, u16), LogonError> {
        Ok((user.to_owned(), host.to_owned(), port))
    }

    #[test]
    fn the_last_at_sign_splits() {
        assert_eq!(
            parse("joe@example.com@ftp.example.org"),
            is("joe@example.com", "ftp.example.org", 21)
        );
        assert_eq!(
            parse("anonymous@10.0.0.1:2121"),
            is("anonymous", "10.0.0.1", 2121)
        );
        assert_eq!(parse("joe@10.0.0.1 2121"), is("joe", "10.0.0.1", 2121));
        assert_eq!(
            parse("joe@[2001:db8::1]:2121"),
            is("joe", "2001:db8::1", 2121)
        );
        assert_eq!(parse("joe@[::1]"), is("joe", "::1", 21));
        assert_eq!(parse("joe@2001:db8::1"), is("joe", "2001:db8::1", 21));
        assert_eq!(
            parse("joe%ftp.example.org"),
            is("joe", "ftp.example.org", 21)
        );
        assert_eq!(
            parse("joe@ftp.example.org fwuser"),
            is("joe", "ftp.example.org", 21)
        );
        assert_eq!(
            parse("joe%x@ftp.example.org"),
            is("joe%x", "ftp.example.org", 21)
        );
    }

    #[test]
    fn a_missing_or_malformed_server_is_told_apart() {
        assert_eq!(parse("joe"), Err(LogonError::NoServer));
        for text in [
            "joe@",
            "@host",
            "joe@h:0",
            "joe@h:99999",
            "joe@h:+21",
            "joe@[::1",
            "joe@h:",
        ] {
            assert_eq!(parse(text), Err(LogonError::Malformed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(argument in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(logon) = Logon::parse(&argument) {
                prop_assert!(logon.server.port != 0 && !logon.server.host.is_empty());
            }
        }
    }
}
