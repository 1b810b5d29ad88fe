//! Uploads in which the far gateway reads the bytes from a spool (a file with one upload for
//! several servers).

use ftp::spool::{SpoolAnswer, SpoolRequest};

use super::{ServerError, Session};

/// Answer of the gateway to a request for a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolReply {
    /// The gateway will read the bytes of the next upload from the spool.
    Yes(SpoolAnswer),
    /// The gateway refuses a spool for this file.
    No,
    /// The session has no gateway, or the gateway has no spools.
    Never,
}

impl Session {
    /// Asks the gateway to read the bytes of the next upload from a spool (a file at the gateway).
    ///
    /// # Errors
    /// [`ServerError`] if no reply to the request arrives.
    pub async fn spool(&mut self, request: &SpoolRequest) -> Result<SpoolReply, ServerError> {
        let argument = request.argument();
        let reply = self.control.ask("SITE", argument.as_bytes()).await?;
        let line = reply.lines().last().map_or(&b""[..], Vec::as_slice);
        Ok(match SpoolAnswer::from_line(line) {
            Some(answer) => {
                // Until the upload has ended, the session is unusable for other purposes. Any other
                // data connection would receive the bytes of the spool.
                self.is_moving = true;
                SpoolReply::Yes(answer)
            }
            None if reply.is_temporary() || reply.code().0 == GONE => SpoolReply::No,
            None => SpoolReply::Never,
        })
    }
}

/// Reply code if the spool no longer contains the first bytes of the upload.
const GONE: u16 = 550;
