//! Refusal of a request by an SFTP server.

use sftp::packet::{Status, StatusCode};

use crate::retry_action::RetryAction;

/// Refusal of a request by an SFTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpRefusal {
    /// Name of the request, such as `OPEN`.
    pub request: &'static str,
    /// Code of the refusal.
    pub code: StatusCode,
    /// Text of the server. Control characters are removed, and a long text is shortened.
    pub text: String,
}

impl SftpRefusal {
    pub(crate) fn new(request: &'static str, status: &Status) -> Self {
        let bytes = &status.message[..status.message.len().min(TEXT_BYTES_MAX)];
        let text = String::from_utf8_lossy(bytes);
        let text = match text.trim() {
            "" => standard_text(status.code).to_owned(),
            text => text.escape_debug().to_string(),
        };
        Self {
            request,
            code: status.code,
            text,
        }
    }

    /// Returns whether the path does not exist.
    pub fn is_absence(&self) -> bool {
        self.code == StatusCode::NO_SUCH_FILE
    }

    /// Returns whether the server reports the end of the file or folder.
    pub(crate) fn is_end(&self) -> bool {
        self.code == StatusCode::EOF
    }

    pub(crate) fn retry_action(&self) -> RetryAction {
        match self.code {
            NO_CONNECTION | CONNECTION_LOST => RetryAction::Reconnect,
            // This code does not state the cause. One possible cause is a full disk.
            StatusCode::FAILURE if ["READ", "WRITE", "CLOSE"].contains(&self.request) => {
                RetryAction::Retry
            }
            _ => RetryAction::GiveUpFile,
        }
    }
}

impl std::fmt::Display for SftpRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} (status {})",
            self.request, self.text, self.code.0
        )
    }
}

/// Returns the meaning of a code, for servers that send no text.
fn standard_text(code: StatusCode) -> &'static str {
    match code {
        StatusCode::EOF => "end of file",
        StatusCode::NO_SUCH_FILE => "no such file",
        StatusCode::PERMISSION_DENIED => "permission denied",
        StatusCode::BAD_MESSAGE => "bad message",
        StatusCode::OP_UNSUPPORTED => "not supported",
        NO_CONNECTION => "no connection",
        CONNECTION_LOST => "connection lost",
        _ => "failure",
    }
}

const NO_CONNECTION: StatusCode = StatusCode(6);

const CONNECTION_LOST: StatusCode = StatusCode(7);

/// Maximum number of bytes of a server's text.
const TEXT_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_server_is_short_and_has_no_control_characters() {
        let mut status = Status::new(StatusCode::FAILURE, "bad\u{1b}[2Jname");
        let refusal = SftpRefusal::new("OPEN", &status);
        assert_eq!(refusal.to_string(), "OPEN: bad\\u{1b}[2Jname (status 4)");
        status.message = vec![b'x'; 9000].into();
        assert_eq!(SftpRefusal::new("OPEN", &status).text.len(), TEXT_BYTES_MAX);
        status.message = Vec::new().into();
        assert_eq!(SftpRefusal::new("OPEN", &status).text, "failure");
    }
}
