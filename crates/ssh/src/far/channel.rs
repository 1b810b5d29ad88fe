//! Channel of a session: a program at the server, its input and its output.

use std::{sync::Arc, time::Duration};

use link::StreamError;
use relay::{Relay, service::ServiceStream};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Error, Pty, Sig, client::Msg};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{
    Sessions,
    connection::ServerState,
    exit::exit_message,
    session::ServerSession,
    sftp::{SftpChannel, SftpEnd},
};
use crate::{
    backpressure::HeldBytes,
    wire::{
        FrameReader, FrameWriter, WireError,
        channel::{Channel, ChannelMessage, DATA, EXTENDED, Program},
    },
};

/// Channel at the server.
struct ServerChannel {
    read: ChannelReadHalf,
    write: ChannelWriteHalf<Msg>,
    held: Arc<HeldBytes>,
    state: Arc<ServerState>,
}

impl Drop for ServerChannel {
    fn drop(&mut self) {
        self.state.release_channel(self.write.id());
    }
}

/// Serves the stream of a channel until the near half or the server closes the channel.
pub(super) async fn serve(sessions: &Sessions, stream: ServiceStream, relay: &Relay) {
    let mut send = FrameWriter::new(stream.send);
    let mut frames = FrameReader::new(stream.recv, stream.first);
    let first = match timeout(OPEN_TIMEOUT, frames.next_whole()).await {
        Ok(Ok(Some((kind, body)))) => Channel::decode(kind, body),
        other => return warn!(?other, "malformed start of a channel"),
    };
    let first = match first {
        Ok(first) => first,
        Err(error) => {
            warn!(%error, "malformed start of a channel");
            return fail(send, error.to_string()).await;
        }
    };
    let Some(session) = sessions.find(stream.peer, first.token) else {
        return fail(send, "the session has ended".to_owned()).await;
    };
    if let Some(number) = first.coded {
        let Some(coding) = session.channel_coding(relay, stream.peer, number) else {
            return fail(send, "the session has no coding".to_owned()).await;
        };
        let counters = relay.registry().stream_coding_counters();
        send.set_coding(&coding, &counters);
        frames.set_coding(&coding, &counters);
    }
    let mut channel = match open(&session, &first, &mut frames).await {
        Ok(channel) => channel,
        Err(text) => return fail(send, text).await,
    };
    let ServerChannel {
        read, write, held, ..
    } = &mut channel;
    let is_closed_by_server = match first.program {
        Program::Sftp => {
            let sftp = SftpChannel::new(held, &session.state);
            match sftp.run(read, write, &mut send, &mut frames).await {
                SftpEnd::Near => false,
                SftpEnd::Server => true,
                SftpEnd::Violation(text) => {
                    warn!(text, "SFTP session aborted");
                    send.queue(ChannelMessage::Failed(text).encode());
                    true
                }
            }
        }
        _ => tokio::select! {
            result = download(read, &mut send, held, &session.state) => {
                if let Err(error) = &result {
                    debug!(%error, "the stream of a channel broke");
                }
                result.is_ok()
            }
            result = upload(&mut frames, write, &session.state) => match result {
                Err(error @ (WireError::Lost(_) | WireError::Truncated)) => {
                    debug!(%error, "the stream of a channel broke");
                    false
                }
                Err(error) => {
                    warn!(%error, "channel aborted");
                    send.queue(ChannelMessage::Failed(error.to_string()).encode());
                    true
                }
                Ok(()) => false,
            },
        },
    };
    if is_closed_by_server {
        let orderly = async {
            send.flush().await?;
            send.finish();
            send.stream().closed().await
        };
        let _ = timeout(CLOSE_TIMEOUT, orderly).await;
    }
    // The connection may be gone.
    let _ = timeout(CLOSE_TIMEOUT, write.close()).await;
}

/// Opens a channel at the server, and requests its program. The server's reply follows as a message
/// of the channel. The program does not start if the near half first resets the stream.
///
/// # Errors
/// The reason, as a sentence for the user.
async fn open(
    session: &ServerSession,
    first: &Channel,
    frames: &mut FrameReader,
) -> Result<ServerChannel, String> {
    let mut handle = session.handle.subscribe();
    let handle = tokio::select! {
        biased;
        error = frames.failed() => return Err(error.to_string()),
        found = timeout(LOGIN_TIMEOUT, handle.wait_for(Option::is_some)) => match found {
            Ok(Ok(found)) => found.clone(),
            _ => None,
        },
        text = session.state.wait_for_end() => return Err(text),
    };
    let handle = handle.ok_or("the log-in at the server is not complete")?;
    // The channel counts as open before the server confirms it. Otherwise the gateway would not
    // read the confirmation while another channel holds bytes.
    let held = HeldBytes::new(session.state.backpressure.clone());
    let opened = tokio::select! {
        biased;
        error = frames.failed() => return Err(error.to_string()),
        opened = timeout(OPEN_TIMEOUT, handle.0.channel_open_session()) => opened,
        text = session.state.wait_for_end() => return Err(text),
    };
    let target = &session.target;
    let opened = opened.map_err(|_| format!("{target} does not open a channel in time"))?;
    let opened = opened.map_err(|error| format!("{target} refuses a channel: {error}"))?;
    let (read, write) = opened.split();
    session.state.hold_channel(write.id(), held.clone());
    let channel = ServerChannel {
        held,
        state: session.state.clone(),
        read,
        write,
    };
    let started = start(&channel.write, first).await;
    started.map_err(|error| format!("{target}: {error}"))?;
    Ok(channel)
}

async fn start(write: &ChannelWriteHalf<Msg>, first: &Channel) -> Result<(), Error> {
    for (name, value) in &first.environment {
        write.set_env(false, name.as_str(), value.as_str()).await?;
    }
    if let Some(terminal) = &first.terminal {
        let size = terminal.size;
        let modes = terminal.modes.iter();
        let modes: Vec<_> = modes
            .filter_map(|(code, value)| Some((Pty::from_u8(*code)?, *value)))
            .collect();
        write
            .request_pty(
                false,
                &terminal.kind,
                size.columns,
                size.rows,
                size.width,
                size.height,
                &modes,
            )
            .await?;
    }
    match &first.program {
        Program::Shell => write.request_shell(true).await,
        Program::Exec(command) => write.exec(true, command.to_vec()).await,
        Program::Subsystem(name) => write.request_subsystem(true, name.as_str()).await,
        Program::Sftp => write.request_subsystem(true, "sftp").await,
    }
}

/// Passes on the messages of the server, until the server closes the channel.
async fn download(
    read: &mut ChannelReadHalf,
    send: &mut FrameWriter,
    held: &HeldBytes,
    state: &ServerState,
) -> Result<(), StreamError> {
    let mut is_started = false;
    let mut has_exited = false;
    loop {
        let message = tokio::select! {
            biased;
            message = read.wait() => message,
            error = send.flush_when_idle() => return Err(error),
        };
        let Some(message) = message else {
            if has_exited {
                // Some servers close the connection instead of the channel.
                break;
            }
            let text = state.end_text().await;
            return send.write(ChannelMessage::Failed(text).encode()).await;
        };
        let message = match message {
            ChannelMsg::Data { data } => {
                let count = data.len();
                let sent = send.write_data(DATA, data).await;
                held.remove(count);
                sent?;
                continue;
            }
            ChannelMsg::ExtendedData { data, .. } => {
                let count = data.len();
                let sent = send.write_data(EXTENDED, data).await;
                held.remove(count);
                sent?;
                continue;
            }
            ChannelMsg::WindowAdjusted { .. } => {
                held.remove(0);
                continue;
            }
            ChannelMsg::Success if !is_started => {
                is_started = true;
                ChannelMessage::Started
            }
            ChannelMsg::Failure if !is_started => {
                send.write(ChannelMessage::Refused.encode()).await?;
                break;
            }
            ChannelMsg::Close => break,
            other => match exit_message(other) {
                Some(message) => {
                    has_exited |= matches!(
                        message,
                        ChannelMessage::ExitStatus(_) | ChannelMessage::ExitSignal { .. }
                    );
                    message
                }
                None => continue,
            },
        };
        send.write(message.encode()).await?;
    }
    send.write(ChannelMessage::Close.encode()).await
}

/// Passes on the messages of the near half, until the near half closes the channel.
async fn upload(
    frames: &mut FrameReader,
    write: &ChannelWriteHalf<Msg>,
    state: &ServerState,
) -> Result<(), WireError> {
    while let Some(frame) = frames.next().await? {
        let written = match ChannelMessage::decode(frame)? {
            ChannelMessage::Data(data) => {
                let _wait = state.backpressure.wait_for_window();
                tokio::select! {
                    written = write.data_bytes(data) => written,
                    // The client has closed the channel while the server does not read.
                    error = frames.failed() => return Err(error),
                }
            }
            ChannelMessage::Eof => write.eof().await,
            ChannelMessage::Signal(name) => write.signal(Sig::Custom(name)).await,
            ChannelMessage::Resize(size) => {
                write
                    .window_change(size.columns, size.rows, size.width, size.height)
                    .await
            }
            ChannelMessage::Close => return Ok(()),
            _ => return Err(WireError::UnknownType(0)),
        };
        if written.is_err() {
            // The connection has ended. The task of the other direction then also ends.
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

/// Reports that the channel cannot be opened.
async fn fail(mut send: FrameWriter, text: String) {
    debug!(text, "no channel");
    send.queue(ChannelMessage::Failed(text).encode());
    let _ = timeout(CLOSE_TIMEOUT, send.flush()).await;
    send.finish();
    let _ = timeout(CLOSE_TIMEOUT, send.stream().closed()).await;
}

/// Time limit for the first message, and for the server to open a channel.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for which a channel waits for a log-in that is in progress. The time limit for the
/// server's answer to a log-in is shorter.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(200);

/// Time limit for the near half or the server to read the last bytes of a channel.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
