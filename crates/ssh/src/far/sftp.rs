//! The subsystem `sftp` at the server: the far half of the SFTP session, between the stream of the
//! channel and the channel of the server.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, client::Msg};
use sftp::{FarSettings, SftpError, SftpFar, ToFar};
use tokio::{
    sync::{Notify, mpsc},
    time::sleep,
};
use tracing::debug;

use super::{connection::ServerState, exit::exit_message};
use crate::{
    backpressure::HeldBytes,
    wire::{
        FrameReader, FrameWriter, WireError,
        channel::{ChannelMessage, EXTENDED},
    },
};

/// End of an SFTP session, as the far half sees it.
#[derive(Debug)]
pub(super) enum SftpEnd {
    /// The near half has closed the channel, or its stream broke.
    Near,
    /// The server has closed the channel, and all its answers have been written.
    Server,
    /// The server or the near half has violated the protocol.
    Violation(String),
}

/// Far half of an SFTP session.
pub(super) struct SftpChannel<'a> {
    held: &'a HeldBytes,
    server: &'a ServerState,
    state: Mutex<State>,
    /// Wakes each task whenever the state has changed. There is one task for each direction of each
    /// end.
    changes: [Notify; 4],
}

struct State {
    session: SftpFar,
    near: NearState,
}

/// Progress of the near half's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NearState {
    Open,
    /// The near half sends no further requests.
    Ended,
    /// The near half has closed the channel.
    Closed,
}

/// Message of the server other than answers.
enum Control {
    /// Message about the program.
    Message(ChannelMessage),
    /// Bytes of standard error.
    Extended(Bytes),
    /// End of the channel.
    Close,
}

impl<'a> SftpChannel<'a> {
    pub(super) fn new(held: &'a HeldBytes, server: &'a ServerState) -> Self {
        Self {
            held,
            server,
            state: Mutex::new(State {
                session: SftpFar::new(FarSettings::default()),
                near: NearState::Open,
            }),
            changes: [(); 4].map(|()| Notify::new()),
        }
    }

    /// Passes on requests and answers, until the near half or the server closes the channel.
    pub(super) async fn run(
        &self,
        read: &mut ChannelReadHalf,
        write: &ChannelWriteHalf<Msg>,
        send: &mut FrameWriter,
        frames: &mut FrameReader,
    ) -> SftpEnd {
        let (controls, to_write) = mpsc::channel(CONTROLS_MAX);
        tokio::select! {
            end = self.read_server(read, controls) => end,
            end = self.read_near(frames) => end,
            end = self.write_server(write) => end,
            end = self.write_near(send, to_write) => end,
        }
    }

    async fn read_server(
        &self,
        read: &mut ChannelReadHalf,
        controls: mpsc::Sender<Control>,
    ) -> SftpEnd {
        loop {
            self.wait_until(0, |state| state.session.wants_server_bytes())
                .await;
            let control = match read.wait().await {
                Some(ChannelMsg::Data { data }) => {
                    self.held.remove(data.len());
                    let received = self.change(|state| state.session.receive_from_server(data));
                    match received {
                        Ok(()) => continue,
                        Err(error) => return violation(&error),
                    }
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    self.held.remove(data.len());
                    Control::Extended(data)
                }
                Some(ChannelMsg::WindowAdjusted { .. }) => {
                    self.held.remove(0);
                    continue;
                }
                Some(ChannelMsg::Success) => Control::Message(ChannelMessage::Started),
                Some(ChannelMsg::Failure) => Control::Message(ChannelMessage::Refused),
                Some(ChannelMsg::Close) => Control::Close,
                None => Control::Message(ChannelMessage::Failed(self.server.end_text().await)),
                Some(other) => match exit_message(other) {
                    Some(message) => Control::Message(message),
                    None => continue,
                },
            };
            let is_end = matches!(
                control,
                Control::Close
                    | Control::Message(ChannelMessage::Refused | ChannelMessage::Failed(_))
            );
            // The receiver is another task of this channel.
            let _ = controls.send(control).await;
            if is_end {
                let _ = controls.send(Control::Close).await;
                std::future::pending::<()>().await;
            }
        }
    }

    async fn read_near(&self, frames: &mut FrameReader) -> SftpEnd {
        loop {
            tokio::select! {
                () = self.wait_until(1, |state| state.session.wants_near_messages()) => {}
                error = frames.failed() => {
                    debug!(%error, "the stream of a channel broke");
                    return SftpEnd::Near;
                }
            }
            let message = match frames.next().await {
                Ok(Some(frame)) => ChannelMessage::decode(frame),
                Ok(None) => Ok(ChannelMessage::Close),
                Err(error) => Err(error),
            };
            match message {
                Ok(ChannelMessage::Sftp(kind, body)) => {
                    let received = match ToFar::decode(kind, body) {
                        Ok(message) => {
                            self.change(|state| state.session.receive_from_near(message))
                        }
                        Err(error) => return SftpEnd::Violation(error.to_string()),
                    };
                    if let Err(error) = received {
                        return violation(&error);
                    }
                }
                Ok(ChannelMessage::Eof) => self.change(|state| state.near = NearState::Ended),
                Ok(ChannelMessage::Close) => {
                    // The near half may have answered the last requests already.
                    self.change(|state| state.near = NearState::Closed);
                    sleep(FLUSH_TIMEOUT).await;
                    return SftpEnd::Near;
                }
                Ok(_) => return SftpEnd::Violation("unexpected message".to_owned()),
                Err(WireError::Lost(_) | WireError::Truncated) => return SftpEnd::Near,
                Err(error) => return SftpEnd::Violation(error.to_string()),
            }
        }
    }

    async fn write_server(&self, write: &ChannelWriteHalf<Msg>) -> SftpEnd {
        let mut has_sent_end = false;
        loop {
            if let Some(bytes) = self.next_server_bytes() {
                let _wait = self.server.backpressure.wait_for_window();
                if write.data_bytes(bytes).await.is_err() {
                    // The end of the connection ends the other direction.
                    std::future::pending::<()>().await;
                }
                continue;
            }
            let (near, is_flushed) = {
                let state = self.lock();
                (state.near, state.session.is_flushed())
            };
            if near == NearState::Closed && is_flushed {
                return SftpEnd::Near;
            }
            if near == NearState::Ended && !has_sent_end {
                has_sent_end = true;
                let _ = write.eof().await;
            }
            self.changes[2].notified().await;
        }
    }

    async fn write_near(
        &self,
        send: &mut FrameWriter,
        mut controls: mpsc::Receiver<Control>,
    ) -> SftpEnd {
        let mut next: Option<Control> = None;
        loop {
            if let Err(error) = send.advance().await {
                debug!(%error, "the stream of a channel broke");
                // The near half may have closed its end in an orderly way.
                std::future::pending::<()>().await;
            }
            // The answers precede the end of the output.
            if let Some(message) = self.next_near_message() {
                send.queue_sftp(message.encode());
                continue;
            }
            match next.take() {
                Some(Control::Message(message)) => send.queue(message.encode()),
                Some(Control::Extended(data)) => {
                    if send.write_data(EXTENDED, data).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                Some(Control::Close) => {
                    send.queue(ChannelMessage::Close.encode());
                    return SftpEnd::Server;
                }
                None => tokio::select! {
                    biased;
                    control = controls.recv() => next = control.or(Some(Control::Close)),
                    () = self.changes[3].notified() => {}
                    // `advance` reports the error again.
                    _ = send.flush_when_idle() => {}
                },
            }
        }
    }

    /// Returns bytes for the server. Small pieces are joined, because each one would be a packet.
    fn next_server_bytes(&self) -> Option<Bytes> {
        let bytes = {
            let session = &mut self.lock().session;
            let first = session.next_server_bytes()?;
            if first.len() < PACKET_BYTES {
                let mut joined = BytesMut::with_capacity(2 * PACKET_BYTES);
                joined.extend_from_slice(&first);
                while joined.len() < PACKET_BYTES
                    && let Some(next) = session.next_server_bytes()
                {
                    joined.extend_from_slice(&next);
                }
                joined.freeze()
            } else {
                first
            }
        };
        self.changes[1].notify_one();
        Some(bytes)
    }

    fn next_near_message(&self) -> Option<sftp::ToNear> {
        let message = self.lock().session.next_near_message()?;
        // The session may read further now.
        self.changes[0].notify_one();
        self.changes[2].notify_one();
        Some(message)
    }

    /// Waits until a condition holds. The task with number `task` calls the function.
    async fn wait_until(&self, task: usize, holds: impl Fn(&State) -> bool) {
        while !holds(&self.lock()) {
            self.changes[task].notified().await;
        }
    }

    /// Changes the state, and wakes the tasks that wait for a change.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = {
            let mut state = self.lock();
            let changed = change(&mut state);
            if state.near == NearState::Closed {
                // The near half reads no more answers. They must not stop the input of the server.
                while state.session.next_near_message().is_some() {}
            }
            changed
        };
        self.changes.iter().for_each(Notify::notify_one);
        changed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn violation(error: &SftpError) -> SftpEnd {
    SftpEnd::Violation(error.to_string())
}

/// Number of bytes in a packet to the server. OpenSSH's server accepts no larger packets.
const PACKET_BYTES: usize = 32 * 1024;

/// Maximum number of messages of the server other than answers that wait for the link.
const CONTROLS_MAX: usize = 16;

/// Time limit for the server to accept the last requests of a client that has closed its channel.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
