//! Requests of one client. The methods run in the task of the connection, which serves all channels
//! of the client. After the log-in, the methods therefore never wait.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use russh::{
    Channel, ChannelId, ChannelOpenFailure, MethodKind, Pty,
    keys::Certificate,
    server::{
        Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Response, Session, VerifiedPublicKey,
    },
};
use tracing::{Instrument as _, info};

use super::{channel, client::Client, login, pending_channel::PendingChannel};
use crate::{
    backpressure::HeldBytes,
    signals::signal_name,
    wire::channel::{Program, Terminal, TerminalSize},
};

/// Handler of the requests of one client.
pub(super) struct ClientHandler {
    client: Arc<Client>,
    channels: HashMap<ChannelId, OpenChannel>,
}

/// Channel of a client.
struct OpenChannel {
    held: Arc<HeldBytes>,
    /// Requests before the start of the program. `None` once the program has started.
    pending: Option<PendingChannel>,
}

impl ClientHandler {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            channels: HashMap::new(),
        }
    }

    fn pending(&mut self, channel: ChannelId) -> Option<&mut PendingChannel> {
        self.channels.get_mut(&channel)?.pending.as_mut()
    }

    fn start(
        &mut self,
        channel: ChannelId,
        program: Program,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let pending = self.channels.get_mut(&channel);
        match pending.and_then(|it| it.pending.take()) {
            Some(pending) => {
                let served =
                    channel::serve(self.client.clone(), pending, program, session.handle());
                tokio::spawn(served.in_current_span());
                // The gateway confirms at once, before the server has replied. If the gateway
                // confirmed later, and a request that needs no reply arrived first, the library
                // would forget that this reply is due. A later refusal reaches the client as a text
                // and an exit status.
                session.channel_success(channel)
            }
            None => session.channel_failure(channel),
        }
    }

    /// Counts a request that the queue of a channel keeps.
    fn count_request(&self, channel: ChannelId, field_bytes: usize) -> Result<(), russh::Error> {
        let Some(channel) = self.channels.get(&channel) else {
            return Ok(());
        };
        channel.held.count_request(field_bytes).map_err(|error| {
            info!("client disconnected: too many requests on one channel");
            error.into()
        })
    }

    fn hold(&self, channel: ChannelId, bytes: usize) {
        if let Some(channel) = self.channels.get(&channel) {
            channel.held.add(bytes);
        }
    }
}

impl Drop for ClientHandler {
    fn drop(&mut self) {
        // The connection has ended.
        self.channels.values().for_each(|it| it.held.close());
    }
}

impl Handler for ClientHandler {
    type Error = russh::Error;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, Self::Error> {
        let auth = login::methods(&self.client, user).await;
        Ok(answer(&self.client, auth, MethodKind::None).await)
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        let auth = login::password(&self.client, user, password).await;
        Ok(answer(&self.client, auth, MethodKind::Password).await)
    }

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        let algorithm = offer.algorithm.to_string();
        let auth = login::key_offered(&self.client, user, offer.public_key, algorithm).await;
        // The rejection marks no method as already tried, because the client may have another key.
        Ok(answer(&self.client, auth, MethodKind::None).await)
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        let auth = login::key_proved(&self.client, user, key.public_key).await;
        Ok(answer(&self.client, auth, MethodKind::None).await)
    }

    async fn auth_openssh_certificate(
        &mut self,
        user: &str,
        certificate: &Certificate,
    ) -> Result<Auth, Self::Error> {
        let key = certificate.public_key().clone().into();
        let auth = login::key_proved(&self.client, user, &key).await;
        Ok(answer(&self.client, auth, MethodKind::None).await)
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        let answers = response.map(|it| it.map(|it| text(&it)).collect());
        let auth = login::interactive(&self.client, user, submethods, answers).await;
        Ok(answer(&self.client, auth, MethodKind::KeyboardInteractive).await)
    }

    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), Self::Error> {
        let is_openssh = session.remote_sshid().starts_with(b"SSH-2.0-OpenSSH_");
        self.client.is_openssh.store(is_openssh, Ordering::Relaxed);
        self.client.is_logged_in.send_replace(true);
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        // The task of a channel may still run after the client has closed the channel.
        let with_task = *self.client.channels.borrow();
        if self.channels.len().max(with_task) >= CHANNELS_MAX {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let held = HeldBytes::new(self.client.backpressure.clone());
        let id = channel.id();
        let (read, write) = channel.split();
        let pending = PendingChannel {
            read,
            write,
            held: held.clone(),
            terminal: None,
            environment: Vec::new(),
            has_agent: false,
        };
        let channel = OpenChannel {
            held,
            pending: Some(pending),
        };
        self.channels.insert(id, channel);
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        info!(host, port, "port forwarding refused");
        reply.reject(forwarding_refused()).await;
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.reject(forwarding_refused()).await;
        Ok(())
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(channel) = self.channels.remove(&channel) {
            channel.held.close();
            if channel.pending.is_some() {
                channel.held.discard();
            }
        }
        Ok(())
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.hold(channel, data.len());
        Ok(())
    }

    async fn extended_data(
        &mut self,
        channel: ChannelId,
        _: u32,
        data: &[u8],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.hold(channel, data.len());
        Ok(())
    }

    async fn window_adjusted(
        &mut self,
        channel: ChannelId,
        _: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.hold(channel, 0);
        Ok(())
    }

    async fn channel_eof(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.hold(channel, 0);
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.count_request(channel, term.len() + size_of_val(modes))?;
        let Some(pending) = self.pending(channel) else {
            return session.channel_failure(channel);
        };
        // The library replaces each unknown mode by the code for the end of the list.
        let known = modes.iter().filter(|(mode, _)| *mode != Pty::TTY_OP_END);
        pending.terminal = Some(Terminal {
            kind: term.to_owned(),
            size: TerminalSize {
                columns,
                rows,
                width,
                height,
            },
            modes: known.map(|(mode, value)| (*mode as u8, *value)).collect(),
        });
        session.channel_success(channel)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.count_request(channel, name.len() + value.len())?;
        let Some(pending) = self.pending(channel) else {
            return session.channel_failure(channel);
        };
        let bytes = |(name, value): &(String, String)| name.len() + value.len();
        let held: usize = pending.environment.iter().map(bytes).sum();
        if pending.environment.len() >= VARIABLES_MAX
            || held + name.len() + value.len() > ENVIRONMENT_MAX
        {
            return session.channel_failure(channel);
        }
        let variable = (name.to_owned(), value.to_owned());
        pending.environment.push(variable);
        session.channel_success(channel)
    }

    async fn agent_request(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<bool, Self::Error> {
        self.count_request(channel, 0)?;
        let Some(pending) = self.pending(channel) else {
            return Ok(false);
        };
        pending.has_agent = true;
        Ok(true)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _: bool,
        protocol: &str,
        cookie: &str,
        _: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.count_request(channel, protocol.len() + cookie.len())?;
        session.channel_failure(channel)
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.count_request(channel, 0)?;
        self.start(channel, Program::Shell, session)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.count_request(channel, command.len())?;
        let command = Bytes::copy_from_slice(command);
        self.start(channel, Program::Exec(command), session)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.count_request(channel, name.len())?;
        let program = match name {
            "sftp" => Program::Sftp,
            _ => Program::Subsystem(name.to_owned()),
        };
        self.start(channel, program, session)
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(PendingChannel {
            terminal: Some(terminal),
            ..
        }) = self.pending(channel)
        {
            terminal.size = TerminalSize {
                columns,
                rows,
                width,
                height,
            };
        }
        self.hold(channel, 0);
        Ok(())
    }

    async fn signal(
        &mut self,
        channel: ChannelId,
        signal: russh::Sig,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.hold(channel, signal_name(&signal).len());
        Ok(())
    }
}

/// Returns the answer to a log-in attempt by the method `tried`.
///
/// If the client is refused, the rejection names the other methods as possible. Without a further
/// method, a client would exit before it reads the disconnect message. If the rejection named
/// `tried`, people would type a password again.
async fn answer(client: &Client, auth: Auth, tried: MethodKind) -> Auth {
    let Some(end) = client.refused() else {
        return auth;
    };
    if let Some(handle) = client.handle.get() {
        // The disconnect message enters the queue of the connection before the rejection. The
        // client therefore receives it before any further answer.
        let _ = handle.disconnect(end.code(), end.text, String::new()).await;
    }
    let methods = [
        MethodKind::PublicKey,
        MethodKind::KeyboardInteractive,
        MethodKind::Password,
    ];
    let others: Vec<_> = methods.into_iter().filter(|it| *it != tried).collect();
    Auth::Reject {
        proceed_with_methods: Some((&others[..]).into()),
        partial_success: false,
    }
}

fn forwarding_refused() -> ChannelOpenFailure {
    ChannelOpenFailure::Other {
        code: ADMINISTRATIVELY_PROHIBITED,
        reason: "the gateway forwards no ports, sockets or displays".to_owned(),
    }
}

/// Returns the text of an answer.
fn text(answer: &[u8]) -> String {
    match String::from_utf8_lossy(answer) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    }
}

/// Maximum number of channels of one client. Servers often permit ten.
const CHANNELS_MAX: usize = 64;

/// Maximum number of environment variables of a channel.
const VARIABLES_MAX: usize = 256;

/// Maximum number of bytes in the environment of a channel.
const ENVIRONMENT_MAX: usize = 64 * 1024;

/// RFC 4254 section 5.1.
const ADMINISTRATIVELY_PROHIBITED: u32 = 1;
