//! Attributes of files.

use bytes::Bytes;

use super::{FieldReader, PacketError, put_string};

/// Attributes of a file. `None` means that the packet does not contain the attribute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attrs {
    /// Size in bytes.
    pub size: Option<u64>,
    /// Numbers of the user and of the group.
    pub owner: Option<(u32, u32)>,
    /// Mode of POSIX: type and permissions.
    pub permissions: Option<u32>,
    /// Times of the last access and of the last change.
    pub times: Option<Times>,
    /// Further attributes: names and values.
    pub extended: Vec<(Bytes, Bytes)>,
}

/// Times of a file, in seconds since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time of the last access.
    pub accessed_s: u32,
    /// Time of the last change.
    pub modified_s: u32,
}

impl Attrs {
    pub(crate) fn read(fields: &mut FieldReader) -> Result<Self, PacketError> {
        let flags = fields.u32()?;
        if flags & !(SIZE | OWNER | PERMISSIONS | TIMES | EXTENDED) != 0 {
            return Err(fields.malformed());
        }
        let mut attrs = Self::default();
        if flags & SIZE != 0 {
            attrs.size = Some(fields.u64()?);
        }
        if flags & OWNER != 0 {
            attrs.owner = Some((fields.u32()?, fields.u32()?));
        }
        if flags & PERMISSIONS != 0 {
            attrs.permissions = Some(fields.u32()?);
        }
        if flags & TIMES != 0 {
            attrs.times = Some(Times {
                accessed_s: fields.u32()?,
                modified_s: fields.u32()?,
            });
        }
        if flags & EXTENDED != 0 {
            for _ in 0..fields.u32()? {
                attrs.extended.push((fields.string()?, fields.string()?));
            }
        }
        Ok(attrs)
    }

    pub(crate) fn put(&self, packet: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.size.is_some(), SIZE)
            | flag(self.owner.is_some(), OWNER)
            | flag(self.permissions.is_some(), PERMISSIONS)
            | flag(self.times.is_some(), TIMES)
            | flag(!self.extended.is_empty(), EXTENDED);
        packet.extend_from_slice(&flags.to_be_bytes());
        if let Some(size) = self.size {
            packet.extend_from_slice(&size.to_be_bytes());
        }
        let pairs = [
            self.owner,
            self.permissions.map(|mode| (mode, 0)),
            self.times.map(|times| (times.accessed_s, times.modified_s)),
        ];
        for (at, pair) in pairs.into_iter().enumerate() {
            let Some((first, second)) = pair else {
                continue;
            };
            packet.extend_from_slice(&first.to_be_bytes());
            if at != 1 {
                packet.extend_from_slice(&second.to_be_bytes());
            }
        }
        if !self.extended.is_empty() {
            packet.extend_from_slice(&(self.extended.len() as u32).to_be_bytes());
            for (name, value) in &self.extended {
                put_string(packet, name);
                put_string(packet, value);
            }
        }
    }
}

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;
