//! The reply to `FEAT` (RFC 2389). The near gateway removes features that concern the server's
//! control connection, and adds its own features.

/// Returns the lines that replace one line of the server's reply. The result is empty if the
/// gateway removes the line, and has several lines if the gateway adds features.
pub(super) fn edit_line(line: &[u8], is_last: bool, offers_tls: bool) -> Vec<Vec<u8>> {
    let is_list_end = is_last && line.starts_with(b"211 ");
    if !is_kept(line) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if is_list_end && offers_tls {
        lines.extend(TLS_FEATURES.iter().map(|feature| feature.to_vec()));
    }
    lines.push(line.to_vec());
    lines
}

/// Edits a complete reply whose lines are separated by CRLF.
pub(super) fn edit_reply(reply: &[u8], offers_tls: bool) -> Vec<u8> {
    let lines: Vec<&[u8]> = reply
        .split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .collect();
    // A reply of one line contains no list of features.
    let offers_tls = offers_tls && lines.len() > 1;
    let kept = lines
        .iter()
        .enumerate()
        .flat_map(|(at, line)| edit_line(line, at + 1 == lines.len(), offers_tls));
    kept.collect::<Vec<_>>().join(&b"\r\n"[..])
}

/// Whether the gateway relays a line of the server. The gateway removes features that concern the
/// server's control connection.
fn is_kept(line: &[u8]) -> bool {
    // Most servers indent the features. Other servers put the reply code before each feature.
    let feature = match line {
        [b' ', rest @ ..] => rest.trim_ascii_start(),
        [b'2', b'1', b'1', b'-', rest @ ..] => rest.trim_ascii_start(),
        _ => return true,
    };
    let end = feature.iter().position(|&b| b == b' ');
    let name = &feature[..end.unwrap_or(feature.len())];
    !OF_THE_CONTROL_CONNECTION
        .iter()
        .any(|verb| name.eq_ignore_ascii_case(verb.as_bytes()))
}

const OF_THE_CONTROL_CONNECTION: &[&str] = &["AUTH", "PBSZ", "PROT", "CCC", "CPSV", "SSCN"];

const TLS_FEATURES: [&[u8]; 4] = [b" AUTH TLS", b" AUTH SSL", b" PBSZ", b" PROT"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_end_at_the_gateway_are_the_gateways() {
        let reply = b"211-Features:\r\n AUTH TLS;SSL\r\n MDTM\r\n PROT\r\n AUTHOR\r\n211 End";
        assert_eq!(
            edit_reply(reply, false),
            b"211-Features:\r\n MDTM\r\n AUTHOR\r\n211 End"
        );
        assert_eq!(
            edit_reply(reply, true),
            b"211-Features:\r\n MDTM\r\n AUTHOR\r\n AUTH TLS\r\n AUTH SSL\r\n PBSZ\r\n PROT\r\n211 End"
        );
    }

    #[test]
    fn what_is_no_list_stays_as_it_is() {
        for reply in [&b"500 what?"[..], b"211 no features", b"502-no\r\n502 no"] {
            assert_eq!(edit_reply(reply, true), reply);
        }
        assert!(!is_kept(b"211-PBSZ"));
        assert!(is_kept(b"211-Extensions supported:"));
    }
}
