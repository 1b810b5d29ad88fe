//! Parser of hosts with ports.

/// Splits a text of the form `host`, `host:port`, `host port`, `[v6]` or `[v6]:port` into host and
/// port. An IPv6 address without brackets is a host without a port.
pub fn split_port(server: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = if let Some(bracketed) = server.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        match rest {
            "" => (host, None),
            _ => (
                host,
                Some(rest.strip_prefix(':').or_else(|| rest.strip_prefix(' '))?),
            ),
        }
    } else if let Some((host, port)) = server.split_once(' ') {
        (host, Some(port.trim()))
    } else {
        match server.split_once(':') {
            Some((_, rest)) if rest.contains(':') => (server, None),
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        }
    };
    let Some(port) = port else {
        return Some((host, None));
    };
    let plain = !port.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    let port: u16 = if plain {
        port.parse().ok()?
    } else {
        return None;
    };
    (port != 0).then_some((host, Some(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_follows_a_colon_or_a_blank() {
        for (text, expected) in [
            ("ftp.example", Some(("ftp.example", None))),
            ("ftp.example:2121", Some(("ftp.example", Some(2121)))),
            ("ftp.example 2121", Some(("ftp.example", Some(2121)))),
            ("[2001:db8::1]", Some(("2001:db8::1", None))),
            ("[2001:db8::1]:22", Some(("2001:db8::1", Some(22)))),
            ("2001:db8::1", Some(("2001:db8::1", None))),
        ] {
            assert_eq!(split_port(text), expected, "{text}");
        }
        for wrong in [
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a:000021",
            "[2001:db8::1",
            "[::1]22",
        ] {
            assert_eq!(split_port(wrong), None, "{wrong}");
        }
    }
}
