//! An upload that takes its bytes from a spool at the far gateway.

use ftp::spool::{SpoolAnswer, SpoolRequest};

use super::{ServerError, Session};

/// What the gateway says to a request for a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spooled {
    /// The next upload takes its bytes from there.
    Yes(SpoolAnswer),
    /// Not this file.
    No,
    /// There is no gateway, or it has no spool.
    Never,
}

impl Session {
    /// Has the next upload take its bytes from a spool.
    ///
    /// # Errors
    /// [`ServerError`] if nothing is said to that.
    pub async fn spool(&mut self, request: &SpoolRequest) -> Result<Spooled, ServerError> {
        let argument = request.argument();
        let reply = self.control.ask("SITE", argument.as_bytes()).await?;
        let line = reply.lines().last().map_or(&b""[..], Vec::as_slice);
        Ok(match SpoolAnswer::of(line) {
            Some(answer) => {
                // Until the upload has ended, the session is of no other use: what came next would take the bytes.
                self.is_moving = true;
                Spooled::Yes(answer)
            }
            None if reply.is_temporary() || reply.code().0 == GONE => Spooled::No,
            None => Spooled::Never,
        })
    }
}

/// The spool has no longer what the upload begins with.
const GONE: u16 = 550;
