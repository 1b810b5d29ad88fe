//! Control connection to an FTP server: commands, replies and timeouts.

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use ftp::{
    client::{CommandTicket, FtpClient, Reply, ReplyError},
    reply::{ReplyClass, ReplyCode},
};
use net::{Connection, tls::Leg};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::ServerError;

/// A control connection to an FTP server.
pub(super) struct ControlConnection {
    /// The connection. `None` once it is closed.
    io: Option<Leg>,
    peer: SocketAddr,
    /// The server and its route, for display.
    server: String,
    client: FtpClient,
    /// Bytes for the server that are not yet written to the connection.
    out: Vec<u8>,
    /// Whether the TLS layer may still hold written bytes.
    needs_flush: bool,
    /// Commands that wait until the server has replied to earlier commands.
    unsent: VecDeque<Vec<u8>>,
    /// Number of final replies that the server has not sent yet. The greeting counts as a final
    /// reply until it has arrived.
    on_wire: usize,
    /// Whether commands are sent before the replies to earlier commands have arrived.
    pipelines: bool,
    /// Replies that have arrived and that no caller has requested yet.
    answers: VecDeque<(CommandTicket, Reply)>,
    /// Commands whose replies are discarded when they arrive.
    disregarded: Vec<CommandTicket>,
    /// The reply 421, by which the server announced the end of the connection.
    farewell: Option<Reply>,
    /// Longest time to wait for a reply.
    reply_timeout: Duration,
}

/// A command that was sent and whose reply has not arrived yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingReply {
    verb: &'static str,
    ticket: CommandTicket,
}

impl ControlConnection {
    /// Creates a control connection whose greeting has not been read yet.
    pub(super) fn new(
        io: Leg,
        (peer, server): (SocketAddr, String),
        reply_timeout: Duration,
    ) -> Self {
        Self {
            io: Some(io),
            peer,
            server,
            client: FtpClient::default(),
            out: Vec::new(),
            needs_flush: false,
            unsent: VecDeque::new(),
            on_wire: 1,
            pipelines: false,
            answers: VecDeque::new(),
            disregarded: Vec::new(),
            farewell: None,
            reply_timeout,
        }
    }

    /// Ticket of the greeting, which the server sends before any command.
    pub(super) const GREETING: PendingReply = PendingReply {
        verb: "the connection",
        ticket: CommandTicket::GREETING,
    };

    /// Returns the peer's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Enables pipelining: commands are then sent before the replies to earlier commands have
    /// arrived. Some servers fail with pipelining. They reply in another order, or they omit a
    /// reply.
    pub(super) fn pipeline(&mut self) {
        self.pipelines = true;
    }

    /// Returns whether commands are sent before the replies to earlier commands have arrived.
    pub(super) fn pipelines(&self) -> bool {
        self.pipelines
    }

    /// Returns whether the server has replied to all commands.
    pub(super) fn is_at_rest(&self) -> bool {
        self.client.is_idle()
    }

    /// Discards the reply to this command.
    pub(super) fn disregard(&mut self, sent: PendingReply) {
        if self.arrived(sent).is_none() {
            self.disregarded.push(sent.ticket);
        }
    }

    /// Queues a command. The command is sent when a caller next waits for a reply.
    pub(super) fn send(
        &mut self,
        verb: &'static str,
        argument: &[u8],
    ) -> Result<PendingReply, ServerError> {
        let mut command = Vec::new();
        let ticket = self.client.command(verb, argument, &mut command)?;
        self.unsent.push_back(command);
        Ok(PendingReply { verb, ticket })
    }

    /// Sends the queued commands that pipelining permits. Does not wait for a reply.
    pub(super) async fn flush(&mut self) -> Result<(), ServerError> {
        match timeout(self.reply_timeout, self.push()).await {
            Ok(result) => result,
            Err(_) => Err(self.silent("a command", self.reply_timeout)),
        }
    }

    /// Sends the queued commands that pipelining permits. This method is cancel safe.
    async fn push(&mut self) -> Result<(), ServerError> {
        loop {
            while self.pipelines || self.on_wire == 0 {
                let Some(command) = self.unsent.pop_front() else {
                    break;
                };
                self.out.extend(command);
                self.on_wire += 1;
            }
            if self.out.is_empty() {
                if self.needs_flush {
                    let flushed = self.io()?.flush().await;
                    flushed.map_err(|it| self.lost(it))?;
                    self.needs_flush = false;
                }
                return Ok(());
            }
            let Some(io) = &mut self.io else {
                return Err(self.closed());
            };
            let written = io.write(&self.out).await;
            let written = written.map_err(|it| self.lost(it))?;
            self.out.drain(..written);
            self.needs_flush = true;
        }
    }

    /// Returns a reply to a command, or `None` if no reply has arrived.
    pub(super) fn arrived(&mut self, sent: PendingReply) -> Option<Reply> {
        let found = self.answers.iter().position(|(it, _)| *it == sent.ticket);
        found
            .and_then(|at| self.answers.remove(at))
            .map(|(_, it)| it)
    }

    /// Waits, without a timeout, for the next reply to a command. This method is cancel safe.
    pub(super) async fn next_reply(&mut self, sent: PendingReply) -> Result<Reply, ServerError> {
        loop {
            if let Some(reply) = self.arrived(sent) {
                return Ok(reply);
            }
            if let Err(error) = self.receive().await {
                // The reply may have arrived before the connection ended.
                return self.arrived(sent).ok_or(error);
            }
        }
    }

    /// Waits for the final reply to a command. Returns both positive and negative replies.
    pub(super) async fn last(&mut self, sent: PendingReply) -> Result<Reply, ServerError> {
        self.last_within(sent, self.reply_timeout).await
    }

    /// Waits for the final reply to a command, with the timeout `reply_timeout` instead of the
    /// usual timeout.
    pub(super) async fn last_within(
        &mut self,
        sent: PendingReply,
        reply_timeout: Duration,
    ) -> Result<Reply, ServerError> {
        self.flush().await?;
        let final_reply = timeout(reply_timeout, async {
            loop {
                let reply = self.next_reply(sent).await?;
                if reply.class() != ReplyClass::Preliminary {
                    return Ok(reply);
                }
            }
        });
        let final_reply = final_reply.await;
        final_reply.unwrap_or_else(|_| Err(self.silent(sent.verb, reply_timeout)))
    }

    /// Waits for the final reply to a command. Returns an error if the reply is negative.
    pub(super) async fn done(&mut self, sent: PendingReply) -> Result<Reply, ServerError> {
        let reply = self.last(sent).await?;
        if reply.is_completed() {
            Ok(reply)
        } else {
            Err(sent.refused(reply))
        }
    }

    /// Sends a command and waits for its final reply. Returns an error if the reply is negative.
    pub(super) async fn run(
        &mut self,
        verb: &'static str,
        argument: &[u8],
    ) -> Result<Reply, ServerError> {
        let sent = self.send(verb, argument)?;
        self.done(sent).await
    }

    /// Sends a command and waits for its final reply. Returns both positive and negative replies.
    pub(super) async fn ask(
        &mut self,
        verb: &'static str,
        argument: &[u8],
    ) -> Result<Reply, ServerError> {
        let sent = self.send(verb, argument)?;
        self.last(sent).await
    }

    /// Replaces the plain connection with a TLS connection. `begin_tls` performs the handshake.
    pub(super) async fn upgrade<F>(
        self,
        begin_tls: impl FnOnce(Connection) -> F,
    ) -> Result<Self, ServerError>
    where
        F: Future<Output = Result<Leg, ServerError>>,
    {
        // An attacker on the path has inserted plain text after the reply to AUTH (CVE-2011-0411).
        if !self.client.is_idle() {
            return Err(ServerError::Reply(ReplyError::NoCode));
        }
        let plain = self.io.and_then(Leg::into_plain);
        let connection = plain.expect("TLS begins once, before the connection is closed");
        let io = Some(begin_tls(connection).await?);
        Ok(Self { io, ..self })
    }

    /// Waits until the connection has ended, or until the server has announced the end of the
    /// connection.
    pub(super) async fn until_lost(&mut self) {
        while self.receive().await.is_ok() {}
    }

    /// Closes the sending side of the connection, and waits until the server has closed its side.
    pub(super) async fn end(&mut self) {
        let Some(io) = &mut self.io else {
            return;
        };
        // The server may already have ended the connection.
        let _ = io.shutdown().await;
        let mut bytes = [0; 4096];
        while io.read(&mut bytes).await.is_ok_and(|it| it > 0) {}
    }

    /// Closes the connection without waiting for the server.
    pub(super) fn close(&mut self) {
        self.io = None;
    }

    fn io(&mut self) -> Result<&mut Leg, ServerError> {
        if self.io.is_none() {
            return Err(self.closed());
        }
        Ok(self.io.as_mut().expect("it is open"))
    }

    fn closed(&self) -> ServerError {
        self.lost(io::ErrorKind::NotConnected.into())
    }

    /// Receives the next bytes from the server, and sends the commands that the new replies permit.
    /// This method is cancel safe.
    pub(super) async fn receive(&mut self) -> Result<(), ServerError> {
        if let Some(farewell) = &self.farewell {
            return Err(ServerError::Full(farewell.clone()));
        }
        let mut bytes = [0; 4096];
        let count = self.io()?.read(&mut bytes).await;
        let count = count.map_err(|it| self.lost(it))?;
        if count == 0 {
            return Err(self.lost(io::ErrorKind::UnexpectedEof.into()));
        }
        self.client.receive(&bytes[..count]);
        while let Some(answer) = self.client.next_reply()? {
            if answer.reply.code() == SERVICE_ENDS {
                self.farewell = Some(answer.reply.clone());
                return Err(ServerError::Full(answer.reply));
            }
            if self.on_wire == 0 {
                // The server has sent a reply without a command. Further replies cannot be assigned
                // to commands.
                return Err(self.useless(NOT_ASKED_FOR));
            }
            if answer.reply.class() != ReplyClass::Preliminary {
                self.on_wire -= 1;
            }
            let ticket = answer.ticket.expect("a command on the wire has a ticket");
            match self.disregarded.iter().position(|it| *it == ticket) {
                Some(at) => drop(self.disregarded.swap_remove(at)),
                None => self.answers.push_back((ticket, answer.reply)),
            }
        }
        self.push().await
    }

    /// Returns the error for a connection that has become unusable. `why` is the reason.
    pub(super) fn useless(&self, why: &'static str) -> ServerError {
        self.lost(io::Error::other(why))
    }

    fn lost(&self, source: io::Error) -> ServerError {
        ServerError::Lost {
            peer: self.server.clone(),
            source,
        }
    }

    fn silent(&self, command: &'static str, reply_timeout: Duration) -> ServerError {
        ServerError::Silent {
            peer: self.server.clone(),
            command,
            reply_timeout,
        }
    }
}

impl PendingReply {
    /// Returns whether the verb of the command is `verb`.
    pub(super) fn is(self, verb: &str) -> bool {
        self.verb == verb
    }

    /// Returns the error for a command that the server has refused.
    pub(super) fn refused(self, reply: Reply) -> ServerError {
        ServerError::Refused {
            command: self.verb,
            reply,
        }
    }
}

const SERVICE_ENDS: ReplyCode = ReplyCode(421);

const NOT_ASKED_FOR: &str = "the server sent a reply that no command asked for";
