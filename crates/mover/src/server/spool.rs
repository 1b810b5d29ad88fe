//! Upload whose bytes come from a spool at the far gateway.

use ftp::spool::{SpoolAnswer, SpoolRequest};

use super::{ServerError, Session};

/// Answer of the gateway to a request for a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolReply {
    /// The next upload takes its bytes from the spool.
    Yes(SpoolAnswer),
    /// The gateway refuses a spool for this file.
    No,
    /// There is no gateway, or it has no spool.
    Never,
}

impl Session {
    /// Requests that the next upload takes its bytes from a spool.
    ///
    /// # Errors
    /// [`ServerError`] if the request is not answered.
    pub async fn spool(&mut self, request: &SpoolRequest) -> Result<SpoolReply, ServerError> {
        let argument = request.argument();
        let reply = self.control.ask("SITE", argument.as_bytes()).await?;
        let line = reply.lines().last().map_or(&b""[..], Vec::as_slice);
        Ok(match SpoolAnswer::from_line(line) {
            Some(answer) => {
                // Until the upload has ended, the session is unusable for other purposes. The next
                // data connection would take the bytes.
                self.is_moving = true;
                SpoolReply::Yes(answer)
            }
            None if reply.is_temporary() || reply.code().0 == GONE => SpoolReply::No,
            None => SpoolReply::Never,
        })
    }
}

/// Reply code if the spool no longer has the first bytes of the upload.
const GONE: u16 = 550;
