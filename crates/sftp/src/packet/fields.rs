//! Fields of packets: integers, and strings after their length.

use bytes::Bytes;

use super::PacketError;
use crate::{Rope, SftpError};

/// Reader of the fields in one packet.
#[derive(Debug)]
pub(crate) struct FieldReader {
    kind: u8,
    rest: Rope,
}

impl FieldReader {
    /// Creates a reader for the body of a packet of type `kind`.
    pub(crate) fn new(kind: u8, body: Rope) -> Self {
        Self { kind, rest: body }
    }

    pub(crate) fn malformed(&self) -> PacketError {
        PacketError::Malformed(self.kind)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let mut bytes = [0; N];
        if !self.rest.peek(&mut bytes) {
            return Err(self.malformed());
        }
        self.rest.advance(N);
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, PacketError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, PacketError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, PacketError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn length(&mut self) -> Result<usize, PacketError> {
        let length = self.u32()? as usize;
        if length > self.rest.len() {
            return Err(self.malformed());
        }
        Ok(length)
    }

    pub(crate) fn string(&mut self) -> Result<Bytes, PacketError> {
        let length = self.length()?;
        Ok(self.rest.split_to_bytes(length))
    }

    /// Returns a handle, which has at most [`super::HANDLE_MAX`] bytes.
    pub(crate) fn handle(&mut self) -> Result<Bytes, PacketError> {
        let handle = self.string()?;
        if handle.len() > super::HANDLE_MAX {
            return Err(self.malformed());
        }
        Ok(handle)
    }

    /// Returns a string that may be long, without a copy.
    pub(crate) fn data(&mut self) -> Result<Rope, PacketError> {
        let length = self.length()?;
        Ok(self.rest.split_to(length))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(self) -> Rope {
        self.rest
    }
}

/// Splits a packet into its type, its request id and its body.
pub(crate) fn split_id(mut packet: Rope) -> Result<(u8, u32, Rope), SftpError> {
    let mut head = [0; 5];
    if !packet.peek(&mut head) {
        let mut kind = [0];
        packet.peek(&mut kind);
        return Err(SftpError::MalformedPacket(kind[0]));
    }
    packet.advance(head.len());
    let [kind, id @ ..] = head;
    Ok((kind, u32::from_be_bytes(id), packet))
}

/// Appends the length of a string and the string.
pub(crate) fn put_string(packet: &mut Vec<u8>, string: &[u8]) {
    packet.extend_from_slice(&(string.len() as u32).to_be_bytes());
    packet.extend_from_slice(string);
}

/// Completes a packet. `head` begins with four bytes for the length. `data` follows `head`.
pub(crate) fn finish(mut head: Vec<u8>, data: Rope) -> Rope {
    let length = (head.len() - 4 + data.len()) as u32;
    head[..4].copy_from_slice(&length.to_be_bytes());
    let mut packet = data;
    packet.push_front(head.into());
    packet
}
