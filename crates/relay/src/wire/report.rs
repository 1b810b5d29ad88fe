//! Periodic reports of gateways about a transfer.

use codec::{BodyError, Reader};

/// Permitted bytes in flight of an upload. Both fields count bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// Bytes that the server has accepted since the upload began.
    pub accepted_bytes: u64,
    /// Bytes beyond `accepted_bytes` that the near gateway may have read from the client.
    pub budget_bytes: u64,
}

/// Bytes of an upload that the server has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryReport {
    /// Bytes since the upload began.
    pub bytes: u64,
    /// Time for which the far gateway waited for the server.
    pub waited_us: u64,
}

/// The bottleneck of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferBottleneck {
    /// The client reads or writes slowly.
    Client,
    /// The link is slow.
    Wan,
    /// The server reads or writes slowly.
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
