//! Server that a client names in its user name: `user%host[:port]` or `user+host[:port]`.

use net::target::{Host, HostPort};

/// User name of a client, split into the name at the server and the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedTarget<'a> {
    pub(crate) user: &'a str,
    pub(crate) server: HostPort,
}

impl<'a> NamedTarget<'a> {
    /// Splits a user name at its last separator. Returns `None` if the name contains no server.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let at = name.rfind(['%', '+'])?;
        let (user, server) = (&name[..at], &name[at + 1..]);
        if user.is_empty() {
            return None;
        }
        let (host, port) = units::split_port(server)?;
        Some(Self {
            user,
            server: HostPort {
                host: Host::parse(host).ok()?,
                port: port.unwrap_or(SSH_PORT),
            },
        })
    }
}

/// Returns the user name at the fixed server `target`. A client may name that server, although the
/// listener does not need the name.
///
/// # Errors
/// The named server, if the client names another server in the form `%host:port`. No account has a
/// name of this form. The client therefore expects a listener that has no fixed server.
pub(crate) fn user_at<'a>(name: &'a str, target: &HostPort) -> Result<&'a str, HostPort> {
    match NamedTarget::parse(name) {
        Some(named) if named.server == *target => Ok(named.user),
        Some(named) if has_percent_and_port(name) => Err(named.server),
        _ => Ok(name),
    }
}

/// Whether the last separator of a name is `%`, and a port ends the name.
fn has_percent_and_port(name: &str) -> bool {
    let server = name.rfind(['%', '+']).map(|at| name.split_at(at).1);
    let server = server.and_then(|it| it.strip_prefix('%'));
    server
        .and_then(units::split_port)
        .is_some_and(|(_, port)| port.is_some())
}

/// Port of SSH servers (RFC 4253 section 4.1).
const SSH_PORT: u16 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_separator_splits_user_and_server() {
        for (name, user, server) in [
            ("me%files.example", "me", "files.example:22"),
            ("me+files.example:2222", "me", "files.example:2222"),
            ("me@home%10.0.0.5", "me@home", "10.0.0.5:22"),
            ("me+tag+Host.example", "me+tag", "host.example:22"),
            ("me%[2001:db8::1]:2222", "me", "[2001:db8::1]:2222"),
            ("me%2001:db8::1", "me", "[2001:db8::1]:22"),
        ] {
            let named = NamedTarget::parse(name).expect(name);
            assert_eq!((named.user, &*named.server.to_string()), (user, server));
        }
        for name in ["me", "%host", "me%", "me%-", "me%host:0", "me%127.1"] {
            assert_eq!(NamedTarget::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_name_of_the_fixed_server_is_left_out_and_no_part_of_an_account_is() {
        let target = HostPort {
            host: Host::parse("files.example").expect("a name"),
            port: 22,
        };
        for (name, user) in [
            ("me%files.example", "me"),
            ("me%files.example:22", "me"),
            ("me+other.example", "me+other.example"),
            ("me%other.example", "me%other.example"),
            ("me+other.example:22", "me+other.example:22"),
            ("me", "me"),
        ] {
            assert_eq!(user_at(name, &target), Ok(user), "{name}");
        }
    }

    #[test]
    fn another_server_with_a_port_is_no_part_of_an_account() {
        let target = HostPort {
            host: Host::parse("files.example").expect("a name"),
            port: 22,
        };
        for (name, server) in [
            ("me%other.example:22", "other.example:22"),
            ("me%files.example:2222", "files.example:2222"),
            ("me+tag%[2001:db8::1]:22", "[2001:db8::1]:22"),
        ] {
            let other = user_at(name, &target).expect_err(name);
            assert_eq!(other.to_string(), server);
        }
    }
}
