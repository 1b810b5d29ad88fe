//! What gateways report to each other of a transfer while it goes on.

use super::{WireError, body::Reader};

/// What has been handed on of a transfer since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivered {
    pub bytes: u64,
    /// How long the receiver took for them. The time in which it waited for bytes does not count.
    pub taking_us: u64,
}

/// The bottleneck of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The client reads or writes slowly.
    Client,
    /// The link is slow.
    Wan,
    /// The server reads or writes slowly.
    Server,
}

pub(super) fn put_limit(body: &mut Vec<u8>, limit: Limit) {
    body.push(match limit {
        Limit::Client => 0,
        Limit::Wan => 1,
        Limit::Server => 2,
    });
}

pub(super) fn limit(reader: &mut Reader<'_>) -> Result<Limit, WireError> {
    match reader.u8()? {
        0 => Ok(Limit::Client),
        1 => Ok(Limit::Wan),
        2 => Ok(Limit::Server),
        _ => Err(reader.malformed()),
    }
}

pub(super) fn put_delivered(body: &mut Vec<u8>, delivered: Delivered) {
    body.extend_from_slice(&delivered.bytes.to_be_bytes());
    body.extend_from_slice(&delivered.taking_us.to_be_bytes());
}

pub(super) fn delivered(reader: &mut Reader<'_>) -> Result<Delivered, WireError> {
    Ok(Delivered {
        bytes: reader.u64()?,
        taking_us: reader.u64()?,
    })
}
