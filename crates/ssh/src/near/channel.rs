//! Channel of one client: a program at the server, its input and its output.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use link::{StreamClass, StreamError};
use relay::status::OpenTransfer;
use russh::{ChannelMsg, ChannelReadHalf, server::Handle};
use tokio::{sync::Notify, time::timeout, try_join};
use tracing::debug;

use super::{
    client::Client,
    client_end::{ChannelEnd, ClientEnd, STALL_TIMEOUT},
    far_half::FarHalf,
    login,
    pending_channel::PendingChannel,
    sftp::SftpChannel,
    transfers::Transfers,
};
use crate::{
    backpressure::HeldBytes,
    settings::ChannelKind,
    signals::signal_name,
    wire::{
        self, FrameReader, FrameWriter,
        channel::{Channel, ChannelMessage, DATA, Program, TerminalSize},
    },
};

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
    let class = match terminal.is_some() {
        true => StreamClass::Control,
        false => StreamClass::Bulk,
    };
    let name = name(&program);
    let has_coding = is_coded(&program, terminal.is_some());
    let mut first = Channel {
        token: far.token,
        program,
        terminal,
        environment,
        coded: None,
    };
    // The far half runs each program that it has received as soon as the log-in is complete. The
    // program of a refused channel must not run.
    let may_open = Notify::new();
    let opening = async {
        may_open.notified().await;
        let coded = match has_coding {
            true => far.code_channel(&client.relay),
            false => None,
        };
        first.coded = coded.as_ref().map(|(number, _)| *number);
        let opened = open(client, &far, &first, class).await;
        // A failure must not interrupt the log-in, which further channels use.
        Ok(opened.map(|opened| (opened, coded)))
    };
    let completing = async {
        login::complete(client, has_agent, &end.handle, &may_open).await?;
        may_open.notify_one();
        Ok::<(), String>(())
    };
    let opened = try_join!(opening, completing);
    let ((mut send, mut frames), coded) = match opened.and_then(|(opened, ())| opened) {
        Ok(opened) => opened,
        Err(text) => return end.refuse(&text).await,
    };
    let close_timeout = match first.program {
        Program::Sftp => FLUSH_TIMEOUT,
        _ => CLOSE_TIMEOUT,
    };
    let ended = match first.program {
        Program::Sftp => {
            let user = login::user(client).await;
            let account = (&far.target, &user, client.address.ip());
            let files = client.files.for_account(&account);
            let mut transfers = Transfers::new(client.clone(), &far, user);
            if let Some((_, coding)) = &coded {
                let counters = client.relay.registry().stream_coding_counters();
                send.set_coding(coding, &counters);
                frames.set_coding(coding, &counters);
                transfers.set_coding_counters(counters);
            }
            let channel = SftpChannel::new(&end, &far, transfers, files);
            channel.run(&mut read, &mut send, &mut frames).await
        }
        _ => {
            let transfer = register(&end, &far, name);
            if let Some((_, coding)) = &coded {
                send.set_coding(coding, transfer.coding_counters());
                frames.set_coding(coding, transfer.coding_counters());
            }
            relay(&end, &far, &transfer, &mut read, &mut send, &mut frames).await
        }
    };
    debug!(?ended, "channel ended");
    match ended {
        ChannelEnd::Far => send.finish(),
        ChannelEnd::Client => close(&mut send, close_timeout).await,
        ChannelEnd::Settled => {
            end.succeed().await;
            // The server owes the client nothing, so the session may end before the far half has
            // received the message.
            let closed = send.write(ChannelMessage::Close.encode());
            if matches!(timeout(close_timeout, closed).await, Ok(Ok(()))) {
                send.finish();
            }
        }
        ChannelEnd::Failed(text) => {
            send.stream().reset(CANCELLED);
            end.refuse(&text).await;
        }
    }
}

/// Registers a program in the status.
fn register(end: &ClientEnd, far: &FarHalf, name: String) -> Arc<OpenTransfer> {
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
    transfer
}

/// Relays the bytes of a program, until the client or the far half closes the channel.
async fn relay(
    end: &ClientEnd,
    far: &FarHalf,
    transfer: &OpenTransfer,
    read: &mut ChannelReadHalf,
    send: &mut FrameWriter,
    frames: &mut FrameReader,
) -> ChannelEnd {
    let ended = tokio::select! {
        ended = upload(read, send, &end.held, transfer) => ended,
        ended = end.download(frames, far, transfer) => ended,
        () = end.held.stalled_after_close(STALL_TIMEOUT) => ChannelEnd::Client,
        () = end.probe_while_paused() => ChannelEnd::Client,
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
    loop {
        let message = tokio::select! {
            biased;
            message = read.wait() => message,
            error = send.flush_when_idle() => return broken(error).await,
        };
        let Some(message) = message else {
            return ChannelEnd::Client;
        };
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
            ChannelMsg::Eof => {
                held.remove(0);
                send.write(ChannelMessage::Eof.encode()).await
            }
            ChannelMsg::Signal { signal } => {
                let name = signal_name(&signal).to_owned();
                held.remove(name.len());
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
            return broken(error).await;
        }
    }
}

/// Returns the end of a channel whose stream to the far half broke.
async fn broken(error: StreamError) -> ChannelEnd {
    match error {
        // The far half reports the reason on the other stream.
        StreamError::Stopped { .. } => std::future::pending().await,
        error => ChannelEnd::Failed(format!("the link was lost: {error}")),
    }
}

/// Ends the stream of a channel that the client has closed.
async fn close(send: &mut FrameWriter, limit: Duration) {
    let orderly = async {
        send.write(ChannelMessage::Close.encode()).await?;
        send.finish();
        send.stream().closed().await
    };
    // If the server does not read, the remaining bytes would wait forever.
    if !matches!(timeout(limit, orderly).await, Ok(Ok(()))) {
        send.stream().reset(CANCELLED);
    }
}

/// Whether the data of a program are coded. Data of terminals are not coded: they contain typed
/// passwords, and coding does not shrink single keystrokes.
fn is_coded(program: &Program, has_terminal: bool) -> bool {
    !has_terminal && !matches!(program, Program::Shell)
}

/// Returns the kind of channel that the listener must permit for a program. Subsystems count as
/// commands, because they also run a program.
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

/// Code with which a gateway resets the stream of a channel that is not complete.
const CANCELLED: u32 = 1;

/// Maximum length of a program's name in the status.
const NAME_MAX: usize = 200;

/// Time limit for the server to read the rest of a channel that the client has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the server to confirm all requests of an SFTP client that has closed the channel.
/// The corresponding time limit of the far half is shorter.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(40);
