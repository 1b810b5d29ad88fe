//! Control connection of a session. The connection sends commands, reads complete replies, and
//! limits the time without a reply.

use std::{net::SocketAddr, time::Duration};

use ::ftp::{
    line::{LineSplitter, REPLY_MAX, SplitLine},
    reply::{ReplyCode, ReplyTracker},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use crate::{Failure, FailureKind, failure::within};

#[derive(Debug)]
pub(super) struct FtpControl {
    stream: TcpStream,
    lines: LineSplitter,
    reply_timeout: Duration,
}

/// A complete reply of the FTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FtpReply {
    pub(super) code: ReplyCode,
    /// The last line of the reply, including the code.
    pub(super) line: String,
}

impl FtpControl {
    pub(super) async fn connect(to: SocketAddr, reply_timeout: Duration) -> Result<Self, Failure> {
        let stream = connect("connecting", to, reply_timeout).await?;
        Ok(Self {
            stream,
            lines: LineSplitter::new(REPLY_MAX),
            reply_timeout,
        })
    }

    pub(super) fn local(&self) -> Result<SocketAddr, Failure> {
        self.stream
            .local_addr()
            .map_err(|e| Failure::io("control connection", &e))
    }

    pub(super) fn peer(&self) -> Result<SocketAddr, Failure> {
        self.stream
            .peer_addr()
            .map_err(|e| Failure::io("control connection", &e))
    }

    /// Sends a command.
    pub(super) async fn send(&mut self, verb: &str, line: &str) -> Result<(), Failure> {
        let bytes = format!("{line}\r\n");
        within(
            verb,
            self.reply_timeout,
            self.stream.write_all(bytes.as_bytes()),
        )
        .await
    }

    /// Waits for the next complete reply. `during` names the command in failures.
    pub(super) async fn reply(&mut self, during: &str) -> Result<FtpReply, Failure> {
        self.reply_after(during, async {}).await
    }

    /// Waits for the next complete reply. The time limit starts when `event` resolves.
    pub(super) async fn reply_after(
        &mut self,
        during: &str,
        event: impl Future<Output = ()>,
    ) -> Result<FtpReply, Failure> {
        tokio::pin!(event);
        let mut has_happened = false;
        let unexpected =
            |detail: String| Failure::new(FailureKind::UnexpectedReply, during, detail);
        let mut tracker = ReplyTracker::default();
        let mut bytes = 0;
        let mut buffer = [0; 4096];
        loop {
            while let Some(line) = self.lines.next_line() {
                let SplitLine::Complete(line) = line else {
                    return Err(unexpected(format!("a line longer than {REPLY_MAX} bytes")));
                };
                bytes += line.len() + 1;
                if bytes > WHOLE_REPLY_MAX {
                    return Err(unexpected(format!("longer than {WHOLE_REPLY_MAX} bytes")));
                }
                let position = tracker.locate(&line);
                let text = String::from_utf8_lossy(&line).into_owned();
                match position.code {
                    Some(code) if position.last => return Ok(FtpReply { code, line: text }),
                    Some(_) => {}
                    None => return Err(unexpected(shortened(&text))),
                }
            }
            let silence = async {
                if !has_happened {
                    event.as_mut().await;
                    has_happened = true;
                }
                sleep(self.reply_timeout).await;
            };
            let read = tokio::select! {
                read = self.stream.read(&mut buffer) => read,
                () = silence => return Err(Failure::timed_out(during, self.reply_timeout)),
            };
            match read {
                Ok(0) => {
                    let detail = "the control connection ended";
                    return Err(Failure::new(FailureKind::Ended, during, detail));
                }
                Ok(count) => self.lines.push(&buffer[..count]),
                Err(error) => return Err(Failure::io(during, &error)),
            }
        }
    }
}

/// Connects to an address within `reply_timeout`.
pub(super) async fn connect(
    during: &str,
    to: SocketAddr,
    reply_timeout: Duration,
) -> Result<TcpStream, Failure> {
    within(during, reply_timeout, async {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
    .await
}

/// Shortens a server's text to the length that records store.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(WORDS_MAX).collect()
}

/// Maximum total length of a reply in bytes. No known server sends a longer reply to `FEAT`, `STAT`
/// or `HELP`.
const WHOLE_REPLY_MAX: usize = 1 << 20;
const WORDS_MAX: usize = 200;
