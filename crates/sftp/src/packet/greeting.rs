//! INIT of the client and VERSION of the server.

use bytes::Bytes;

use super::{FieldReader, PacketError, finish, kind, put_string};
use crate::Rope;

/// Side that sends a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GreetingSource {
    /// The client sends INIT.
    Client,
    /// The server sends VERSION.
    Server,
}

/// INIT of the client, or VERSION of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Version of SFTP.
    pub version: u32,
    /// Extensions: names and data.
    pub extensions: Vec<(Bytes, Bytes)>,
}

impl Greeting {
    /// Decodes a packet, which begins with its type.
    ///
    /// # Errors
    /// [`PacketError`] if the packet is no greeting of `source`, or is malformed.
    pub fn decode(source: GreetingSource, packet: Rope) -> Result<Self, PacketError> {
        let mut fields = FieldReader::new(0, packet);
        let kind = fields.u8()?;
        let mut fields = FieldReader::new(kind, fields.rest());
        if kind != source.kind() {
            return Err(PacketError::UnknownType(kind));
        }
        let version = fields.u32()?;
        let mut extensions = Vec::new();
        while !fields.is_empty() {
            extensions.push((fields.string()?, fields.string()?));
        }
        Ok(Self {
            version,
            extensions,
        })
    }

    /// Encodes the packet with its length.
    pub fn encode(&self, source: GreetingSource) -> Rope {
        let mut packet = vec![0, 0, 0, 0, source.kind()];
        packet.extend_from_slice(&self.version.to_be_bytes());
        for (name, data) in &self.extensions {
            put_string(&mut packet, name);
            put_string(&mut packet, data);
        }
        finish(packet, Rope::new())
    }

    /// Returns whether the side offers this extension.
    pub fn has_extension(&self, name: &[u8]) -> bool {
        self.extensions.iter().any(|(offered, _)| offered == name)
    }
}

impl GreetingSource {
    fn kind(self) -> u8 {
        match self {
            Self::Client => kind::INIT,
            Self::Server => kind::VERSION,
        }
    }
}
