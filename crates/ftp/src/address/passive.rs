//! Replies to `PASV`, `EPSV` and `LPSV`, and the argument of `EPSV`. The functions parse and format
//! the replies.
//!
//! The gateway ignores the address in a server's `227` reply. A data connection always goes to the
//! server of the control connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Commands that request a passive data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassiveForm {
    /// `PASV` (RFC 959): the reply carries an IPv4 address.
    Pasv,
    /// `EPSV` (RFC 2428): the reply carries only a port.
    Epsv,
    /// `LPSV` (RFC 1639): the reply carries an IPv4 or IPv6 address. The gateway never sends `LPSV`
    /// to servers.
    Lpsv,
}

/// Argument of `EPSV` (RFC 2428 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsvArgument {
    /// No argument. The data connection uses the address family of the control connection.
    Absent,
    /// `1`: IPv4.
    V4,
    /// `2`: IPv6.
    V6,
    /// `ALL`: the client announces that it requests all later data connections with `EPSV`.
    All,
    /// Any other argument.
    Unknown,
}

/// Parses the argument of `EPSV`.
pub fn epsv_argument(argument: &[u8]) -> EpsvArgument {
    let text = argument.trim_ascii();
    match text {
        b"" => EpsvArgument::Absent,
        b"1" => EpsvArgument::V4,
        b"2" => EpsvArgument::V6,
        _ if text.eq_ignore_ascii_case(b"ALL") => EpsvArgument::All,
        _ => EpsvArgument::Unknown,
    }
}

/// Returns the port in `line`, which is a line of the server's reply to `form`. Some servers reply
/// to `PASV` in the format of `EPSV`, or to `EPSV` in the format of `PASV`. The function accepts
/// both formats.
pub fn announced_port(form: PassiveForm, line: &[u8]) -> Option<u16> {
    let text = line.get(3..)?;
    let port = match form {
        PassiveForm::Pasv => pasv_port(text).or_else(|| epsv_port(text)),
        PassiveForm::Epsv => epsv_port(text).or_else(|| pasv_port(text)),
        PassiveForm::Lpsv => None,
    };
    port.filter(|&port| port != 0)
}

/// Parses the port in a reply to `PASV`. The parentheses may be missing, so the function searches
/// for the digits (RFC 1123 section 4.1.2.6). The four numbers of the address may have any value,
/// and blanks may surround the commas.
fn pasv_port(text: &[u8]) -> Option<u16> {
    let mut numbers: Vec<u32> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.iter().position(u8::is_ascii_digit) {
        // If no comma follows the earlier numbers, they are not the address.
        if rest[..start].trim_ascii() != b"," {
            numbers.clear();
        }
        let digits = rest[start..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        let number = std::str::from_utf8(&rest[start..start + digits]).ok()?;
        numbers.push(number.parse().unwrap_or(u32::MAX));
        rest = &rest[start + digits..];
        if let [_, _, _, _, high, low] = numbers[..] {
            let (high, low) = (u8::try_from(high).ok()?, u8::try_from(low).ok()?);
            return Some(u16::from_be_bytes([high, low]));
        }
    }
    None
}

/// Parses `(<d><d><d>port<d>)`, with any delimiter `<d>`. The port is the last field. Some servers
/// send `(||port|)` or `(|1|address|port|)`. The function accepts those formats, too.
fn epsv_port(text: &[u8]) -> Option<u16> {
    let open = text.iter().position(|&b| b == b'(')?;
    let inner = text[open + 1..].trim_ascii_start();
    let delimiter = *inner
        .first()
        .filter(|b| (33..=126).contains(*b) && !b.is_ascii_digit())?;
    #[cfg(fuzz_canary)]
    assert!(delimiter != b'~', "canary: in the reader of ports");
    let end = inner.iter().rposition(|&b| b == delimiter)?;
    let port = inner[..end].rsplit(|&b| b == delimiter).next()?;
    std::str::from_utf8(port.trim_ascii()).ok()?.parse().ok()
}

/// Returns the `227` reply to `PASV`, in the wording that clients search for.
pub fn pasv_reply(address: Ipv4Addr, port: u16) -> String {
    let [a, b, c, d] = address.octets();
    let [high, low] = port.to_be_bytes();
    format!("227 Entering Passive Mode ({a},{b},{c},{d},{high},{low}).")
}

/// Returns the `229` reply to `EPSV`.
pub fn epsv_reply(port: u16) -> String {
    format!("229 Entering Extended Passive Mode (|||{port}|)")
}

/// Returns the `228` reply to `LPSV`.
fn lpsv_reply(at: SocketAddr) -> String {
    let (family, octets) = match at.ip().to_canonical() {
        IpAddr::V4(ip) => (4, ip.octets().to_vec()),
        IpAddr::V6(ip) => (6, ip.octets().to_vec()),
    };
    let [high, low] = at.port().to_be_bytes();
    let address: String = octets.iter().map(|octet| format!("{octet},")).collect();
    let length = octets.len();
    format!("228 Entering Long Passive Mode ({family},{length},{address}2,{high},{low})")
}

/// Returns the reply line that announces the address `at` in the format of `form`. Returns `None`
/// if `form` is `PASV` and the address is not IPv4.
pub fn passive_reply(form: PassiveForm, at: SocketAddr) -> Option<String> {
    match (form, at.ip().to_canonical()) {
        (PassiveForm::Epsv, _) => Some(epsv_reply(at.port())),
        (PassiveForm::Lpsv, _) => Some(lpsv_reply(at)),
        (PassiveForm::Pasv, IpAddr::V4(v4)) => Some(pasv_reply(v4, at.port())),
        (PassiveForm::Pasv, IpAddr::V6(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pasv(line: &str) -> Option<u16> {
        announced_port(PassiveForm::Pasv, line.as_bytes())
    }

    fn epsv(line: &str) -> Option<u16> {
        announced_port(PassiveForm::Epsv, line.as_bytes())
    }

    #[test]
    fn blanks_and_the_form_of_the_other_command_do_no_harm() {
        for line in [
            "227 Entering Passive Mode( 10, 0, 0, 1, 4,1).",
            "227 Entering Passive Mode (10 , 0 ,0,1 ,4 , 1)",
            "227 Entering Passive Mode (|||1025|)",
            "229 Entering Passive Mode (10,0,0,1,4,1)",
            "229 Entering Extended Passive Mode ( ||| 1025 | )",
            "229 Entering Extended Passive Mode (|1|10.0.0.1|1025|)",
        ] {
            assert_eq!((pasv(line), epsv(line)), (Some(1025), Some(1025)), "{line}");
        }
    }

    #[test]
    fn pasv_replies_of_real_servers_are_read() {
        assert_eq!(
            pasv("227 Entering Passive Mode (10,0,0,1,4,1)."),
            Some(1025)
        );
        assert_eq!(pasv("227 Entering Passive Mode 10,0,0,1,4,1"), Some(1025));
        assert_eq!(pasv("227 =10,0,0,1,4,1"), Some(1025));
        assert_eq!(
            pasv("227 IPv4 mode 2 (1216,256,2,127,127,127)"),
            Some(127 * 256 + 127)
        );
        assert_eq!(pasv("227 Passive (10,0,0,1,256,1)"), None);
        assert_eq!(pasv("227 Passive (10,0,0,1,4)"), None);
        assert_eq!(pasv("227 Passive (10,0,0,1,0,0)"), None);
        assert_eq!(pasv("227"), None);
    }

    #[test]
    fn epsv_replies_with_odd_delimiters_are_read() {
        assert_eq!(
            epsv("229 Entering Extended Passive Mode (|||6446|)"),
            Some(6446)
        );
        assert_eq!(epsv("229 ok (!!!6446!)"), Some(6446));
        assert_eq!(epsv("229 ok (||6446|)"), Some(6446));
        assert_eq!(epsv("229 ok (|||66446|)"), None);
        assert_eq!(epsv("229 ok (|||6446)"), None);
        assert_eq!(epsv("229 ok"), None);
    }

    #[test]
    fn the_reply_to_lpsv_carries_either_family() {
        let reply = |at: &str| passive_reply(PassiveForm::Lpsv, at.parse().expect("an address"));
        assert_eq!(
            reply("10.0.0.1:1025").as_deref(),
            Some("228 Entering Long Passive Mode (4,4,10,0,0,1,2,4,1)")
        );
        assert_eq!(
            reply("[::1]:1025").as_deref(),
            Some("228 Entering Long Passive Mode (6,16,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,2,4,1)")
        );
    }

    #[test]
    fn epsv_arguments_are_read() {
        let cases: [(&[u8], EpsvArgument); 5] = [
            (b"", EpsvArgument::Absent),
            (b" 1", EpsvArgument::V4),
            (b"2", EpsvArgument::V6),
            (b"all", EpsvArgument::All),
            (b"3", EpsvArgument::Unknown),
        ];
        for (text, expected) in cases {
            assert_eq!(epsv_argument(text), expected);
        }
    }

    proptest! {
        #[test]
        fn printed_replies_read_back(ip in any::<[u8; 4]>(), port in 1u16..) {
            prop_assert_eq!(pasv(&pasv_reply(ip.into(), port)), Some(port));
            prop_assert_eq!(epsv(&epsv_reply(port)), Some(port));
        }

        #[test]
        fn any_bytes_can_be_read(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = announced_port(PassiveForm::Pasv, &line);
            let _ = announced_port(PassiveForm::Epsv, &line);
            let _ = epsv_argument(&line);
        }
    }
}
