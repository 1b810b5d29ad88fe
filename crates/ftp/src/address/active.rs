//! `PORT` (RFC 959), `EPRT` (RFC 2428) and `LPRT` (RFC 1639). These commands contain the address at
//! which a client or a gateway waits for the data connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Commands that contain the address to which the server connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveForm {
    /// `PORT h1,h2,h3,h4,p1,p2`: an IPv4 address.
    Port,
    /// `EPRT |1|address|port|`: an IPv4 or IPv6 address. Any printable ASCII character except
    /// digits may replace the delimiter `|`.
    Eprt,
    /// `LPRT af,n,h1,..,2,p1,p2`: an IPv4 or IPv6 address.
    Lprt,
}

/// Reason why an argument contains no valid address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ActiveError {
    /// The argument does not have the format of its command.
    #[error("malformed address")]
    Malformed,
    /// The protocol is neither IPv4 nor IPv6.
    #[error("unknown network protocol")]
    UnknownFamily,
}

/// Returns the address in the argument of the command `form`.
///
/// # Errors
/// [`ActiveError`] if the argument contains no address.
pub fn active_address(form: ActiveForm, argument: &[u8]) -> Result<SocketAddr, ActiveError> {
    let text = std::str::from_utf8(argument)
        .map_err(|_| ActiveError::Malformed)?
        .trim();
    let address = match form {
        ActiveForm::Port => port_address(text),
        ActiveForm::Eprt => return eprt_address(text),
        ActiveForm::Lprt => return lprt_address(text),
    };
    address.ok_or(ActiveError::Malformed)
}

/// Returns the command that makes a server connect to `at`. Returns `None` for `PORT` with an IPv6
/// address. Also returns `None` for `LPRT`, which the gateway never sends.
pub fn active_line(form: ActiveForm, at: SocketAddr) -> Option<String> {
    let [high, low] = at.port().to_be_bytes();
    match (form, at.ip().to_canonical()) {
        (ActiveForm::Port, IpAddr::V4(ip)) => {
            let [a, b, c, d] = ip.octets();
            Some(format!("PORT {a},{b},{c},{d},{high},{low}"))
        }
        (ActiveForm::Eprt, IpAddr::V4(ip)) => Some(format!("EPRT |1|{ip}|{}|", at.port())),
        (ActiveForm::Eprt, IpAddr::V6(ip)) => Some(format!("EPRT |2|{ip}|{}|", at.port())),
        _ => None,
    }
}

fn port_address(text: &str) -> Option<SocketAddr> {
    let &[a, b, c, d, high, low] = octets(text)?.as_slice() else {
        return None;
    };
    Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
}

fn eprt_address(text: &str) -> Result<SocketAddr, ActiveError> {
    let delimiter = text
        .chars()
        .next()
        .filter(|c| matches!(c, '\x21'..='\x7e') && !c.is_ascii_digit())
        .ok_or(ActiveError::Malformed)?;
    let fields: Vec<&str> = text.split(delimiter).collect();
    let &["", family, address, port, ""] = fields.as_slice() else {
        return Err(ActiveError::Malformed);
    };
    let ip: Option<IpAddr> = match family {
        "1" => address.parse().ok().map(IpAddr::V4),
        "2" => address.parse().ok().map(IpAddr::V6),
        _ if number(family).is_some() => return Err(ActiveError::UnknownFamily),
        _ => None,
    };
    let port = number(port).and_then(|port| u16::try_from(port).ok());
    ip.zip(port)
        .map(SocketAddr::from)
        .ok_or(ActiveError::Malformed)
}

fn lprt_address(text: &str) -> Result<SocketAddr, ActiveError> {
    let numbers = octets(text).ok_or(ActiveError::Malformed)?;
    match numbers.as_slice() {
        &[4, 4, a, b, c, d, 2, high, low] => {
            let port = u16::from_be_bytes([high, low]);
            Ok((Ipv4Addr::new(a, b, c, d), port).into())
        }
        &[6, 16, ref rest @ .., 2, high, low] => {
            let ip: [u8; 16] = rest.try_into().map_err(|_| ActiveError::Malformed)?;
            let port = u16::from_be_bytes([high, low]);
            Ok((Ipv6Addr::from(ip), port).into())
        }
        [4 | 6, ..] | [] => Err(ActiveError::Malformed),
        _ => Err(ActiveError::UnknownFamily),
    }
}

/// Parses numbers of at most 255, separated by commas.
fn octets(text: &str) -> Option<Vec<u8>> {
    text.split(',')
        .take(OCTETS_MAX + 1)
        .map(|field| number(field.trim()).and_then(|n| u8::try_from(n).ok()))
        .collect::<Option<Vec<u8>>>()
        .filter(|octets| octets.len() <= OCTETS_MAX)
}

/// Parses a number of one to five digits, without a sign.
fn number(text: &str) -> Option<u32> {
    let is_plain = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Maximum number of octets in an argument. `LPRT` with an IPv6 address has 21.
const OCTETS_MAX: usize = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(form: ActiveForm, text: &str) -> Result<String, ActiveError> {
        active_address(form, text.as_bytes()).map(|at| at.to_string())
    }

    fn is(text: &str) -> Result<String, ActiveError> {
        Ok(text.to_owned())
    }

    #[test]
    fn addresses_of_real_clients_are_read() {
        use ActiveForm::{Eprt, Lprt, Port};
        assert_eq!(read(Port, "10,0,0,1,4,1"), is("10.0.0.1:1025"));
        assert_eq!(read(Port, " 10,0,0,1,4, 1 "), is("10.0.0.1:1025"));
        assert_eq!(read(Eprt, "|1|10.0.0.1|1025|"), is("10.0.0.1:1025"));
        assert_eq!(read(Eprt, "!2!::1!1025!"), is("[::1]:1025"));
        assert_eq!(read(Lprt, "4,4,10,0,0,1,2,4,1"), is("10.0.0.1:1025"));
        assert_eq!(
            read(Lprt, "6,16,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,2,4,1"),
            is("[::1]:1025")
        );
    }

    #[test]
    fn a_malformed_address_differs_from_a_foreign_protocol() {
        use ActiveForm::{Eprt, Lprt, Port};
        for text in [
            "",
            "10,0,0,1,4",
            "300,0,0,1,4,1",
            "10,0,0,1,4,1,2",
            "a,0,0,1,4,1",
        ] {
            assert_eq!(read(Port, text), Err(ActiveError::Malformed), "{text}");
        }
        for text in [
            "",
            "|1|10.0.0.1|99999|",
            "|1|::1|1025|",
            "|1|10.0.0.1|1025",
            "11a",
        ] {
            assert_eq!(read(Eprt, text), Err(ActiveError::Malformed), "{text}");
        }
        assert_eq!(read(Eprt, "|3|x|1|"), Err(ActiveError::UnknownFamily));
        assert_eq!(
            read(Lprt, "4,4,10,0,0,1,3,4,1,1"),
            Err(ActiveError::Malformed)
        );
        assert_eq!(
            read(Lprt, "5,4,10,0,0,1,2,4,1"),
            Err(ActiveError::UnknownFamily)
        );
    }

    #[test]
    fn a_form_that_cannot_carry_the_address_writes_nothing() {
        let v6: SocketAddr = "[::1]:1025".parse().expect("an address");
        assert_eq!(active_line(ActiveForm::Port, v6), None);
        assert_eq!(
            active_line(ActiveForm::Eprt, v6).as_deref(),
            Some("EPRT |2|::1|1025|")
        );
    }

    proptest! {
        #[test]
        fn written_addresses_read_back(ip in any::<IpAddr>(), port in any::<u16>()) {
            let at = SocketAddr::new(ip.to_canonical(), port);
            for form in [ActiveForm::Port, ActiveForm::Eprt] {
                if let Some(line) = active_line(form, at) {
                    prop_assert_eq!(active_address(form, &line.as_bytes()[5..]), Ok(at));
                }
            }
        }

        #[test]
        fn any_bytes_can_be_read(argument in proptest::collection::vec(any::<u8>(), 0..80)) {
            for form in [ActiveForm::Port, ActiveForm::Eprt, ActiveForm::Lprt] {
                let _ = active_address(form, &argument);
            }
        }
    }
}
