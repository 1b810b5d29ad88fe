//! Transfers over data connections. A session carries out one transfer at a time.

use std::{io, time::Duration};

use ftp::{address::PassiveForm, client::Reply, reply::ReplyClass};
use net::tls::Leg;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{ServerError, Session, Stat, control::PendingReply, data::DataOrigin};

/// Purpose of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferVerb {
    /// Downloads a file from the server.
    Retrieve,
    /// Uploads a file to the server.
    Store,
    /// Lists a directory in the form for programs (`MLSD`).
    MachineListing,
    /// Lists a directory in the form for users (`LIST`).
    Listing,
}

/// A transfer in progress. If it is dropped before its end, the session becomes unusable.
pub struct RunningTransfer<'a> {
    session: &'a mut Session,
    verb: TransferVerb,
    leg: Leg,
    /// Whether the mover has closed its side of the data connection.
    has_ended: bool,
    sent: PendingReply,
    replies: TransferReplies,
}

/// Replies that the server has sent during a transfer.
#[derive(Debug, Default)]
struct TransferReplies {
    /// Whether the server has confirmed the start of the transfer.
    has_begun: bool,
    /// The final reply, if it arrived before the end of the data.
    early: Option<Reply>,
}

/// Result of a successful transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferResult {
    /// Whether the data counts as complete. False if the server has ended TLS correctly before, but
    /// not this time. In that case an attacker on the path may have shortened the data.
    pub is_sure: bool,
    /// Attributes of the file after the transfer. `None` if they were not queried together with the
    /// transfer. Such a query saves a round trip.
    pub stat: Option<Stat>,
}

impl Session {
    /// Starts a transfer at `offset_bytes` of the file.
    ///
    /// When the function returns, the data connection is open. If `clears` is true, the server
    /// first deletes the file that the upload replaces.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, if the server refuses, or if no data connection
    /// is established.
    pub async fn transfer(
        &mut self,
        verb: TransferVerb,
        argument: &[u8],
        offset_bytes: u64,
        clears: bool,
    ) -> Result<RunningTransfer<'_>, ServerError> {
        // An earlier transfer has failed, so its replies are discarded.
        let in_front = self
            .in_front
            .take()
            .map(|(gone, left)| [gone, left[0], left[1]]);
        let unanswered = in_front.into_iter().flatten();
        for sent in unanswered.chain(self.behind.take().into_iter().flatten()) {
            self.control.disregard(sent);
        }
        let mut restart = None;
        let (meeting, sent) = if offset_bytes > 0 || !self.has_met {
            // The transfer command waits for the reply to EPSV. After a refused EPSV, the command
            // would make the server connect to the mover (RFC 959 section 3.2). An upload also
            // waits for the reply to REST. After a refused REST, the server would begin at the
            // first byte and overwrite the existing file.
            let meeting = self.first_meeting().await?;
            if offset_bytes > 0 {
                let rest = self
                    .control
                    .send("REST", offset_bytes.to_string().as_bytes())?;
                if verb == TransferVerb::Retrieve && self.is_sequential {
                    restart = Some(rest);
                } else {
                    let reply = self.control.last(rest).await?;
                    if reply.class() == ReplyClass::Failed {
                        return Err(rest.refused(reply));
                    }
                }
            }
            (Ok(meeting), self.command(verb, argument, clears)?)
        } else {
            let asked = match self.take_port_ahead() {
                Some(asked) => asked,
                None => self.ask_for_data().await?,
            };
            let sent = self.command(verb, argument, clears)?;
            self.is_moving = true;
            let reply = self.control.last(asked.sent()).await?;
            (self.meeting(asked, reply), sent)
        };
        self.is_moving = true;
        let opened = match meeting {
            Ok(meeting) => self.open_data(verb, meeting, sent).await,
            Err(error) => Err(error),
        };
        if let Some(rest) = restart {
            let reply = self.control.last(rest).await?;
            if reply.class() == ReplyClass::Failed {
                // REST was refused. A transfer that begins at the first byte is useless.
                drop(opened);
                return Err(self.reason(sent, rest.refused(reply)).await);
            }
        }
        match opened {
            Ok((leg, replies)) => {
                self.has_met = true;
                // Some servers end a data connection if its bytes or its end arrive before the
                // transfer command. The command may be late because of a lost packet, or because
                // earlier commands are still unanswered. Servers with a process for each session
                // read no data before the command.
                let may_be_early = !self.is_sequential || clears && !self.takes_any_ahead();
                let mut transfer = RunningTransfer {
                    session: self,
                    verb,
                    leg,
                    has_ended: false,
                    sent,
                    replies,
                };
                if verb == TransferVerb::Store && may_be_early {
                    transfer.begun().await?;
                }
                Ok(transfer)
            }
            Err(error) => Err(self.reason(sent, error).await),
        }
    }

    /// Queues the transfer command. For a transfer of a file, also queues the queries about that
    /// file if the server accepts them at this time.
    fn command(
        &mut self,
        verb: TransferVerb,
        argument: &[u8],
        clears: bool,
    ) -> Result<PendingReply, ServerError> {
        if clears {
            let gone = self.control.send("DELE", argument)?;
            self.in_front = Some((gone, self.ask_facts(argument)?));
        }
        let sent = self.control.send(verb.name(), argument)?;
        let takes_facts = match verb {
            TransferVerb::Retrieve => self.takes_any_ahead() || self.is_idle_reader,
            TransferVerb::Store => self.takes_any_ahead(),
            TransferVerb::MachineListing | TransferVerb::Listing => false,
        };
        if takes_facts {
            self.behind = Some(self.ask_facts(argument)?);
        }
        Ok(sent)
    }

    /// Requests a data connection, and waits for the reply. If the server does not support `EPSV`,
    /// the function sends `PASV`.
    async fn first_meeting(&mut self) -> Result<DataOrigin, ServerError> {
        let asked = match self.take_port_ahead() {
            Some(asked) => asked,
            None => self.ask_for_data().await?,
        };
        let reply = self.control.last(asked.sent()).await?;
        let is_ipv4 = self.control.peer().ip().to_canonical().is_ipv4();
        let is_unknown = reply.class() == ReplyClass::Failed && !reply.is_temporary();
        let is_passive = !self.dial.is_active;
        if is_passive && is_unknown && is_ipv4 && self.passive == PassiveForm::Epsv {
            self.passive = PassiveForm::Pasv;
            let asked = self.ask_for_data().await?;
            let reply = self.control.last(asked.sent()).await?;
            return self.meeting(asked, reply);
        }
        self.meeting(asked, reply)
    }

    /// Opens the data connection. Returns an error if the server refuses the transfer before the
    /// data connection is open.
    async fn open_data(
        &mut self,
        verb: TransferVerb,
        meeting: DataOrigin,
        sent: PendingReply,
    ) -> Result<(Leg, TransferReplies), ServerError> {
        self.control.flush().await?;
        let dial = self.data_dial();
        let mut opening = std::pin::pin!(dial.open(meeting));
        let mut replies = TransferReplies::default();
        loop {
            tokio::select! {
                leg = &mut opening => return Ok((leg?, replies)),
                reply = self.control.next_reply(sent), if replies.early.is_none() => {
                    replies.note(reply?, verb, sent)?;
                }
            }
        }
    }

    /// Returns the reason of a failed transfer: the server's final reply if it arrives soon, or
    /// else `error`. The session is usable again if that reply has arrived.
    async fn reason(&mut self, transfer: PendingReply, error: ServerError) -> ServerError {
        let has_answered = match &error {
            ServerError::Refused { command, .. } => transfer.is(command),
            ServerError::TooEarly(_) => true,
            _ => false,
        };
        if has_answered {
            self.is_moving = false;
            return error;
        }
        match timeout(REASON_TIMEOUT, self.control.last(transfer)).await {
            Ok(Ok(reply)) => {
                self.is_moving = false;
                // The first refusal is the reason for the refusals after it.
                let is_reason =
                    !reply.is_completed() && !matches!(error, ServerError::Refused { .. });
                match is_reason {
                    true => transfer.refused(reply),
                    false => error,
                }
            }
            Ok(Err(lost @ ServerError::Full(_))) => lost,
            _ => error,
        }
    }
}

impl RunningTransfer<'_> {
    /// Returns whether the server has confirmed the start of the transfer.
    pub fn has_begun(&self) -> bool {
        self.replies.has_begun
    }

    /// Returns whether the server has confirmed that the old file is gone. The upload replaces the
    /// old file. The server replies to the deletion before it confirms the start of the upload.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn is_on_clear_ground(&mut self) -> Result<bool, ServerError> {
        let Some((gone, left)) = self.session.in_front.take() else {
            return Ok(false);
        };
        self.session.control.last(gone).await?;
        Ok(self.session.answered(left).await?.entry().is_none())
    }

    /// Ends the data of an upload, and waits for the server's first reply. Returns whether that
    /// reply confirms the start of the upload. Any other first reply is the final reply, which
    /// [`finish`](Self::finish) evaluates.
    ///
    /// # Errors
    /// [`ServerError`] if the data connection fails, or if the server does not reply.
    pub async fn end(&mut self) -> Result<bool, ServerError> {
        self.end_data().await?;
        if !self.replies.has_begun {
            let reply_timeout = self.session.dial.reply_timeout.max(STORED_TIMEOUT);
            let (session, sent) = (&mut *self.session, self.sent);
            let reply = tokio::select! {
                first = timeout(reply_timeout, session.control.next_reply(sent)) => {
                    first.unwrap_or(Err(ServerError::Stalled(reply_timeout)))?
                }
                // The server may have sent a reply before the connection broke. This reply may
                // still be unread.
                error = broken(&mut self.leg) => {
                    let first = timeout(REASON_TIMEOUT, session.control.next_reply(sent)).await;
                    first.unwrap_or(Err(ServerError::Data(error)))?
                }
            };
            match reply.class() {
                ReplyClass::Preliminary => self.replies.has_begun = true,
                _ => self.replies.early = Some(reply),
            }
        }
        Ok(self.replies.has_begun)
    }

    async fn end_data(&mut self) -> Result<(), ServerError> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        let stall_max = self.session.dial.stall_max;
        let ended = match timeout(stall_max, self.leg.shutdown()).await {
            Ok(result) => result.map_err(ServerError::Data),
            Err(_) => Err(ServerError::Stalled(stall_max)),
        };
        // `NotConnected` is no failure: the server has received all bytes, and may close the
        // connection first.
        if let Err(error) = ended
            && self.verb == TransferVerb::Store
            && !matches!(&error, ServerError::Data(it) if it.kind() == io::ErrorKind::NotConnected)
        {
            self.explained(Err::<(), _>(error)).await?;
        }
        Ok(())
    }

    /// Reads data, and returns the number of bytes. Returns 0 at the end of the data.
    ///
    /// # Errors
    /// [`ServerError`] if the server aborts the transfer, or if no byte arrives within the timeout.
    pub async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ServerError> {
        let stall_max = self.session.dial.stall_max;
        let (verb, sent) = (self.verb, self.sent);
        let Self {
            session,
            leg,
            replies,
            ..
        } = self;
        let reading = timeout(stall_max, async {
            loop {
                tokio::select! {
                    read = leg.read(bytes) => return read.map_err(ServerError::Data),
                    reply = session.control.next_reply(sent), if replies.early.is_none() => {
                        replies.note(reply?, verb, sent)?;
                    }
                }
            }
        });
        let read = reading
            .await
            .unwrap_or(Err(ServerError::Stalled(stall_max)));
        self.explained(read).await
    }

    /// Waits until the server has confirmed the start of an upload.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the upload, or if it does not reply.
    pub async fn begun(&mut self) -> Result<(), ServerError> {
        let stall_max = self.session.dial.stall_max;
        let (verb, sent) = (self.verb, self.sent);
        let Self {
            session, replies, ..
        } = self;
        let beginning = timeout(stall_max, async {
            while !replies.has_begun {
                let reply = session.control.next_reply(sent).await?;
                replies.note(reply, verb, sent)?;
            }
            Ok(())
        });
        let begun = beginning
            .await
            .unwrap_or(Err(ServerError::Stalled(stall_max)));
        self.explained(begun).await
    }

    /// Writes data to the server.
    ///
    /// # Errors
    /// [`ServerError`] if the server aborts the transfer, or if it reads no byte within the
    /// timeout.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        let stall_max = self.session.dial.stall_max;
        let (verb, sent) = (self.verb, self.sent);
        let mut rest = bytes;
        while !rest.is_empty() {
            let Self {
                session,
                leg,
                replies,
                ..
            } = self;
            let writing = timeout(stall_max, async {
                loop {
                    tokio::select! {
                        // A reply of the server takes precedence over the next write.
                        biased;
                        reply = session.control.next_reply(sent), if replies.early.is_none() => {
                            replies.note(reply?, verb, sent)?;
                        }
                        written = leg.write(rest) => return written.map_err(ServerError::Data),
                    }
                }
            });
            let written = writing
                .await
                .unwrap_or(Err(ServerError::Stalled(stall_max)));
            let written = self.explained(written).await?;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Ends the data of a transfer, and waits for the final reply.
    ///
    /// # Errors
    /// [`ServerError`] if the final reply is negative, or if no final reply arrives.
    pub async fn finish(self) -> Result<TransferResult, ServerError> {
        let reply_timeout = self.session.dial.reply_timeout;
        let reply_timeout = match self.verb {
            TransferVerb::Store => reply_timeout.max(STORED_TIMEOUT),
            _ => reply_timeout,
        };
        self.finish_within(reply_timeout).await
    }

    /// Completes an upload whose bytes the gateway reads from a spool (a file at the gateway). The
    /// mover cannot observe the progress of this upload. If the server reads no bytes, the gateway
    /// aborts the upload.
    ///
    /// # Errors
    /// [`ServerError`] with the negative reply of the server or of the gateway.
    pub async fn finish_from_spool(self) -> Result<TransferResult, ServerError> {
        self.finish_within(SPOOLED_TIMEOUT).await
    }

    async fn finish_within(
        mut self,
        reply_timeout: Duration,
    ) -> Result<TransferResult, ServerError> {
        self.end_data().await?;
        let is_upload = self.verb == TransferVerb::Store;
        let Self {
            session,
            mut leg,
            sent,
            replies,
            ..
        } = self;
        let reply = match replies.early {
            Some(reply) => reply,
            None if is_upload => {
                // A reset after the last byte of the upload shows that some bytes were lost. The
                // server may also report the loss, or wait for the missing bytes.
                tokio::select! {
                    reply = session.control.last_within(sent, reply_timeout) => reply?,
                    error = broken(&mut leg) => {
                        return Err(session.reason(sent, ServerError::Data(error)).await);
                    }
                }
            }
            None => session.control.last_within(sent, reply_timeout).await?,
        };
        session.is_moving = false;
        let ended_in_silence = leg.closed_without_notify();
        session.says_goodbye |= leg.is_tls() && !is_upload && !ended_in_silence;
        // The data connection stays open until the final reply. If the mover closed it earlier, the
        // last message of a TLS server would cause a reset.
        drop(leg);
        if !reply.is_completed() {
            return Err(sent.refused(reply));
        }
        let stat = match session.behind.take() {
            Some(asked) => Some(session.answered(asked).await?),
            None => None,
        };
        // Some servers never end TLS properly. If this server usually ends TLS properly, an
        // attacker may have cut the data.
        let is_sure = !ended_in_silence || !session.says_goodbye;
        Ok(TransferResult { is_sure, stat })
    }

    /// Aborts a download. If the server confirms the end of the transfer soon, the session stays
    /// usable.
    pub async fn abandon(self) {
        let Self {
            session, leg, sent, ..
        } = self;
        drop(leg);
        let answered = session.control.last_within(sent, REASON_TIMEOUT).await;
        session.is_moving = answered.is_err();
    }

    /// Replaces the error of a failed data connection with the server's reply, if the reply arrives
    /// soon.
    async fn explained<T>(&mut self, result: Result<T, ServerError>) -> Result<T, ServerError> {
        match result {
            Err(error @ (ServerError::Data(_) | ServerError::Refused { .. }))
                if self.replies.early.is_none() =>
            {
                Err(self.session.reason(self.sent, error).await)
            }
            result => result,
        }
    }
}

/// Waits until the data connection is reset. Discards any further bytes from the server.
async fn broken(leg: &mut Leg) -> io::Error {
    loop {
        match leg.read(&mut [0; 64]).await {
            Ok(0) => std::future::pending().await,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

impl TransferReplies {
    /// Processes a reply that arrives during the transfer.
    ///
    /// A negative reply ends the transfer. During a download, a positive final reply may arrive
    /// before the last data. During an upload, a positive final reply is an error, because the
    /// server has not waited for all bytes.
    fn note(
        &mut self,
        reply: Reply,
        verb: TransferVerb,
        sent: PendingReply,
    ) -> Result<(), ServerError> {
        match reply.class() {
            ReplyClass::Preliminary => {
                self.has_begun = true;
                Ok(())
            }
            ReplyClass::Completed if verb == TransferVerb::Store => {
                Err(ServerError::TooEarly(reply))
            }
            ReplyClass::Completed => {
                self.early = Some(reply);
                Ok(())
            }
            ReplyClass::Intermediate | ReplyClass::Failed => Err(sent.refused(reply)),
        }
    }
}

impl TransferVerb {
    /// Returns the FTP command.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Retrieve => "RETR",
            Self::Store => "STOR",
            Self::MachineListing => "MLSD",
            Self::Listing => "LIST",
        }
    }
}

/// Longest time to wait for a reply that explains why a data connection failed.
const REASON_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time to wait for the final reply to an upload from a spool. A slow server may need this
/// time for a large file.
const SPOOLED_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Shortest timeout for the final reply to an upload. Bytes may still be in flight between the
/// gateways. Some servers also inspect or copy the file before they reply.
const STORED_TIMEOUT: Duration = Duration::from_secs(600);
