//! `USER name@host:port` at a listener with a fixed server. A client may name that server, although
//! the listener does not need the name. `longhaul copy --gateway` always names the server. An
//! account name may contain an `@`, so host and port must both match the fixed server.

use std::borrow::Cow;

use ftp::command::{Command, CommandKind};

use net::target::HostPort;

/// Removes `@host:port` from a `USER` line if the line names the server `target`. Returns any other
/// line unchanged.
pub(super) fn without_target<'a>(
    line: &'a [u8],
    target: impl FnOnce() -> Option<HostPort>,
) -> Cow<'a, [u8]> {
    let command = Command::parse(line);
    if command.kind() != CommandKind::User {
        return line.into();
    }
    let argument = command.argument();
    let at = argument.iter().rposition(|it| *it == b'@');
    let parts = at.map(|at| (&argument[..at], &argument[at + 1..]));
    let Some((user, named)) = parts.filter(|(user, _)| !user.is_empty()) else {
        return line.into();
    };
    let is_named = |it: HostPort| named.eq_ignore_ascii_case(it.to_string().as_bytes());
    match target().is_some_and(is_named) {
        true => [b"USER ", user].concat().into(),
        false => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_fixed_server_is_left_out_and_no_part_of_an_account_is() {
        let target = || Some("ftp.example.com:21".parse().expect("an endpoint"));
        for (line, expected) in [
            ("USER me@FTP.example.com:21", "USER me"),
            ("user me@home@ftp.example.com:21", "USER me@home"),
            ("USER me@ftp.example.com", "USER me@ftp.example.com"),
            (
                "USER me@ftp.example.com:2121",
                "USER me@ftp.example.com:2121",
            ),
            ("USER me@other.example:21", "USER me@other.example:21"),
            ("USER @ftp.example.com:21", "USER @ftp.example.com:21"),
            ("USER me", "USER me"),
            ("CWD me@ftp.example.com:21", "CWD me@ftp.example.com:21"),
        ] {
            let plain = without_target(line.as_bytes(), target);
            assert_eq!(plain, expected.as_bytes(), "{line}");
        }
        let six = || Some("[2001:db8::1]:21".parse().expect("an endpoint"));
        let plain = without_target(b"USER me@[2001:db8::1]:21", six);
        assert_eq!(&*plain, b"USER me");
        let line = b"USER me@ftp.example.com:21";
        assert_eq!(&*without_target(line, || None), line);
    }
}
