//! Proxy logons. A proxy logon names an account and the server of the account. `USER
//! name@host[:port]` names the account and the server. Alternatively, `HOST`, `OPEN` or `SITE`
//! names the server, and `USER` names the account.
//!
//! The last `@` separates account and server, because account names may contain `@`. If the text
//! contains no `@`, the last `%` separates them. The gateway then checks that the host is a valid
//! name or address, and that the host is allowed.

/// A parsed proxy logon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logon {
    /// Account on the server. The gateway sends this text to the server.
    pub user: Vec<u8>,
    /// Server that the client named.
    pub server: NamedServer,
}

/// Host and port of a server, as the client wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedServer {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// Port of the server. The value is 21 if the client gave no port.
    pub port: u16,
}

/// Reason why an argument is not a valid proxy logon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogonError {
    /// The argument contains an account but no server. The gateway's reply asks for `name@server`.
    #[error("no server named")]
    NoServer,
    /// The text after the separator is not a valid server.
    #[error("malformed server")]
    Malformed,
}

impl Logon {
    /// Parses the argument of `USER`. The formats are `name@host`, `name@host:port`,
    /// `name@[v6]:port` and `name@host port`. The separator `%` may replace `@`. A space and an
    /// account on the gateway may follow each format. The gateway has no accounts and ignores that
    /// text.
    ///
    /// # Errors
    /// [`LogonError`] if the argument names no server, or if the server is malformed.
    pub fn parse(argument: &[u8]) -> Result<Self, LogonError> {
        let split = argument
            .iter()
            .rposition(|&b| b == b'@')
            .or_else(|| argument.iter().rposition(|&b| b == b'%'))
            .ok_or(LogonError::NoServer)?;
        let user = argument[..split].to_vec();
        let server = &argument[split + 1..];
        let server = without_account(server);
        if user.is_empty() {
            return Err(LogonError::Malformed);
        }
        let server = NamedServer::parse(server)?;
        Ok(Self { user, server })
    }
}

/// Returns the host and the port, without the text that follows them. If a host without a port is
/// followed by a space and a number, the number is the port.
fn without_account(server: &[u8]) -> &[u8] {
    let Some(space) = server.iter().position(|&b| b == b' ') else {
        return server;
    };
    let (host, rest) = server.split_at(space);
    let has_port = std::str::from_utf8(host)
        .ok()
        .and_then(units::split_port)
        .is_some_and(|(_, port)| port.is_some());
    let word = rest.trim_ascii_start();
    let start = server.len() - word.len();
    let digits = word.iter().take_while(|it| it.is_ascii_digit()).count();
    let is_number = digits > 0 && word.get(digits).is_none_or(|&b| b == b' ');
    match is_number && !has_port {
        true => &server[..start + digits],
        false => host,
    }
}

impl NamedServer {
    /// Parses a host with an optional port, in the formats of [`split_port`].
    ///
    /// # Errors
    /// [`LogonError`] if the server is malformed.
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

/// Splits `server` into host and port, in the formats of [`units::split_port`]. Without a port, the
/// function returns port 21.
pub fn split_port(server: &str) -> Option<(&str, u16)> {
    let (host, port) = units::split_port(server)?;
    Some((host, port.unwrap_or(FTP_PORT)))
}

/// Port of FTP's control connection (RFC 959).
pub const FTP_PORT: u16 = 21;

/// Maximum length of a host name (RFC 1123 section 2.1).
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
        for account in ["fwuser", "99", "fw user", "2x"] {
            for host in ["10.0.0.1:2121", "10.0.0.1 2121", "10.0.0.1  2121"] {
                let text = format!("joe@{host} {account}");
                assert_eq!(parse(&text), is("joe", "10.0.0.1", 2121), "{text}");
            }
        }
        assert_eq!(parse("joe@[::1] 2121 fwuser"), is("joe", "::1", 2121));
        assert_eq!(parse("joe@10.0.0.1 2x"), is("joe", "10.0.0.1", 21));
        assert_eq!(
            parse("joe%x@ftp.example.org"),
            is("joe%x", "ftp.example.org", 21)
        );
    }

    #[test]
    fn missing_and_malformed_servers_are_distinguished() {
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
