//! Requests of extensions (OpenSSH's `PROTOCOL`, section 4).

use bytes::Bytes;

use super::{Attrs, DATA_MAX, FieldReader, PACKET_MAX, PacketError, kind, put_string};
use crate::Rope;

/// Request of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtendedRequest {
    /// `limits@openssh.com`: reads the server's limits.
    Limits,
    /// `fsync@openssh.com`: writes an open file to the disk.
    Fsync {
        /// Handle of the file.
        handle: Bytes,
    },
    /// `posix-rename@openssh.com`: renames a file, and replaces an existing one.
    PosixRename {
        /// Present path.
        from: Bytes,
        /// New path.
        to: Bytes,
    },
    /// `statvfs@openssh.com`: reads the properties of a file system.
    StatVfs {
        /// Path in the file system.
        path: Bytes,
    },
    /// `fstatvfs@openssh.com`: reads the properties of the file system of an open file.
    FstatVfs {
        /// Handle of the file.
        handle: Bytes,
    },
    /// `hardlink@openssh.com`: creates a hard link.
    Hardlink {
        /// Present path.
        from: Bytes,
        /// New path.
        to: Bytes,
    },
    /// `copy-data`: copies bytes between open files of the server.
    CopyData {
        /// Handle of the source.
        from: Bytes,
        /// Offset in the source.
        from_offset: u64,
        /// Number of bytes. Zero means the bytes up to the end of the source.
        length: u64,
        /// Handle of the destination.
        to: Bytes,
        /// Offset in the destination.
        to_offset: u64,
    },
    /// `lsetstat@openssh.com`: sets attributes without following a link.
    LsetStat {
        /// Path of the file.
        path: Bytes,
        /// New attributes.
        attrs: Attrs,
    },
    /// `expand-path@openssh.com`: resolves a path that may begin with `~`.
    ExpandPath {
        /// Path to resolve.
        path: Bytes,
    },
    /// Another extension.
    Unknown {
        /// Name of the extension.
        name: Bytes,
        /// Bytes after the name.
        body: Rope,
    },
}

impl ExtendedRequest {
    pub(crate) fn read(mut fields: FieldReader) -> Result<Self, PacketError> {
        let name = fields.string()?;
        let request = match &name[..] {
            LIMITS => Self::Limits,
            FSYNC => Self::Fsync {
                handle: fields.handle()?,
            },
            POSIX_RENAME => Self::PosixRename {
                from: fields.string()?,
                to: fields.string()?,
            },
            STATVFS => Self::StatVfs {
                path: fields.string()?,
            },
            FSTATVFS => Self::FstatVfs {
                handle: fields.handle()?,
            },
            HARDLINK => Self::Hardlink {
                from: fields.string()?,
                to: fields.string()?,
            },
            COPY_DATA => Self::CopyData {
                from: fields.handle()?,
                from_offset: fields.u64()?,
                length: fields.u64()?,
                to: fields.handle()?,
                to_offset: fields.u64()?,
            },
            LSETSTAT => Self::LsetStat {
                path: fields.string()?,
                attrs: Attrs::read(&mut fields)?,
            },
            EXPAND_PATH => Self::ExpandPath {
                path: fields.string()?,
            },
            _ => {
                return Ok(Self::Unknown {
                    name,
                    body: fields.rest(),
                });
            }
        };
        Ok(request)
    }

    fn name(&self) -> &[u8] {
        match self {
            Self::Limits => LIMITS,
            Self::Fsync { .. } => FSYNC,
            Self::PosixRename { .. } => POSIX_RENAME,
            Self::StatVfs { .. } => STATVFS,
            Self::FstatVfs { .. } => FSTATVFS,
            Self::Hardlink { .. } => HARDLINK,
            Self::CopyData { .. } => COPY_DATA,
            Self::LsetStat { .. } => LSETSTAT,
            Self::ExpandPath { .. } => EXPAND_PATH,
            Self::Unknown { name, .. } => name,
        }
    }

    /// Appends the request to `packet`. Returns the bytes that follow the request, without copying
    /// them.
    pub(crate) fn put(&self, packet: &mut Vec<u8>) -> Rope {
        put_string(packet, self.name());
        match self {
            Self::Limits => {}
            Self::Fsync { handle } | Self::FstatVfs { handle } => put_string(packet, handle),
            Self::StatVfs { path } | Self::ExpandPath { path } => put_string(packet, path),
            Self::PosixRename { from, to } | Self::Hardlink { from, to } => {
                put_string(packet, from);
                put_string(packet, to);
            }
            Self::CopyData {
                from,
                from_offset,
                length,
                to,
                to_offset,
            } => {
                put_string(packet, from);
                packet.extend_from_slice(&from_offset.to_be_bytes());
                packet.extend_from_slice(&length.to_be_bytes());
                put_string(packet, to);
                packet.extend_from_slice(&to_offset.to_be_bytes());
            }
            Self::LsetStat { path, attrs } => {
                put_string(packet, path);
                attrs.put(packet);
            }
            Self::Unknown { body, .. } => return body.clone(),
        }
        Rope::new()
    }
}

/// Answer to `limits@openssh.com`. Zero means that the server states no limit. A later version of
/// the extension may append further limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a packet in bytes.
    pub packet_max_bytes: u64,
    /// Maximum length of a READ in bytes.
    pub read_max_bytes: u64,
    /// Maximum length of a WRITE in bytes.
    pub write_max_bytes: u64,
    /// Maximum number of open handles.
    pub handles_max: u64,
}

impl Limits {
    /// Decodes the body of an `EXTENDED_REPLY`.
    ///
    /// # Errors
    /// [`PacketError::Malformed`] if the body does not have the four limits.
    pub fn decode(body: Rope) -> Result<Self, PacketError> {
        let mut fields = FieldReader::new(kind::EXTENDED_REPLY, body);
        let limits = Self {
            packet_max_bytes: fields.u64()?,
            read_max_bytes: fields.u64()?,
            write_max_bytes: fields.u64()?,
            handles_max: fields.u64()?,
        };
        Ok(limits)
    }

    /// Returns the limits that apply through the gateways. Each limit is the lesser of the server's
    /// limit and the near half's limit.
    pub(crate) fn through_gateways(self) -> Self {
        let lesser = |server: u64, own: u64| match server {
            0 => own,
            server => server.min(own),
        };
        Self {
            packet_max_bytes: lesser(self.packet_max_bytes, PACKET_MAX as u64),
            read_max_bytes: lesser(self.read_max_bytes, DATA_MAX as u64),
            write_max_bytes: lesser(self.write_max_bytes, DATA_MAX as u64),
            handles_max: self.handles_max,
        }
    }

    /// Encodes the body of an `EXTENDED_REPLY`.
    pub fn encode(&self) -> Rope {
        let limits = [
            self.packet_max_bytes,
            self.read_max_bytes,
            self.write_max_bytes,
            self.handles_max,
        ];
        limits.map(u64::to_be_bytes).concat().into()
    }
}

/// Returns true if requests of an extension never change the bytes of a file. Unknown extensions
/// may change any file.
pub(crate) fn keeps_files(name: &[u8]) -> bool {
    [LIMITS, FSYNC, STATVFS, FSTATVFS, HARDLINK, EXPAND_PATH].contains(&name)
        || [&b"home-directory"[..], b"users-groups-by-id@openssh.com"].contains(&name)
}

pub(crate) const LIMITS: &[u8] = b"limits@openssh.com";
pub(crate) const FSYNC: &[u8] = b"fsync@openssh.com";
const POSIX_RENAME: &[u8] = b"posix-rename@openssh.com";
const STATVFS: &[u8] = b"statvfs@openssh.com";
pub(crate) const FSTATVFS: &[u8] = b"fstatvfs@openssh.com";
pub(crate) const HARDLINK: &[u8] = b"hardlink@openssh.com";
pub(crate) const COPY_DATA: &[u8] = b"copy-data";
const LSETSTAT: &[u8] = b"lsetstat@openssh.com";
const EXPAND_PATH: &[u8] = b"expand-path@openssh.com";
