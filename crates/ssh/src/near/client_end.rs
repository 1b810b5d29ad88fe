//! The client's side of a channel: the output of the program.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use relay::status::OpenTransfer;
use russh::{
    ChannelId, ChannelWriteHalf, Sig,
    server::{Handle, Msg},
};
use sftp::EarlyReplies;
use tokio::time::{sleep, timeout};
use tracing::info;

use super::{client::Client, far_half::FarHalf};
use crate::{
    backpressure::HeldBytes,
    wire::{FrameReader, WireError, channel::ChannelMessage},
};

/// End of a channel, as the near half sees it.
#[derive(Debug)]
pub(super) enum ChannelEnd {
    /// The client has closed the channel, or is gone.
    Client,
    /// The client has ended its SFTP requests, and has all answers.
    Settled,
    /// The far half has closed the channel. All output of the channel has reached the client.
    Far,
    /// The link or the server is lost, or the far half cannot open the channel. The text is a
    /// sentence for the user.
    Failed(String),
}

/// The client's side of a channel.
pub(super) struct ClientEnd {
    pub(super) write: ChannelWriteHalf<Msg>,
    pub(super) handle: Handle,
    /// Bytes that the channel has received from the client and not passed on yet.
    pub(super) held: Arc<HeldBytes>,
    pub(super) client: Arc<Client>,
}

impl ClientEnd {
    fn id(&self) -> ChannelId {
        self.write.id()
    }

    /// Passes on the messages of the far half, until the far half closes the channel.
    pub(super) async fn download(
        &self,
        frames: &mut FrameReader,
        far: &FarHalf,
        transfer: &OpenTransfer,
    ) -> ChannelEnd {
        let meter = &transfer.meters().1;
        loop {
            meter.start_link_wait();
            let message = match frames.next().await {
                Ok(Some(frame)) => ChannelMessage::decode(frame),
                Ok(None) => Err(WireError::Truncated),
                Err(error) => Err(error),
            };
            meter.start_tcp_wait();
            let message = match message {
                Ok(message) => message,
                Err(error) => return self.stream_end(&error, far).await,
            };
            if let ChannelMessage::Data(data) = &message {
                meter.add_bytes(data.len());
            }
            if let Some(end) = self.handle_message(message, far).await {
                return end;
            }
        }
    }

    /// Passes on a message of the far half. Returns how the channel has ended, or `None` if the
    /// channel is still open.
    pub(super) async fn handle_message(
        &self,
        message: ChannelMessage,
        far: &FarHalf,
    ) -> Option<ChannelEnd> {
        let written = match message {
            ChannelMessage::Data(data) => self.write(data).await,
            ChannelMessage::Extended(data) => self.write_error(data).await,
            ChannelMessage::Eof => self.write.eof().await,
            ChannelMessage::ExitStatus(status) => self.write.exit_status(status).await,
            ChannelMessage::ExitSignal {
                name,
                has_dumped_core,
                message,
            } => {
                let signal = Sig::Custom(name);
                let language = String::new();
                let sent = self.handle.exit_signal_request(
                    self.id(),
                    signal,
                    has_dumped_core,
                    message,
                    language,
                );
                sent.await.map_err(|()| russh::Error::SendError)
            }
            ChannelMessage::Started => self.start(far).await,
            ChannelMessage::Refused => {
                let text = "the server has refused to start the program".to_owned();
                return Some(ChannelEnd::Failed(text));
            }
            ChannelMessage::Failed(text) => return Some(ChannelEnd::Failed(text)),
            ChannelMessage::Close => {
                // The client may be gone.
                let _ = self.write.close().await;
                return Some(ChannelEnd::Far);
            }
            ChannelMessage::Sftp(..) | ChannelMessage::Signal(_) | ChannelMessage::Resize(_) => {
                let text = "unexpected message of the far gateway".to_owned();
                return Some(ChannelEnd::Failed(text));
            }
        };
        written.is_err().then_some(ChannelEnd::Client)
    }

    /// Writes bytes of standard output. Waits for the client's window. Discards the bytes if the
    /// client has closed the channel or is gone.
    pub(super) async fn write(&self, data: Bytes) -> Result<(), russh::Error> {
        let _wait = self.client.backpressure.wait_for_window();
        tokio::select! {
            written = self.write.data_bytes(data) => written,
            () = self.held.closed() => Ok(()),
        }
    }

    /// Writes bytes of standard error, by the same rules as `write`.
    async fn write_error(&self, data: Bytes) -> Result<(), russh::Error> {
        let _wait = self.client.backpressure.wait_for_window();
        tokio::select! {
            written = self.write.extended_data_bytes(STANDARD_ERROR, data) => written,
            () = self.held.closed() => Ok(()),
        }
    }

    /// Returns the rule by which SFTP replies are sent early.
    pub(super) fn early(&self) -> EarlyReplies {
        self.client.listener.early
    }

    /// Returns whether the client's identification is that of OpenSSH.
    pub(super) fn is_openssh(&self) -> bool {
        self.client.is_openssh.load(Ordering::Relaxed)
    }

    /// Returns the end of a channel whose stream broke.
    pub(super) async fn stream_end(&self, error: &WireError, far: &FarHalf) -> ChannelEnd {
        ChannelEnd::Failed(match error {
            // If the whole session has ended, the reason of its end is more precise than `error`.
            WireError::Truncated | WireError::Lost(_) => {
                match timeout(END_TIMEOUT, far.wait_for_end()).await {
                    Ok(end) => end.text,
                    Err(_) => "the link was lost".to_owned(),
                }
            }
            error => error.to_string(),
        })
    }

    /// Passes on the banner of the server, which precedes the output of the program.
    async fn start(&self, far: &FarHalf) -> Result<(), russh::Error> {
        let banner = far.take_banner();
        if banner.is_empty() {
            return Ok(());
        }
        self.write_error(Bytes::from(banner)).await
    }

    /// Sends the client a message without effect whenever the gateway reads nothing from the
    /// connection. The function never returns.
    ///
    /// If the client is gone and its data fill all buffers, the end of its connection cannot reach
    /// the gateway. The client's system then resets the connection when the message arrives.
    pub(super) async fn probe_while_paused(&self) {
        loop {
            sleep(PROBE_INTERVAL).await;
            if self.client.backpressure.is_paused() {
                // Clients without flow control ignore this request (RFC 4254 section 6.8).
                let _ = self.handle.xon_xoff_request(self.id(), true).await;
            }
        }
    }

    /// Ends the channel in the same way as a program of the server that succeeds.
    pub(super) async fn succeed(&self) {
        let end = async {
            self.write.exit_status(0).await?;
            self.write.eof().await?;
            self.write.close().await
        };
        // The client may be gone, or may not read.
        let _ = timeout(SAY_TIMEOUT, end).await;
    }

    /// Ends the channel with a sentence and a failure, and logs the sentence.
    pub(super) async fn refuse(&self, text: &str) {
        info!(text, "channel refused");
        self.fail(text).await;
    }

    /// Ends the channel with a sentence and a failure.
    async fn fail(&self, text: &str) {
        let line = Bytes::from(format!("longhaul: {text}\r\n"));
        let say = async {
            self.write.extended_data_bytes(STANDARD_ERROR, line).await?;
            self.write.exit_status(FAILURE_STATUS).await?;
            self.write.eof().await?;
            self.write.close().await
        };
        // The client may be gone, or may not read.
        if !matches!(timeout(SAY_TIMEOUT, say).await, Ok(Ok(()))) {
            let _ = timeout(SAY_TIMEOUT, self.write.close()).await;
        }
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.held.discard();
    }
}

/// Type code of standard error (RFC 4254 section 5.2).
const STANDARD_ERROR: u32 = 1;

/// Exit status of `ssh` after an error of its own.
const FAILURE_STATUS: u32 = 255;

/// Time in which the server must accept some bytes of a client that has closed the channel or is
/// gone.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between messages to a client from which the gateway reads nothing.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// Time limit for the client to read a sentence.
const SAY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the end of the session. The time starts when the stream of a channel has broken.
const END_TIMEOUT: Duration = Duration::from_secs(1);
