//! Messages about coded streams: the coding, the cutting, and missing chunks.

use codec::{BodyError, Reader, Version, put_flags, put_text};

use super::{WireError, WireMessage};

/// Coding of bytes. Both directions then consist of frames of `optimiser`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodingOffer {
    /// Both gateways may compress.
    pub compresses: bool,
    /// The opening gateway has a chunk store for these bytes.
    pub store: Option<StoreTerms>,
}

/// Properties of a gateway's chunk store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTerms {
    /// The tenant that owns the chunks. Empty for chunks of no tenant.
    pub tenant: String,
    /// Whether bytes from the far gateway may refer to chunks, too.
    pub downloads: bool,
    /// Cutting that the gateway proposes.
    pub cutting: CutParameters,
}

/// Parameters by which bytes are cut into chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CutParameters {
    /// Number of the algorithm. Gateways with different numbers do not share chunks.
    pub id: u8,
    /// Secret of the store. Both gateways use the smaller one of their secrets.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for CutParameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CutParameters({}, ***)", self.id)
    }
}

/// A message from the receiver of references to chunks. The first reference of a stream has the
/// number 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkRequest {
    /// The chunks of all references below this number are available.
    Acknowledged(u64),
    /// The chunk of this reference is missing.
    Missing(u64),
}

impl WireMessage for ChunkRequest {
    fn encode_body(&self, _: Version, body: &mut Vec<u8>) -> u8 {
        let (kind, number) = match self {
            Self::Acknowledged(number) => (1, number),
            Self::Missing(number) => (2, number),
        };
        body.extend_from_slice(&number.to_be_bytes());
        kind
    }

    fn decode_body(_: Version, kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        let request = match kind {
            1 => Self::Acknowledged(reader.u64()?),
            2 => Self::Missing(reader.u64()?),
            other => return Err(BodyError::UnknownType(other).into()),
        };
        Ok(reader.end(request)?)
    }
}

pub(super) fn put_coding(body: &mut Vec<u8>, coding: Option<&CodingOffer>) {
    let store = coding.and_then(|coding| coding.store.as_ref());
    let compresses = coding.is_some_and(|coding| coding.compresses);
    put_flags(body, [coding.is_some(), compresses, store.is_some()]);
    if let Some(store) = store {
        put_cutting(body, &store.cutting);
        put_flags(body, [store.downloads]);
        put_text(body, &store.tenant);
    }
}

pub(super) fn coding(reader: &mut Reader<'_>) -> Result<Option<CodingOffer>, BodyError> {
    let [is_coded, compresses, has_store] = reader.flags()?;
    if !is_coded {
        return match compresses || has_store {
            true => Err(reader.malformed()),
            false => Ok(None),
        };
    }
    let store = match has_store {
        true => Some(StoreTerms {
            cutting: cutting(reader)?,
            downloads: reader.flag()?,
            tenant: reader.text()?,
        }),
        false => None,
    };
    Ok(Some(CodingOffer { compresses, store }))
}

pub(super) fn put_cutting(body: &mut Vec<u8>, cutting: &CutParameters) {
    body.push(cutting.id);
    body.extend_from_slice(&cutting.secret);
}

pub(super) fn cutting(reader: &mut Reader<'_>) -> Result<CutParameters, BodyError> {
    Ok(CutParameters {
        id: reader.u8()?,
        secret: reader.array()?,
    })
}
