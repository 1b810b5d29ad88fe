//! Messages for coded streams: the offer of a coding, the parameters of chunking, and requests for
//! missing chunks.

use codec::{BodyError, Reader, Version, put_flags, put_text};

use super::{WireError, WireMessage};

/// Offer of a coding (compression and deduplication). If the offer is accepted, both directions of
/// the stream consist of frames of the crate `optimiser`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodingOffer {
    /// Whether both gateways may compress.
    pub compresses: bool,
    /// Terms of the opening gateway's chunk store. `None` if that gateway has no store for these
    /// bytes.
    pub store: Option<StoreTerms>,
}

/// Terms on which a gateway offers to use its chunk store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTerms {
    /// Name of the tenant that owns the chunks. Empty for chunks that belong to no tenant.
    pub tenant: String,
    /// Whether the far gateway may send references to chunks, too.
    pub downloads: bool,
    /// Parameters that the gateway proposes for cutting bytes into chunks.
    pub cutting: CutParameters,
}

/// Parameters by which a gateway cuts bytes into chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CutParameters {
    /// Number of the cutting algorithm. Gateways with different numbers cannot deduplicate.
    pub id: u8,
    /// Secret of the gateway's store. Both gateways use the smaller of their two secrets.
    pub secret: [u8; 32],
}

impl CodingOffer {
    /// Encodes an offer, or its absence, for the messages of a service.
    pub fn encode(offer: Option<&Self>) -> Vec<u8> {
        let mut body = Vec::new();
        put_coding(&mut body, offer);
        body
    }

    /// Decodes an offer from the message of a service. The message has the type `kind`.
    ///
    /// # Errors
    /// [`BodyError`] if the bytes are not an offer.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Option<Self>, BodyError> {
        let mut reader = Reader::new(kind, body);
        let offer = coding(&mut reader)?;
        reader.end(offer)
    }
}

impl CutParameters {
    /// Encodes the parameters for the messages of a service.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_cutting(&mut body, self);
        body
    }

    /// Decodes the parameters from the message of a service. The message has the type `kind`.
    ///
    /// # Errors
    /// [`BodyError`] if the bytes are not such parameters.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, BodyError> {
        let mut reader = Reader::new(kind, body);
        let parameters = cutting(&mut reader)?;
        reader.end(parameters)
    }
}

impl std::fmt::Debug for CutParameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CutParameters({}, ***)", self.id)
    }
}

/// A message from the receiver of references to chunks. References on a stream are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkRequest {
    /// The receiver has the chunks of all references below this number.
    Acknowledged(u64),
    /// The receiver lacks the chunk of this reference, and requests it.
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
