//! Periodic reports between the two gateways about a transfer.

use codec::{BodyError, Reader};

/// Limit of an upload's bytes in flight. Both fields count bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// Number of bytes that the server has accepted since the start of the upload.
    pub accepted_bytes: u64,
    /// Maximum number of bytes that the near gateway may read from the client beyond
    /// `accepted_bytes`.
    pub budget_bytes: u64,
}

/// Report about an upload: the bytes that the server has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryReport {
    /// Number of bytes accepted since the start of the upload.
    pub bytes: u64,
    /// Total time for which the far gateway waited for the server, in microseconds.
    pub waited_us: u64,
}

/// Bottleneck of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferBottleneck {
    /// The client reads or writes more slowly than the link and the server.
    Client,
    /// The link is slower than the client and the server.
    Wan,
    /// The server reads or writes more slowly than the link and the client.
    Server,
}

pub(super) fn put_limit(body: &mut Vec<u8>, limit: TransferBottleneck) {
    body.push(match limit {
        TransferBottleneck::Client => 0,
        TransferBottleneck::Wan => 1,
        TransferBottleneck::Server => 2,
    });
}

pub(super) fn limit(reader: &mut Reader<'_>) -> Result<TransferBottleneck, BodyError> {
    match reader.u8()? {
        0 => Ok(TransferBottleneck::Client),
        1 => Ok(TransferBottleneck::Wan),
        2 => Ok(TransferBottleneck::Server),
        _ => Err(reader.malformed()),
    }
}

pub(super) fn put_grant(body: &mut Vec<u8>, grant: Grant) {
    body.extend_from_slice(&grant.accepted_bytes.to_be_bytes());
    body.extend_from_slice(&grant.budget_bytes.to_be_bytes());
}

pub(super) fn grant(reader: &mut Reader<'_>) -> Result<Grant, BodyError> {
    Ok(Grant {
        accepted_bytes: reader.u64()?,
        budget_bytes: reader.u64()?,
    })
}

pub(super) fn put_delivered(body: &mut Vec<u8>, delivered: DeliveryReport) {
    body.extend_from_slice(&delivered.bytes.to_be_bytes());
    body.extend_from_slice(&delivered.waited_us.to_be_bytes());
}

pub(super) fn delivered(reader: &mut Reader<'_>) -> Result<DeliveryReport, BodyError> {
    Ok(DeliveryReport {
        bytes: reader.u64()?,
        waited_us: reader.u64()?,
    })
}
