//! Entry points for `fuzz-targets`.

use bytes::Bytes;
use ftp::listing::ListingEntry;
use sftp::packet::{Greeting, GreetingSource};
use tokio::time::Instant;

use super::{
    attributes::{entry, listed_entry},
    replies::{Answer, Expected, Replies, VERSION},
};

/// Passes the input to outstanding requests, as the bytes that a server sends. The first byte of
/// the input determines how the bytes are split into pieces. Returns the entries in the answers.
pub fn sftp_answers(input: &[u8]) -> Vec<ListingEntry> {
    let Some((cut, bytes)) = input.split_first() else {
        return Vec::new();
    };
    let mut replies = Replies::default();
    let greeting = Greeting {
        version: VERSION,
        extensions: Vec::new(),
    };
    let now = Instant::now();
    let greeting = greeting.encode(GreetingSource::Server).into_bytes();
    replies.receive(greeting, now).expect("a valid greeting");
    let requests = [
        ("CLOSE", Expected::Status),
        ("OPEN", Expected::Handle),
        ("READ", Expected::Data(READ_BYTES)),
        ("READDIR", Expected::Names),
        ("STAT", Expected::Attrs),
        ("limits@openssh.com", Expected::Limits),
    ];
    let mut receivers = Vec::new();
    for (name, expected) in requests {
        receivers.push(replies.register(name, expected, None).1);
    }
    for piece in bytes.chunks(usize::from(*cut) + 1) {
        if replies.receive(Bytes::copy_from_slice(piece), now).is_err() {
            break;
        }
    }
    let mut entries = Vec::new();
    for mut receiver in receivers {
        match receiver.try_recv() {
            Ok((Answer::Names(names), _)) => {
                entries.extend(
                    names
                        .iter()
                        .filter_map(|name| listed_entry(name).ok().flatten()),
                );
            }
            Ok((Answer::Attrs(attrs), _)) => entries.push(entry(&attrs)),
            Ok((Answer::Data(data), _)) => assert!(data.len() <= READ_BYTES as usize),
            _ => {}
        }
    }
    entries
}

/// Length of the outstanding READ in bytes.
const READ_BYTES: u32 = 16;
