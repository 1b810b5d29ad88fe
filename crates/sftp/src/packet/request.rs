//! Requests of the client.

use bytes::Bytes;

use super::{Attrs, ExtendedRequest, FieldReader, PacketError, finish, kind, put_string};
use crate::Rope;

/// Flags of OPEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// The client reads from the file.
    pub const READ: Self = Self(1);
    /// The client writes to the file.
    pub const WRITE: Self = Self(2);
    /// Each WRITE appends.
    pub const APPEND: Self = Self(4);
    /// OPEN creates the file if it does not exist.
    pub const CREATE: Self = Self(8);
    /// OPEN removes all bytes of the file.
    pub const TRUNCATE: Self = Self(16);
    /// OPEN fails if the file exists.
    pub const EXCLUSIVE: Self = Self(32);

    /// Returns whether all flags of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the client can only read the file, and OPEN itself changes no file.
    pub(crate) fn is_read_only(self) -> bool {
        let changing = Self(Self::WRITE.0 | Self::APPEND.0 | Self::CREATE.0 | Self::TRUNCATE.0);
        self.contains(Self::READ) && self.0 & changing.0 == 0
    }

    /// Returns the flags that are set in `self` or `other`.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Request of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Opens a file.
    Open {
        /// Path of the file.
        path: Bytes,
        /// Access to the file.
        flags: OpenFlags,
        /// Attributes of a new file.
        attrs: Attrs,
    },
    /// Closes a file or a folder.
    Close {
        /// Handle to close.
        handle: Bytes,
    },
    /// Reads from a file.
    Read {
        /// Handle of the file.
        handle: Bytes,
        /// Offset of the first byte.
        offset: u64,
        /// Maximum number of bytes.
        length: u32,
    },
    /// Writes to a file.
    Write {
        /// Handle of the file.
        handle: Bytes,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes to write.
        data: Rope,
    },
    /// Reads the attributes of a path, without following a link.
    Lstat {
        /// Path of the file.
        path: Bytes,
    },
    /// Reads the attributes of an open file.
    Fstat {
        /// Handle of the file.
        handle: Bytes,
    },
    /// Sets the attributes of a path.
    SetStat {
        /// Path of the file.
        path: Bytes,
        /// New attributes.
        attrs: Attrs,
    },
    /// Sets the attributes of an open file.
    FsetStat {
        /// Handle of the file.
        handle: Bytes,
        /// New attributes.
        attrs: Attrs,
    },
    /// Opens a folder.
    OpenDir {
        /// Path of the folder.
        path: Bytes,
    },
    /// Reads entries of a folder.
    ReadDir {
        /// Handle of the folder.
        handle: Bytes,
    },
    /// Removes a file.
    Remove {
        /// Path of the file.
        path: Bytes,
    },
    /// Creates a folder.
    MakeDir {
        /// Path of the folder.
        path: Bytes,
        /// Attributes of the folder.
        attrs: Attrs,
    },
    /// Removes a folder.
    RemoveDir {
        /// Path of the folder.
        path: Bytes,
    },
    /// Resolves a path.
    RealPath {
        /// Path to resolve.
        path: Bytes,
    },
    /// Reads the attributes of a path.
    Stat {
        /// Path of the file.
        path: Bytes,
    },
    /// Renames a file.
    Rename {
        /// Present path.
        from: Bytes,
        /// New path.
        to: Bytes,
    },
    /// Reads the target of a link.
    ReadLink {
        /// Path of the link.
        path: Bytes,
    },
    /// Creates a link. Servers differ in the order of the paths.
    Symlink {
        /// First path: the target at OpenSSH, the link by the draft.
        first: Bytes,
        /// Second path: the link at OpenSSH, the target by the draft.
        second: Bytes,
    },
    /// Request of an extension.
    Extended(ExtendedRequest),
}

impl Request {
    /// Decodes a packet, which begins with its type. Returns the request id and the request.
    ///
    /// Bytes behind the last field have no effect. OpenSSH's server ignores them as well. Some
    /// clients send the rest of their buffer behind a short WRITE.
    ///
    /// # Errors
    /// [`PacketError`] if the type is unknown, or the packet is malformed.
    pub fn decode(packet: Rope) -> Result<(u32, Self), PacketError> {
        let mut fields = FieldReader::new(0, packet);
        let kind = fields.u8()?;
        let mut fields = FieldReader::new(kind, fields.rest());
        let id = fields.u32()?;
        let request = match kind {
            kind::OPEN => Self::Open {
                path: fields.string()?,
                flags: OpenFlags(fields.u32()?),
                attrs: Attrs::read(&mut fields)?,
            },
            kind::CLOSE => Self::Close {
                handle: fields.handle()?,
            },
            kind::READ => Self::Read {
                handle: fields.handle()?,
                offset: fields.u64()?,
                length: fields.u32()?,
            },
            kind::WRITE => Self::Write {
                handle: fields.handle()?,
                offset: fields.u64()?,
                data: fields.data()?,
            },
            kind::LSTAT => Self::Lstat {
                path: fields.string()?,
            },
            kind::FSTAT => Self::Fstat {
                handle: fields.handle()?,
            },
            kind::SETSTAT => Self::SetStat {
                path: fields.string()?,
                attrs: Attrs::read(&mut fields)?,
            },
            kind::FSETSTAT => Self::FsetStat {
                handle: fields.handle()?,
                attrs: Attrs::read(&mut fields)?,
            },
            kind::OPENDIR => Self::OpenDir {
                path: fields.string()?,
            },
            kind::READDIR => Self::ReadDir {
                handle: fields.handle()?,
            },
            kind::REMOVE => Self::Remove {
                path: fields.string()?,
            },
            kind::MKDIR => Self::MakeDir {
                path: fields.string()?,
                attrs: Attrs::read(&mut fields)?,
            },
            kind::RMDIR => Self::RemoveDir {
                path: fields.string()?,
            },
            kind::REALPATH => Self::RealPath {
                path: fields.string()?,
            },
            kind::STAT => Self::Stat {
                path: fields.string()?,
            },
            kind::RENAME => Self::Rename {
                from: fields.string()?,
                to: fields.string()?,
            },
            kind::READLINK => Self::ReadLink {
                path: fields.string()?,
            },
            kind::SYMLINK => Self::Symlink {
                first: fields.string()?,
                second: fields.string()?,
            },
            kind::EXTENDED => return Ok((id, Self::Extended(ExtendedRequest::read(fields)?))),
            _ => return Err(PacketError::UnknownType(kind)),
        };
        Ok((id, request))
    }

    /// Encodes the packet with its length. The data of a WRITE is not copied.
    pub fn encode(&self, id: u32) -> Rope {
        let mut packet = vec![0, 0, 0, 0, self.kind()];
        packet.extend_from_slice(&id.to_be_bytes());
        let mut tail = Rope::new();
        match self {
            Self::Open { path, flags, attrs } => {
                put_string(&mut packet, path);
                packet.extend_from_slice(&flags.0.to_be_bytes());
                attrs.put(&mut packet);
            }
            Self::Close { handle } | Self::Fstat { handle } | Self::ReadDir { handle } => {
                put_string(&mut packet, handle);
            }
            Self::Read {
                handle,
                offset,
                length,
            } => {
                put_string(&mut packet, handle);
                packet.extend_from_slice(&offset.to_be_bytes());
                packet.extend_from_slice(&length.to_be_bytes());
            }
            Self::Write {
                handle,
                offset,
                data,
            } => {
                put_string(&mut packet, handle);
                packet.extend_from_slice(&offset.to_be_bytes());
                packet.extend_from_slice(&(data.len() as u32).to_be_bytes());
                tail = data.clone();
            }
            Self::Lstat { path }
            | Self::OpenDir { path }
            | Self::Remove { path }
            | Self::RemoveDir { path }
            | Self::RealPath { path }
            | Self::Stat { path }
            | Self::ReadLink { path } => put_string(&mut packet, path),
            Self::SetStat { path, attrs } | Self::MakeDir { path, attrs } => {
                put_string(&mut packet, path);
                attrs.put(&mut packet);
            }
            Self::FsetStat { handle, attrs } => {
                put_string(&mut packet, handle);
                attrs.put(&mut packet);
            }
            Self::Rename {
                from: first,
                to: second,
            }
            | Self::Symlink { first, second } => {
                put_string(&mut packet, first);
                put_string(&mut packet, second);
            }
            Self::Extended(request) => tail = request.put(&mut packet),
        }
        finish(packet, tail)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Open { .. } => kind::OPEN,
            Self::Close { .. } => kind::CLOSE,
            Self::Read { .. } => kind::READ,
            Self::Write { .. } => kind::WRITE,
            Self::Lstat { .. } => kind::LSTAT,
            Self::Fstat { .. } => kind::FSTAT,
            Self::SetStat { .. } => kind::SETSTAT,
            Self::FsetStat { .. } => kind::FSETSTAT,
            Self::OpenDir { .. } => kind::OPENDIR,
            Self::ReadDir { .. } => kind::READDIR,
            Self::Remove { .. } => kind::REMOVE,
            Self::MakeDir { .. } => kind::MKDIR,
            Self::RemoveDir { .. } => kind::RMDIR,
            Self::RealPath { .. } => kind::REALPATH,
            Self::Stat { .. } => kind::STAT,
            Self::Rename { .. } => kind::RENAME,
            Self::ReadLink { .. } => kind::READLINK,
            Self::Symlink { .. } => kind::SYMLINK,
            Self::Extended(_) => kind::EXTENDED,
        }
    }
}
