//! Answers with a status code.

use bytes::Bytes;

use super::{FieldReader, PacketError, put_string};

/// Code of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatusCode(pub u32);

impl StatusCode {
    /// The request succeeded.
    pub const OK: Self = Self(0);
    /// The file or the folder has ended.
    pub const EOF: Self = Self(1);
    /// The path does not exist.
    pub const NO_SUCH_FILE: Self = Self(2);
    /// The user may not perform the request.
    pub const PERMISSION_DENIED: Self = Self(3);
    /// Any other failure.
    pub const FAILURE: Self = Self(4);
    /// The packet is malformed.
    pub const BAD_MESSAGE: Self = Self(5);
    /// The server does not support the request.
    pub const OP_UNSUPPORTED: Self = Self(8);
}

/// Answer with a status code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Code of the outcome.
    pub code: StatusCode,
    /// Text for people.
    pub message: Bytes,
    /// Language of the text.
    pub language: Bytes,
}

impl Status {
    /// Creates a status in English.
    pub fn new(code: StatusCode, message: &'static str) -> Self {
        Self {
            code,
            message: Bytes::from_static(message.as_bytes()),
            language: Bytes::from_static(b"en"),
        }
    }

    /// Creates the status of a success.
    pub fn ok() -> Self {
        Self::new(StatusCode::OK, "Success")
    }

    /// Creates the status of an end of file.
    pub fn eof() -> Self {
        Self::new(StatusCode::EOF, "End of file")
    }

    /// Returns whether the request succeeded.
    pub fn is_ok(&self) -> bool {
        self.code == StatusCode::OK
    }

    /// Returns the text, or the number of the code if there is no text.
    pub fn text(&self) -> String {
        if self.message.is_empty() {
            format!("SFTP status {}", self.code.0)
        } else {
            String::from_utf8_lossy(&self.message).into_owned()
        }
    }

    /// Reads a status. Some servers leave out the text and the language.
    pub(crate) fn read(mut fields: FieldReader) -> Result<Self, PacketError> {
        let code = StatusCode(fields.u32()?);
        let mut text = || match fields.is_empty() {
            true => Ok(Bytes::new()),
            false => fields.string(),
        };
        Ok(Self {
            code,
            message: text()?,
            language: text()?,
        })
    }

    pub(crate) fn put(&self, packet: &mut Vec<u8>) {
        packet.extend_from_slice(&self.code.0.to_be_bytes());
        put_string(packet, &self.message);
        put_string(packet, &self.language);
    }
}
