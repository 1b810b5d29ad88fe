//! TLS versions in a client's first message. The TLS library does not report them.

use std::{io, time::Duration};

use tokio::time::sleep;

use crate::Connection;

/// Returns whether a client accepts TLS 1.2. The client has already started TLS. The bytes of the
/// client's first message stay unread, so that the handshake can read them.
///
/// # Errors
/// The error of the connection.
pub(super) async fn offers_tls12(connection: &Connection) -> io::Result<bool> {
    let mut bytes = vec![0; RECORD_MAX_BYTES];
    for _ in 0..PAUSES_MAX {
        let count = connection.peek(&mut bytes).await?;
        let record = &bytes[..count];
        if count == 0 || is_whole(record) {
            return Ok(versions(record).is_some_and(|list| list.contains(&TLS12)));
        }
        sleep(PAUSE).await;
    }
    // If the message is incomplete, the later handshake reports the error.
    Ok(false)
}

fn is_whole(record: &[u8]) -> bool {
    match record {
        [HANDSHAKE, _, _, high, low, rest @ ..] => {
            rest.len() >= usize::from(u16::from_be_bytes([*high, *low]))
        }
        [HANDSHAKE, ..] | [] => false,
        _ => true,
    }
}

/// Returns the TLS versions in a complete first message (RFC 8446 section 4.1.2).
fn versions(record: &[u8]) -> Option<Vec<u16>> {
    let [HANDSHAKE, _, _, _, _, CLIENT_HELLO, _, _, _, body @ ..] = record else {
        return None;
    };
    let rest = body.get(VERSION_AND_RANDOM_BYTES..)?;
    let (_session, rest) = vector(rest, 1)?;
    let (_suites, rest) = vector(rest, 2)?;
    let (_compressions, rest) = vector(rest, 1)?;
    if rest.is_empty() {
        return Some(vec![TLS12]);
    }
    let (mut extensions, _) = vector(rest, 2)?;
    while let [high, low, rest @ ..] = extensions {
        let (content, rest) = vector(rest, 2)?;
        if u16::from_be_bytes([*high, *low]) == SUPPORTED_VERSIONS {
            let (list, _) = vector(content, 1)?;
            let pairs = list.chunks_exact(2);
            return Some(pairs.map(|p| u16::from_be_bytes([p[0], p[1]])).collect());
        }
        extensions = rest;
    }
    // A client that sends no list of versions supports TLS 1.2 at most.
    Some(vec![TLS12])
}

/// Splits bytes that start with a length field of `length_bytes` bytes. Returns the content of that
/// length, and the bytes after the content.
fn vector(bytes: &[u8], length_bytes: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(length_bytes)?;
    let length = length
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const VERSION_AND_RANDOM_BYTES: usize = 34;
const SUPPORTED_VERSIONS: u16 = 43;
const TLS12: u16 = 0x0303;

/// Maximum size of a TLS record, including its header.
const RECORD_MAX_BYTES: usize = 5 + (1 << 14);

/// Pause between two checks for a complete first message.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of pauses between checks for a complete first message. Together they take 5 s,
/// which suffices for a few lost packets.
const PAUSES_MAX: u32 = 250;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut record = vec![22, 3, 1];
        record.extend((body.len() as u16 + 4).to_be_bytes());
        record.extend([1, 0, 0, body.len() as u8]);
        record.extend(body);
        record
    }

    #[test]
    fn the_versions_of_a_first_message_are_read() {
        let other = [0, 23, 0, 0];
        assert_eq!(versions(&hello(&other)), Some(vec![0x0303]));
        let both = [&other[..], &[0, 43, 0, 5, 4, 3, 4, 3, 3]].concat();
        assert_eq!(versions(&hello(&both)), Some(vec![0x0304, 0x0303]));
        let tls13 = [0, 43, 0, 3, 2, 3, 4];
        let record = hello(&tls13);
        assert_eq!(versions(&record), Some(vec![0x0304]));
        assert!(is_whole(&record) && !is_whole(&record[..20]));
        assert_eq!(versions(b"GET / HTTP/1.0"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut record = hello(&bytes);
            let _ = versions(&bytes);
            let _ = versions(&record);
            record.truncate(bytes.len());
            let _ = (versions(&record), is_whole(&record));
        }
    }
}
