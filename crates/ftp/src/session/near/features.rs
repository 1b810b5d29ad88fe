//! The reply to `FEAT` (RFC 2389), without what ends at the gateway.

use crate::session::Subject;

/// Whether a line of the reply stands for the client: all but features of the server's control
/// connection, which is not the client's.
pub(super) fn is_kept(line: &[u8]) -> bool {
    // Features are indented; servers that do not do so put the code in front.
    let feature = match line {
        [b' ', rest @ ..] => rest.trim_ascii_start(),
        [b'2', b'1', b'1', b'-', rest @ ..] => rest.trim_ascii_start(),
        _ => return true,
    };
    let end = feature
        .iter()
        .position(|b| matches!(b, b' ' | b'\r'))
        .unwrap_or(feature.len());
    !NOT_OFFERED
        .iter()
        .any(|verb| feature[..end].eq_ignore_ascii_case(verb.as_bytes()))
}

/// The lines of an answer about `subject`, CRLF between them, as the client gets them.
pub(super) fn edited(subject: Option<Subject>, lines: Vec<u8>) -> Vec<u8> {
    if subject != Some(Subject::Features) {
        return lines;
    }
    let mut kept = Vec::with_capacity(lines.len());
    for line in lines.split(|&b| b == b'\n').filter(|line| is_kept(line)) {
        if !kept.is_empty() {
            kept.push(b'\n');
        }
        kept.extend_from_slice(line);
    }
    kept
}

/// What `refusal` answers.
const NOT_OFFERED: &[&str] = &["AUTH", "PBSZ", "PROT", "CCC", "CPSV", "SSCN"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_end_at_the_gateway_are_left_out() {
        let lines = b"211-Features:\r\n AUTH TLS\r\n MDTM\r\n PROT\r\n AUTHOR\r\n211 End";
        let kept = b"211-Features:\r\n MDTM\r\n AUTHOR\r\n211 End";
        assert_eq!(edited(Some(Subject::Features), lines.to_vec()), kept);
        assert_eq!(edited(Some(Subject::System), lines.to_vec()), lines);
        assert!(!is_kept(b"211-PBSZ"));
        assert!(is_kept(b"211-Extensions supported:"));
        assert!(is_kept(b"500 what?"));
    }
}
