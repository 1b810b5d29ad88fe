//! Messages of an SSH server that belong to no channel: its host key, banners, the end of the
//! connection, and channels that the server opens.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use russh::{
    Channel, Names,
    client::{self, ChannelOpenHandle, DisconnectReason, Msg, Session},
    keys::{PublicKey, PublicKeyOrCertificate},
};
use tokio::{sync::watch, time::timeout};

use super::{
    forwarded_agent::{AGENT_CHANNELS_MAX, ForwardedAgent},
    host_key::HostKeyCheck,
};
use crate::server::HostKeyRejection;

/// State of a connection that its tasks share.
#[derive(Debug)]
pub(super) struct SshState {
    check: HostKeyCheck,
    /// Host key of the server, or the reason why it is not trusted.
    host_key: Mutex<Option<Result<PublicKey, HostKeyRejection>>>,
    /// First bytes of the banners during the log-in.
    banner: Mutex<String>,
    /// Reason why the connection has ended. `None` while it is open.
    end: watch::Sender<Option<String>>,
    /// Agent with which a gateway logs in at the server. `None` if the gateway has no permission to
    /// use an agent.
    agent: Mutex<Option<ForwardedAgent>>,
}

/// Handler of the messages of the server.
#[derive(Debug)]
pub(super) struct ServerMessages {
    state: Arc<SshState>,
    agent_channels: usize,
}

impl ServerMessages {
    pub(super) fn new(state: Arc<SshState>) -> Self {
        Self {
            state,
            agent_channels: 0,
        }
    }
}

impl SshState {
    pub(super) fn new(check: HostKeyCheck) -> Self {
        Self {
            check,
            host_key: Mutex::default(),
            banner: Mutex::default(),
            end: watch::Sender::new(None),
            agent: Mutex::default(),
        }
    }

    /// Removes and returns the host key of the server, or the reason why the key is not trusted.
    pub(super) fn take_host_key(&self) -> Option<Result<PublicKey, HostKeyRejection>> {
        lock(&self.host_key).take()
    }

    /// Lets the gateway use an agent for its log-in.
    pub(super) fn forward_agent(&self, agent: ForwardedAgent) {
        *lock(&self.agent) = Some(agent);
    }

    /// Returns the reason why the connection has ended. Returns `None` while it is open.
    pub(super) fn end_text(&self) -> Option<String> {
        self.end.borrow().clone()
    }

    /// Waits until the connection has ended.
    pub(super) async fn ended(&self) {
        let mut end = self.end.subscribe();
        // The sender is part of this value, so the wait cannot fail.
        let _ = end.wait_for(Option::is_some).await;
    }

    /// Returns the reason why the connection has ended, and the banner of the server. If the reason
    /// is not known yet, waits a short time for it.
    pub(super) async fn reason(&self) -> Option<String> {
        let _ = timeout(END_DELAY, self.ended()).await;
        let end = self.end.borrow().clone();
        let banner = Some(self.banner()).filter(|it| !it.is_empty());
        match (end, banner) {
            (Some(end), Some(banner)) => Some(format!("{end}; {banner}")),
            (end, banner) => end.or(banner),
        }
    }

    /// Whether the library has reported the end of the connection.
    pub(super) fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Returns the banners of the server on one line.
    pub(super) fn banner(&self) -> String {
        let banner = lock(&self.banner);
        let lines = banner.lines().map(str::trim).filter(|it| !it.is_empty());
        let lines: Vec<String> = lines.map(|it| it.escape_debug().to_string()).collect();
        lines.join(" ")
    }
}

impl client::Handler for ServerMessages {
    type Error = russh::Error;

    async fn auth_banner(&mut self, banner: &str, _: &mut Session) -> Result<(), Self::Error> {
        let mut kept = lock(&self.state.banner);
        let room = BANNER_MAX.saturating_sub(kept.len());
        kept.extend(banner.chars().take(room));
        Ok(())
    }

    async fn check_server_key(
        &mut self,
        presented: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = presented else {
            // The mover offers no algorithms with certificates.
            return Ok(false);
        };
        let state = self.state.clone();
        let checked = {
            let key = key.clone();
            // The check may write to a file.
            tokio::task::spawn_blocking(move || state.check.check(&key).map(|()| key)).await
        };
        let checked = checked.map_err(|_| russh::Error::Disconnect)?;
        let is_trusted = checked.is_ok();
        *lock(&self.state.host_key) = Some(checked);
        Ok(is_trusted)
    }

    async fn kex_done(
        &mut self,
        _: Option<&[u8]>,
        names: &Names,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        match &*lock(&self.state.host_key) {
            Some(Ok(key)) if !ssh::is_of_algorithm(key, &names.key) => {
                Err(russh::Error::WrongServerSig)
            }
            _ => Ok(()),
        }
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        let agent = lock(&self.state.agent).clone();
        // Without a call of `accept`, the channel is refused.
        if let Some(agent) = agent
            && self.agent_channels < AGENT_CHANNELS_MAX
        {
            self.agent_channels += 1;
            reply.accept().await;
            tokio::spawn(async move { agent.serve(channel.into_stream()).await });
        }
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<Self::Error>,
    ) -> Result<(), Self::Error> {
        let (text, result) = match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                let message: String = info.message.chars().take(BANNER_MAX).collect();
                let text = match message.trim() {
                    "" => "the server has disconnected".to_owned(),
                    message => message.escape_debug().to_string(),
                };
                (text, Ok(()))
            }
            DisconnectReason::Error(error) => (error.to_string(), Err(error)),
        };
        self.state.end.send_replace(Some(text));
        result
    }
}

/// Locks the mutex. The value is valid even if a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum time that the mover waits for the reason after a channel or connection has ended.
pub(super) const END_DELAY: Duration = Duration::from_millis(500);

/// Maximum number of characters of banners.
const BANNER_MAX: usize = 1024;
