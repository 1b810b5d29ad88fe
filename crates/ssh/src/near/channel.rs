//! Channel of one client: a program at the server, its input and its output.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use link::{StreamClass, StreamError};
use relay::status::OpenTransfer;
use russh::{
    ChannelId, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig,
    server::{Handle, Msg},
};
use sftp::EarlyReplies;
use tokio::time::timeout;
use tracing::{debug, info};

use super::{
    client::Client, far_half::FarHalf, handler::PendingChannel, login, sftp::SftpChannel,
    transfers::Transfers,
};
use crate::{
    backpressure::HeldBytes,
    settings::ChannelKind,
    signals::signal_name,
    wire::{
        self, FrameReader, FrameWriter, WireError,
        channel::{Channel, ChannelMessage, DATA, Program, TerminalSize},
    },
};

/// End of a channel, as the near half sees it.
#[derive(Debug)]
pub(super) enum ChannelEnd {
    /// The client has closed the channel, or is gone.
    Client,
    /// The far half has closed the channel. Its output has reached the client.
    Far,
    /// The link or the server is lost, or the far half cannot open the channel. The text is a
    /// sentence for the user.
    Failed(String),
}

/// End of a channel at the client.
pub(super) struct ClientEnd {
    write: ChannelWriteHalf<Msg>,
    handle: Handle,
    /// Bytes that the channel has received from the client and not passed on yet.
    pub(super) held: Arc<HeldBytes>,
    client: Arc<Client>,
}

/// Runs a program at the server for a channel of a client, until the channel is closed.
pub(super) async fn serve(
    client: Arc<Client>,
    pending: PendingChannel,
    program: Program,
    handle: Handle,
) {
    let _open = client.open_channel();
    let PendingChannel {
        mut read,
        write,
        held,
        terminal,
        environment,
        has_agent,
    } = pending;
    let end = ClientEnd {
        write,
        handle,
        held,
        client,
    };
    let client = &end.client;
    if !client.listener.channels.contains(&kind(&program)) {
        return end
            .refuse("this listener of the gateway does not permit it")
            .await;
    }
    let Some(far) = client.far_half() else {
        return end.refuse("the session has no server").await;
    };
    // The far half waits for the log-in, so both requests cross the link at the same time.
    let class = match terminal.is_some() {
        true => StreamClass::Control,
        false => StreamClass::Bulk,
    };
    let name = name(&program);
    let first = Channel {
        token: far.token,
        program,
        terminal,
        environment,
    };
    let (login, opened) = tokio::join!(
        login::complete(client, has_agent, &end.handle),
        open(client, &far, &first, class)
    );
    let (mut send, mut frames) = match (login, opened) {
        (Ok(_), Ok(opened)) => opened,
        (Err(text), _) | (Ok(_), Err(text)) => return end.refuse(&text).await,
    };
    let ended = match first.program {
        Program::Sftp => {
            let user = login::user(client).await;
            let transfers = Transfers::new(client.clone(), &far, user);
            let channel = SftpChannel::new(&end, &far, transfers);
            channel.run(&mut read, &mut send, &mut frames).await
        }
        _ => relay(&end, &far, name, &mut read, &mut send, &mut frames).await,
    };
    debug!(?ended, "channel ended");
    match ended {
        ChannelEnd::Far => send.stream().finish(),
        ChannelEnd::Client => close(&mut send).await,
        ChannelEnd::Failed(text) => {
            send.stream().reset(CANCELLED);
            end.refuse(&text).await;
        }
    }
}

/// Relays the bytes of a program, until the client or the far half closes the channel.
async fn relay(
    end: &ClientEnd,
    far: &FarHalf,
    name: String,
    read: &mut ChannelReadHalf,
    send: &mut FrameWriter,
    frames: &mut FrameReader,
) -> ChannelEnd {
    let client = &end.client;
    let transfer = client.relay.registry().transfer(
        "ssh",
        true,
        client.session,
        client.relay.peer_name(far.peer),
        &client.address.to_string(),
        &far.target.to_string(),
    );
    transfer.set_requested_path(name);
    let ended = tokio::select! {
        ended = upload(read, send, &end.held, &transfer) => ended,
        ended = end.download(frames, far, &transfer) => ended,
        () = transfer.wait_for_stop() => ChannelEnd::Failed("stopped by the operator".to_owned()),
    };
    if matches!(ended, ChannelEnd::Far) {
        transfer.mark_completed();
    }
    ended
}

/// Opens the stream of a channel, and sends its first message.
///
/// # Errors
/// The reason, as a sentence for the user.
async fn open(
    client: &Client,
    far: &FarHalf,
    first: &Channel,
    class: StreamClass,
) -> Result<(FrameWriter, FrameReader), String> {
    let opened = client
        .relay
        .open_beside(wire::CHANNEL, far.peer, far.stream, class)
        .await;
    let (send, recv) = opened.map_err(|error| error.to_string())?;
    let mut send = FrameWriter::new(send);
    let sent = send.write(first.encode()).await;
    sent.map_err(|error| format!("the link was lost: {error}"))?;
    Ok((send, FrameReader::new(recv, Bytes::new())))
}

/// Passes on the messages of the client, until the client closes the channel.
async fn upload(
    read: &mut ChannelReadHalf,
    send: &mut FrameWriter,
    held: &HeldBytes,
    transfer: &OpenTransfer,
) -> ChannelEnd {
    let meter = &transfer.meters().0;
    while let Some(message) = read.wait().await {
        let sent = match message {
            ChannelMsg::Data { data } => {
                let count = data.len();
                meter.start_link_wait();
                let sent = send.write_data(DATA, data).await;
                meter.start_tcp_wait();
                meter.add_bytes(count);
                held.remove(count);
                sent
            }
            ChannelMsg::ExtendedData { data, .. } => {
                held.remove(data.len());
                Ok(())
            }
            ChannelMsg::Eof => send.write(ChannelMessage::Eof.encode()).await,
            ChannelMsg::Signal { signal } => {
                held.remove(0);
                let name = signal_name(&signal).to_owned();
                send.write(ChannelMessage::Signal(name).encode()).await
            }
            ChannelMsg::WindowChange {
                col_width,
                row_height,
                pix_width,
                pix_height,
            } => {
                held.remove(0);
                let size = TerminalSize {
                    columns: col_width,
                    rows: row_height,
                    width: pix_width,
                    height: pix_height,
                };
                send.write(ChannelMessage::Resize(size).encode()).await
            }
            ChannelMsg::WindowAdjusted { .. } => {
                held.remove(0);
                Ok(())
            }
            ChannelMsg::Close => return ChannelEnd::Client,
            _ => Ok(()),
        };
        if let Err(error) = sent {
            return match error {
                // The far half reports the reason on the other stream.
                StreamError::Stopped { .. } => std::future::pending().await,
                error => ChannelEnd::Failed(format!("the link was lost: {error}")),
            };
        }
    }
    ChannelEnd::Client
}

/// Ends the stream of a channel that the client has closed.
async fn close(send: &mut FrameWriter) {
    let orderly = async {
        send.write(ChannelMessage::Close.encode()).await?;
        send.stream().finish();
        send.stream().closed().await
    };
    // A server that does not read would hold the rest forever.
    if !matches!(timeout(CLOSE_TIMEOUT, orderly).await, Ok(Ok(()))) {
        send.stream().reset(CANCELLED);
    }
}

impl ClientEnd {
    fn id(&self) -> ChannelId {
        self.write.id()
    }

    /// Passes on the messages of the far half, until the far half closes the channel.
    async fn download(
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

    /// Passes on a message of the far half. Returns the end of the channel if it ends.
    pub(super) async fn handle_message(
        &self,
        message: ChannelMessage,
        far: &FarHalf,
    ) -> Option<ChannelEnd> {
        let written = match message {
            ChannelMessage::Data(data) => self.write(data).await,
            ChannelMessage::Extended(data) => {
                let _wait = self.client.backpressure.wait_for_window();
                self.write.extended_data_bytes(STANDARD_ERROR, data).await
            }
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
                info!("the server refused to start a program");
                let failed = self.handle.channel_failure(self.id()).await;
                failed.map_err(|()| russh::Error::SendError)
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

    /// Writes bytes of standard output. Waits for the client's window.
    pub(super) async fn write(&self, data: Bytes) -> Result<(), russh::Error> {
        let _wait = self.client.backpressure.wait_for_window();
        self.write.data_bytes(data).await
    }

    /// Returns the rule by which SFTP replies are sent early.
    pub(super) fn early(&self) -> EarlyReplies {
        self.client.listener.early
    }

    /// Returns the end of a channel whose stream broke.
    pub(super) async fn stream_end(&self, error: &WireError, far: &FarHalf) -> ChannelEnd {
        ChannelEnd::Failed(match error {
            // If the whole session has ended, its reason is more precise.
            WireError::Truncated | WireError::Lost(_) => {
                match timeout(END_TIMEOUT, far.wait_for_end()).await {
                    Ok(end) => end.text,
                    Err(_) => "the link was lost".to_owned(),
                }
            }
            error => error.to_string(),
        })
    }

    /// Reports that the program has started. The banner of the server precedes its output.
    async fn start(&self, far: &FarHalf) -> Result<(), russh::Error> {
        let started = self.handle.channel_success(self.id()).await;
        started.map_err(|()| russh::Error::SendError)?;
        match self.client.new_banner(far) {
            Some(banner) => {
                let banner = Bytes::from(banner);
                self.write.extended_data_bytes(STANDARD_ERROR, banner).await
            }
            None => Ok(()),
        }
    }

    /// Answers the request for a program with a sentence and a failure.
    async fn refuse(&self, text: &str) {
        info!(text, "channel refused");
        // Clients discard the text if the request for the program fails.
        let _ = self.handle.channel_success(self.id()).await;
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

/// Returns the kind of channel that the listener must permit for a program. Subsystems run programs
/// like commands.
fn kind(program: &Program) -> ChannelKind {
    match program {
        Program::Shell => ChannelKind::Shell,
        Program::Exec(_) | Program::Subsystem(_) => ChannelKind::Exec,
        Program::Sftp => ChannelKind::Sftp,
    }
}

/// Returns the name of a program for the status.
fn name(program: &Program) -> String {
    match program {
        Program::Shell => "shell".to_owned(),
        Program::Exec(command) => command
            .escape_ascii()
            .take(NAME_MAX)
            .map(char::from)
            .collect(),
        Program::Subsystem(name) => name.escape_debug().take(NAME_MAX).collect(),
        Program::Sftp => "sftp".to_owned(),
    }
}

/// Type code of standard error (RFC 4254 section 5.2).
const STANDARD_ERROR: u32 = 1;

/// Exit status of `ssh` after an error of its own.
const FAILURE_STATUS: u32 = 255;

/// Code with which a gateway resets the stream of a channel that is not complete.
const CANCELLED: u32 = 1;

/// Maximum length of a program's name in the status.
const NAME_MAX: usize = 200;

/// Time limit for the server to read the rest of a channel that the client has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the client to read a sentence.
const SAY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the end of a session follows the end of its channels.
const END_TIMEOUT: Duration = Duration::from_secs(1);
