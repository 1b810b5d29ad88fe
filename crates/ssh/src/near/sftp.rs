//! The subsystem `sftp` of one client: the near half of the SFTP session, between the client's
//! channel and the stream of the channel.

use std::{
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use russh::{ChannelMsg, ChannelReadHalf};
use sftp::{EncodedMessage, NearSettings, SftpError, SftpNear, ToNear};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    client_end::{ChannelEnd, ClientEnd, STALL_TIMEOUT},
    far_half::FarHalf,
    transfers::Transfers,
};
use crate::{
    backpressure::ReadAheadShare,
    signals::signal_name,
    wire::{FrameReader, FrameWriter, WireError, channel::ChannelMessage},
};

/// Near half of an SFTP session, with the transfers that it reports.
pub(super) struct SftpChannel<'a> {
    client: &'a ClientEnd,
    far: &'a FarHalf,
    state: Mutex<State>,
    /// Wakes each task whenever the state has changed. There is one task for each direction of each
    /// end, and one for the time.
    changes: [Notify; 5],
    _read_ahead: ReadAheadShare,
}

struct State {
    session: SftpNear,
    /// Start of the session.
    started: Instant,
    transfers: Transfers,
    /// Whether the client has ended its data.
    has_client_ended: bool,
    /// Whether all answers have been written to the client.
    is_written: bool,
}

impl State {
    /// Passes the events of the session on to the status.
    fn report(&mut self) {
        while let Some(event) = self.session.next_event() {
            self.transfers.record(event);
        }
    }
}

impl<'a> SftpChannel<'a> {
    pub(super) fn new(client: &'a ClientEnd, far: &'a FarHalf, transfers: Transfers) -> Self {
        let settings = NearSettings::default();
        let read_ahead = ReadAheadShare::take(settings.read_ahead_max);
        let settings = NearSettings {
            early: client.early(),
            read_ahead_max: read_ahead.bytes(),
            is_openssh: client.is_openssh(),
            ..settings
        };
        Self {
            client,
            far,
            state: Mutex::new(State {
                session: SftpNear::new(settings),
                started: Instant::now(),
                transfers,
                has_client_ended: false,
                is_written: true,
            }),
            changes: [(); 5].map(|()| Notify::new()),
            _read_ahead: read_ahead,
        }
    }

    /// Passes on requests and answers, until the client or the far half closes the channel.
    pub(super) async fn run(
        &self,
        read: &mut ChannelReadHalf,
        send: &mut FrameWriter,
        frames: &mut FrameReader,
    ) -> ChannelEnd {
        let end = tokio::select! {
            end = self.read_client(read) => end,
            end = self.read_far(frames) => end,
            end = self.write_client() => end,
            end = self.write_far(send) => end,
            end = self.pass_time() => end,
            () = self.client.held.stalled_after_close(STALL_TIMEOUT) => ChannelEnd::Client,
            () = self.wait_for_stop() => ChannelEnd::Failed("stopped by the operator".to_owned()),
        };
        if matches!(end, ChannelEnd::Client) {
            // The gateway may have answered these requests early.
            while let Some(message) = self.next_far_message() {
                send.queue_sftp(message);
            }
        }
        let mut state = self.lock();
        let reason = match &end {
            ChannelEnd::Client => "the client has closed the channel",
            ChannelEnd::Far => "the server has closed the channel",
            ChannelEnd::Failed(text) => text,
        };
        state.session.end(reason);
        state.report();
        end
    }

    async fn read_client(&self, read: &mut ChannelReadHalf) -> ChannelEnd {
        loop {
            self.wait_until(0, |state| state.session.wants_client_bytes())
                .await;
            self.lock().transfers.wait_for_client();
            let message = read.wait().await;
            self.lock().transfers.wait_for_far();
            match message {
                Some(ChannelMsg::Data { data }) => {
                    self.client.held.remove(data.len());
                    let received = self.change(|state| state.session.receive_from_client(data));
                    if let Err(error) = received {
                        return failed(&error);
                    }
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => self.client.held.remove(data.len()),
                Some(ChannelMsg::WindowAdjusted { .. } | ChannelMsg::WindowChange { .. }) => {
                    self.client.held.remove(0)
                }
                Some(ChannelMsg::Signal { signal }) => {
                    self.client.held.remove(signal_name(&signal).len());
                }
                Some(ChannelMsg::Eof) => {
                    self.client.held.remove(0);
                    self.change(|state| state.has_client_ended = true);
                }
                Some(ChannelMsg::Close) | None => return ChannelEnd::Client,
                Some(_) => {}
            }
        }
    }

    async fn read_far(&self, frames: &mut FrameReader) -> ChannelEnd {
        loop {
            self.wait_until(1, |state| state.session.wants_far_messages())
                .await;
            let message = match frames.next().await {
                Ok(Some(frame)) => ChannelMessage::decode(frame),
                Ok(None) => Err(WireError::Truncated),
                Err(error) => Err(error),
            };
            let message = match message {
                Ok(ChannelMessage::Sftp(kind, body)) => {
                    let message = ToNear::decode(kind, body);
                    let received = match message {
                        Ok(message) => self.change(|state| state.session.receive_from_far(message)),
                        Err(error) => return ChannelEnd::Failed(error.to_string()),
                    };
                    match received {
                        Ok(()) => continue,
                        Err(error) => return failed(&error),
                    }
                }
                Ok(message) => message,
                Err(error) => return self.client.stream_end(&error, self.far).await,
            };
            if !matches!(
                message,
                ChannelMessage::Started | ChannelMessage::Extended(_)
            ) {
                // The answers precede the end of the data.
                self.wait_until(1, |state| state.is_written).await;
            }
            if let Some(end) = self.client.handle_message(message, self.far).await {
                return end;
            }
        }
    }

    async fn write_client(&self) -> ChannelEnd {
        loop {
            let Some(bytes) = self.next_client_bytes() else {
                self.changes[2].notified().await;
                continue;
            };
            // The client's requests precede its end, so `read_client` reports the end.
            let _ = self.client.write(bytes).await;
        }
    }

    async fn write_far(&self, send: &mut FrameWriter) -> ChannelEnd {
        let mut has_sent_end = false;
        loop {
            if send.flush().await.is_err() {
                // The far half reports the reason on the other stream.
                pending::<()>().await;
            }
            if let Some(message) = self.next_far_message() {
                send.queue_sftp(message);
            } else if !has_sent_end && self.lock().has_client_ended {
                has_sent_end = true;
                send.queue(ChannelMessage::Eof.encode());
            } else {
                self.changes[3].notified().await;
            }
        }
    }

    /// States the time whenever the session needs it.
    async fn pass_time(&self) -> ChannelEnd {
        loop {
            let due = {
                let state = self.lock();
                state.session.next_due().map(|due| state.started + due)
            };
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = wait => self.change(|_| ()),
                () = self.changes[4].notified() => {}
            }
        }
    }

    /// Waits until the operator stops a transfer.
    async fn wait_for_stop(&self) {
        let stops = self.lock().transfers.stops();
        stops.notified().await;
    }

    /// Returns bytes for the client. Small pieces are joined, because each one would be a packet.
    fn next_client_bytes(&self) -> Option<Bytes> {
        let bytes = {
            let mut state = self.lock();
            let first = state.session.next_client_bytes();
            state.is_written = first.is_none();
            match first {
                Some(first) if first.len() < PACKET_BYTES => {
                    let mut joined = BytesMut::with_capacity(2 * PACKET_BYTES);
                    joined.extend_from_slice(&first);
                    while joined.len() < PACKET_BYTES
                        && let Some(next) = state.session.next_client_bytes()
                    {
                        joined.extend_from_slice(&next);
                    }
                    Some(joined.freeze())
                }
                first => first,
            }
        };
        self.changes.iter().take(2).for_each(Notify::notify_one);
        bytes
    }

    fn next_far_message(&self) -> Option<EncodedMessage> {
        let message = self.lock().session.next_far_message()?;
        self.changes[0].notify_one();
        Some(message.encode())
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
            let now = state.started.elapsed();
            state.session.set_time(now);
            let changed = change(&mut state);
            state.is_written = false;
            state.report();
            changed
        };
        self.changes.iter().for_each(Notify::notify_one);
        changed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(error: &SftpError) -> ChannelEnd {
    ChannelEnd::Failed(error.to_string())
}

/// Number of bytes in a packet to the client. OpenSSH's clients accept no larger packets.
const PACKET_BYTES: usize = 32 * 1024;
