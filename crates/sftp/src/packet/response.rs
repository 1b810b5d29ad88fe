//! Answers of the server.

use bytes::Bytes;

use super::{Attrs, FieldReader, PacketError, Status, finish, kind, put_string};
use crate::Rope;

/// Answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// Outcome of the request.
    Status(Status),
    /// Handle of an open file or folder.
    Handle(Bytes),
    /// Bytes of a file.
    Data(Rope),
    /// Entries of a folder, or one resolved path.
    Names(Vec<Name>),
    /// Attributes of a file.
    Attrs(Attrs),
    /// Answer of an extension.
    Extended(Rope),
}

/// Entry of a folder, or a resolved path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Name of the file.
    pub name: Bytes,
    /// Line of a listing, for people.
    pub long_name: Bytes,
    /// Attributes of the file.
    pub attrs: Attrs,
}

impl Response {
    /// Decodes a packet, which begins with its type. Returns the request id and the answer.
    /// Bytes behind the last field have no effect.
    ///
    /// # Errors
    /// [`PacketError`] if the type is unknown, or the packet is malformed.
    pub fn decode(packet: Rope) -> Result<(u32, Self), PacketError> {
        let mut fields = FieldReader::new(0, packet);
        let kind = fields.u8()?;
        let mut fields = FieldReader::new(kind, fields.rest());
        let id = fields.u32()?;
        let response = match kind {
            kind::STATUS => return Ok((id, Self::Status(Status::read(fields)?))),
            kind::EXTENDED_REPLY => return Ok((id, Self::Extended(fields.rest()))),
            kind::HANDLE => Self::Handle(fields.handle()?),
            kind::DATA => Self::Data(fields.data()?),
            kind::NAME => {
                let mut names = Vec::new();
                for _ in 0..fields.u32()? {
                    names.push(Name {
                        name: fields.string()?,
                        long_name: fields.string()?,
                        attrs: Attrs::read(&mut fields)?,
                    });
                }
                Self::Names(names)
            }
            kind::ATTRS => Self::Attrs(Attrs::read(&mut fields)?),
            _ => return Err(PacketError::UnknownType(kind)),
        };
        Ok((id, response))
    }

    /// Encodes the packet with its length. The bytes of a file are not copied.
    pub fn encode(&self, id: u32) -> Rope {
        let mut packet = vec![0, 0, 0, 0, self.kind()];
        packet.extend_from_slice(&id.to_be_bytes());
        let mut tail = Rope::new();
        match self {
            Self::Status(status) => status.put(&mut packet),
            Self::Handle(handle) => put_string(&mut packet, handle),
            Self::Data(data) => {
                packet.extend_from_slice(&(data.len() as u32).to_be_bytes());
                tail = data.clone();
            }
            Self::Names(names) => {
                packet.extend_from_slice(&(names.len() as u32).to_be_bytes());
                for name in names {
                    put_string(&mut packet, &name.name);
                    put_string(&mut packet, &name.long_name);
                    name.attrs.put(&mut packet);
                }
            }
            Self::Attrs(attrs) => attrs.put(&mut packet),
            Self::Extended(body) => tail = body.clone(),
        }
        finish(packet, tail)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Status(_) => kind::STATUS,
            Self::Handle(_) => kind::HANDLE,
            Self::Data(_) => kind::DATA,
            Self::Names(_) => kind::NAME,
            Self::Attrs(_) => kind::ATTRS,
            Self::Extended(_) => kind::EXTENDED_REPLY,
        }
    }
}
