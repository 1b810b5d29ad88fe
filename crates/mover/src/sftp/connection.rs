//! SSH connection to a server or to the listener of a gateway: key exchange, log-in, and the
//! channel with SFTP.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use net::tls::Leg;
use russh::{
    ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Disconnect,
    client::{self, Handle, Msg},
    keys::Algorithm,
};
use tokio::time::timeout;

use super::{
    SftpDial,
    abortable::AbortSwitch,
    exchange::{ChannelEnd, FromServer, ToServer},
    forwarded_agent::ForwardedAgent,
    host_key::HostKeyCheck,
    identity::LogInKey,
    login,
    messages::{END_DELAY, ServerMessages, SshState},
};
use crate::server::{HostKeyRejection, ServerError};

/// SSH connection whose server has accepted the log-in. Dropping the value ends the connection.
pub(super) struct SshConnection {
    handle: Handle<ServerMessages>,
    switch: AbortSwitch,
    state: Arc<SshState>,
}

/// The two directions of the channel that carries SFTP.
pub(super) type OpenedChannel = (ChannelWriteHalf<Msg>, ChannelFromServer);

/// The direction of the channel from the server to the mover.
pub(super) struct ChannelFromServer {
    read: ChannelReadHalf,
    state: Arc<SshState>,
    /// First bytes of standard error. If the channel ends, they are part of the reported reason.
    errors: Vec<u8>,
}

impl std::fmt::Debug for SshConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SshConnection")
    }
}

impl SshConnection {
    /// Connects, checks the host key, logs in, and starts SFTP on a channel.
    ///
    /// # Errors
    /// [`ServerError`] if one of these steps fails.
    pub(super) async fn open(dial: &SftpDial) -> Result<(Self, OpenedChannel), ServerError> {
        let (mut connection, key) = Self::log_in(dial).await?;
        let opened = connection.open_channel(dial, key);
        let opened = timeout(dial.reply_timeout.max(CHANNEL_TIMEOUT), opened).await;
        let channel = opened.unwrap_or_else(|_| {
            Err(ServerError::Silent {
                peer: dial.describe(),
                command: "the start of SFTP",
                reply_timeout: dial.reply_timeout.max(CHANNEL_TIMEOUT),
            })
        })?;
        Ok((connection, channel))
    }

    async fn log_in(dial: &SftpDial) -> Result<(Self, Option<LogInKey>), ServerError> {
        let mut connection = Self::connect(dial).await?;
        let log_in = login::log_in(&mut connection.handle, &connection.state, dial);
        let key = log_in.await?;
        Ok((connection, key))
    }

    /// Connects and exchanges keys. This method sends no credential.
    async fn connect(dial: &SftpDial) -> Result<Self, ServerError> {
        let (host, port) = dial.next_hop();
        let mut failure = None;
        let check = HostKeyCheck::prepare(&dial.host_keys, host, port).await?;
        for algorithms in check.offers() {
            let check = HostKeyCheck::prepare(&dial.host_keys, host, port).await?;
            match Self::connect_with(dial, algorithms, check).await {
                Ok(connection) => return Ok(connection),
                // A server may have several host keys, and the pinned key may belong to another
                // algorithm.
                Err(error) if is_of_key(&error) => {
                    let of_key = failure.filter(|it| matches!(it, ServerError::HostKey(_)));
                    failure = of_key.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| no_ssh(dial, io::ErrorKind::InvalidData, "no host key")))
    }

    async fn connect_with(
        dial: &SftpDial,
        algorithms: Vec<Algorithm>,
        check: HostKeyCheck,
    ) -> Result<Self, ServerError> {
        let state = Arc::new(SshState::new(check));
        let messages = ServerMessages::new(state.clone());
        let switch = AbortSwitch::default();
        let stream = switch.guard(Leg::plain(dial.connect().await?));
        let config = client::Config {
            window_size: WINDOW_BYTES,
            maximum_packet_size: PACKET_BYTES,
            ..ssh::client_config(algorithms)
        };
        let connected = client::connect_stream(Arc::new(config), stream, messages);
        let connected = timeout(dial.reply_timeout, connected).await;
        let key = state.take_host_key();
        match (connected, key) {
            (_, Some(Err(rejection))) => Err(rejection.into()),
            (Ok(Ok(handle)), Some(Ok(_))) => Ok(Self {
                handle,
                switch,
                state,
            }),
            (Ok(Ok(_)), None) => Err(no_ssh(dial, io::ErrorKind::InvalidData, "no host key")),
            (Ok(Err(error)), _) => Err(ssh_error(dial, error, state.end_text())),
            (Err(_), _) => Err(no_ssh(dial, io::ErrorKind::TimedOut, "no answer in time")),
        }
    }

    /// Opens a channel, and starts SFTP on it. If a gateway is on the route, the gateway may use a
    /// forwarded agent, which has the key of the log-in.
    async fn open_channel(
        &mut self,
        dial: &SftpDial,
        key: Option<LogInKey>,
    ) -> Result<OpenedChannel, ServerError> {
        let agent = key.filter(|_| dial.is_behind_gateway());
        let forwards_agent = agent.is_some();
        if let Some(key) = agent {
            let agent = ForwardedAgent::new(dial.user.clone(), key);
            self.state.forward_agent(agent);
        }
        let opened = self.handle.channel_open_session().await;
        let channel = match opened {
            Ok(channel) => channel,
            Err(error) => return Err(self.no_sftp(dial, &error.to_string()).await),
        };
        let (mut read, write) = channel.split();
        let started = async {
            if forwards_agent {
                write.agent_forward(false).await?;
            }
            write.request_subsystem(true, "sftp").await
        };
        if let Err(error) = started.await {
            return Err(self.no_sftp(dial, &error.to_string()).await);
        }
        let mut errors = Vec::new();
        loop {
            match read.wait().await {
                Some(ChannelMsg::Success) => break,
                Some(ChannelMsg::ExtendedData { data, .. }) => keep(&mut errors, &data),
                Some(ChannelMsg::Failure) => {
                    return Err(self.no_sftp(dial, "the subsystem is refused").await);
                }
                None | Some(ChannelMsg::Close | ChannelMsg::Eof) => {
                    let text = String::from_utf8_lossy(&errors);
                    return Err(self.no_sftp(dial, text.trim()).await);
                }
                Some(_) => {}
            }
        }
        let from_server = ChannelFromServer {
            read,
            state: self.state.clone(),
            errors,
        };
        Ok((write, from_server))
    }

    /// Returns the error of a server that does not start SFTP. The reason may arrive in a
    /// disconnect message.
    async fn no_sftp(&self, dial: &SftpDial, text: &str) -> ServerError {
        let _ = timeout(END_DELAY, self.state.ended()).await;
        let (end, banner) = (self.state.end_text(), self.state.banner());
        let reasons = [Some(text.escape_debug().to_string()), end, Some(banner)];
        let reasons: Vec<String> = reasons
            .into_iter()
            .flatten()
            .filter(|it| !it.is_empty())
            .collect();
        ServerError::NoSftp {
            peer: dial.describe(),
            reason: reasons.join("; "),
        }
    }

    /// Sends a disconnect message.
    pub(super) async fn disconnect(&self) {
        let disconnect = self.handle.disconnect(Disconnect::ByApplication, "", "");
        // The connection may have ended.
        let _ = timeout(END_DELAY, disconnect).await;
    }

    /// Waits until the server has closed its side, or until `limit` has passed. Then aborts the
    /// connection.
    pub(super) async fn ended(&self, limit: Duration) {
        let _ = timeout(limit, self.state.ended()).await;
        self.switch.abort();
    }
}

/// Returns the error for a connection on which SSH did not start.
fn no_ssh(dial: &SftpDial, kind: io::ErrorKind, text: &str) -> ServerError {
    ServerError::Ssh {
        peer: dial.describe(),
        source: io::Error::new(kind, text),
    }
}

fn ssh_error(dial: &SftpDial, error: russh::Error, end: Option<String>) -> ServerError {
    let source = match error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => {
            let theirs = theirs.join(", ");
            let text = format!(
                "no common algorithm for {kind:?}: the server offers {}",
                theirs.escape_debug()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        }
        russh::Error::IO(error) => error,
        error => match end {
            Some(text) => io::Error::new(io::ErrorKind::ConnectionReset, text),
            None => io::Error::other(error),
        },
    };
    ServerError::Ssh {
        peer: dial.describe(),
        source,
    }
}

/// Returns whether the connection could succeed with another host key of the server.
fn is_of_key(error: &ServerError) -> bool {
    match error {
        ServerError::HostKey(rejection) => {
            matches!(rejection, HostKeyRejection::NotPinned { .. })
        }
        ServerError::Ssh { source, .. } => source.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

impl ToServer for ChannelWriteHalf<Msg> {
    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        let sent = self.data_bytes(bytes).await;
        sent.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error))
    }
}

impl FromServer for ChannelFromServer {
    async fn receive(&mut self) -> Result<Bytes, ChannelEnd> {
        loop {
            match self.read.wait().await {
                Some(ChannelMsg::Data { data }) => return Ok(data),
                Some(ChannelMsg::ExtendedData { data, .. }) => keep(&mut self.errors, &data),
                Some(ChannelMsg::Eof | ChannelMsg::Close) | None => break,
                Some(_) => {}
            }
        }
        let reason = self.state.reason().await;
        let errors = String::from_utf8_lossy(&self.errors);
        let text = match (reason, errors.trim()) {
            (Some(reason), _) => reason,
            (None, "") => "the server has closed the channel".to_owned(),
            (None, errors) => errors.escape_debug().to_string(),
        };
        Err(ChannelEnd {
            kind: io::ErrorKind::UnexpectedEof,
            text,
        })
    }
}

/// Keeps the first bytes of standard error.
fn keep(errors: &mut Vec<u8>, data: &[u8]) {
    let room = ERRORS_MAX - errors.len().min(ERRORS_MAX);
    errors.extend_from_slice(&data[..data.len().min(room)]);
}

/// Window of the channel in bytes. The window may be large, because the number of outstanding READs
/// already limits the memory.
const WINDOW_BYTES: u32 = 64 * 1024 * 1024;

/// Maximum length of a packet of the server, in bytes.
const PACKET_BYTES: u32 = 65_535;

/// Minimum of the time limit for the start of SFTP. During this time, a gateway connects to the
/// server.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of bytes of standard error.
const ERRORS_MAX: usize = 512;
