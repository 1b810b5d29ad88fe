//! Transfers, one at a time on a session.

use std::{io, time::Duration};

use ftp::{address::PassiveForm, client::Reply, reply::Class};
use net::tls::Leg;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{Facts, ServerError, Session, control::Sent, data::Meeting};

/// What a data connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A file, to us.
    Retrieve,
    /// A file, to the server.
    Store,
    /// A listing for programs.
    MachineListing,
    /// A listing for people.
    Listing,
}

/// A transfer under way. Dropped before its end, it leaves the session unusable.
pub struct Transfer<'a> {
    session: &'a mut Session,
    verb: Verb,
    leg: Leg,
    /// Our end of the data has been said.
    has_ended: bool,
    sent: Sent,
    replies: Replies,
}

/// What the server has said of a transfer while it is under way.
#[derive(Debug, Default)]
struct Replies {
    /// It has begun.
    has_begun: bool,
    /// The final reply, where it came before the end of the data.
    early: Option<Reply>,
}

/// A transfer has ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The end of what was read is the server's word, and not that of somebody on the path.
    pub is_sure: bool,
    /// What the server says of the file since, where that could be asked behind the transfer: it saves a round trip.
    pub facts: Option<Facts>,
}

impl Session {
    /// Begins a transfer, `offset_bytes` from the beginning of the file: the data connection is open afterwards. What an upload
    /// with `clears` would replace is removed in front of it.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, the server refused, or no data connection came about.
    pub async fn transfer(
        &mut self,
        verb: Verb,
        argument: &[u8],
        offset_bytes: u64,
        clears: bool,
    ) -> Result<Transfer<'_>, ServerError> {
        // An earlier transfer has failed, and nobody wants to know.
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
            // Behind a refused REST a server would begin at the first byte, and overwrite what is there. Behind a refused
            // EPSV it would connect to us (RFC 959 section 3.2).
            let meeting = self.first_meeting().await?;
            if offset_bytes > 0 {
                let rest = self
                    .control
                    .send("REST", offset_bytes.to_string().as_bytes())?;
                if verb == Verb::Retrieve && self.is_sequential {
                    restart = Some(rest);
                } else {
                    let reply = self.control.last(rest).await?;
                    if reply.class() == Class::Failed {
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
            if reply.class() == Class::Failed {
                // The transfer that begins at the first byte is of no use.
                drop(opened);
                return Err(self.reason(sent, rest.refused(reply)).await);
            }
        }
        match opened {
            Ok((leg, replies)) => {
                self.has_met = true;
                // Some servers end a data connection on which bytes, or its end, come before the command. The command may be late
                // where a packet is lost, or wait for others in front of it. Those by processes read none before.
                let may_be_early = !self.is_sequential || clears && !self.takes_any_ahead();
                let mut transfer = Transfer {
                    session: self,
                    verb,
                    leg,
                    has_ended: false,
                    sent,
                    replies,
                };
                if verb == Verb::Store && may_be_early {
                    transfer.begun().await?;
                }
                Ok(transfer)
            }
            Err(error) => Err(self.reason(sent, error).await),
        }
    }

    /// Puts the command among those to be sent and, where it moves a file, what is asked of that behind it.
    fn command(&mut self, verb: Verb, argument: &[u8], clears: bool) -> Result<Sent, ServerError> {
        if clears {
            let gone = self.control.send("DELE", argument)?;
            self.in_front = Some((gone, self.ask_facts(argument)?));
        }
        let sent = self.control.send(verb.name(), argument)?;
        let takes_facts = match verb {
            Verb::Retrieve => self.takes_any_ahead() || self.is_idle_reader,
            Verb::Store => self.takes_any_ahead(),
            Verb::MachineListing | Verb::Listing => false,
        };
        if takes_facts {
            self.behind = Some(self.ask_facts(argument)?);
        }
        Ok(sent)
    }

    /// Asks for a data connection, and waits for the answer. A server that does not know `EPSV` is asked by `PASV`.
    async fn first_meeting(&mut self) -> Result<Meeting, ServerError> {
        let asked = match self.take_port_ahead() {
            Some(asked) => asked,
            None => self.ask_for_data().await?,
        };
        let reply = self.control.last(asked.sent()).await?;
        let is_ipv4 = self.control.peer().ip().to_canonical().is_ipv4();
        let is_unknown = reply.class() == Class::Failed && !reply.is_temporary();
        let is_passive = !self.dial.is_active;
        if is_passive && is_unknown && is_ipv4 && self.passive == PassiveForm::Epsv {
            self.passive = PassiveForm::Pasv;
            let asked = self.ask_for_data().await?;
            let reply = self.control.last(asked.sent()).await?;
            return self.meeting(asked, reply);
        }
        self.meeting(asked, reply)
    }

    /// Opens the data connection, unless the server refuses the transfer before.
    async fn open_data(
        &mut self,
        verb: Verb,
        meeting: Meeting,
        sent: Sent,
    ) -> Result<(Leg, Replies), ServerError> {
        self.control.flush().await?;
        let dial = self.data_dial();
        let mut opening = std::pin::pin!(dial.open(meeting));
        let mut replies = Replies::default();
        loop {
            tokio::select! {
                leg = &mut opening => return Ok((leg?, replies)),
                reply = self.control.next_reply(sent), if replies.early.is_none() => {
                    replies.note(reply?, verb, sent)?;
                }
            }
        }
    }

    /// Why a transfer failed: what the server says of it, where it says so soon, else `error`. The session is of use again
    /// once the server has said it.
    async fn reason(&mut self, transfer: Sent, error: ServerError) -> ServerError {
        let has_answered = match &error {
            ServerError::Refused { command, .. } => transfer.is(command),
            ServerError::TooEarly(_) => true,
            _ => false,
        };
        if has_answered {
            self.is_moving = false;
            return error;
        }
        match timeout(REASON_PATIENCE, self.control.last(transfer)).await {
            Ok(Ok(reply)) => {
                self.is_moving = false;
                // What was refused first is the reason for what was refused behind it.
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

impl Transfer<'_> {
    /// Whether the server has said that the transfer begins.
    pub fn has_begun(&self) -> bool {
        self.replies.has_begun
    }

    /// Whether the server had nothing left of what the upload replaces. It has said so once it has said that the upload begins.
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

    /// Ends the data of an upload, and waits for the server's first word. Returns whether that is that the upload begins;
    /// another one is the final reply, which [`finish`](Self::finish) tells.
    ///
    /// # Errors
    /// [`ServerError`] if the data connection breaks, or the server says nothing.
    pub async fn end(&mut self) -> Result<bool, ServerError> {
        self.end_data().await?;
        if !self.replies.has_begun {
            let patience = self.session.dial.patience.max(STORED_PATIENCE);
            let (session, sent) = (&mut *self.session, self.sent);
            let reply = tokio::select! {
                first = timeout(patience, session.control.next_reply(sent)) => {
                    first.unwrap_or(Err(ServerError::Stalled(patience)))?
                }
                // What the server has said before may not have been read.
                error = broken(&mut self.leg) => {
                    let first = timeout(REASON_PATIENCE, session.control.next_reply(sent)).await;
                    first.unwrap_or(Err(ServerError::Data(error)))?
                }
            };
            match reply.class() {
                Class::Preliminary => self.replies.has_begun = true,
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
        // Who reads has all by now. A server that has read all may close first, too.
        if let Err(error) = ended
            && self.verb == Verb::Store
            && !matches!(&error, ServerError::Data(it) if it.kind() == io::ErrorKind::NotConnected)
        {
            self.explained(Err::<(), _>(error)).await?;
        }
        Ok(())
    }

    /// Reads data; 0 at its end.
    ///
    /// # Errors
    /// [`ServerError`] if the server gave the transfer up, or nothing came for too long.
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

    /// Waits until the server has said that an upload begins.
    ///
    /// # Errors
    /// [`ServerError`] if it says otherwise, or nothing.
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

    /// Writes data.
    ///
    /// # Errors
    /// [`ServerError`] if the server gave the transfer up, or took nothing for too long.
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
                        // What the server has said is known before more is written.
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

    /// Ends the data, for an upload, and waits for the final reply, which must be a success.
    ///
    /// # Errors
    /// [`ServerError`] with what the server says, or if it says nothing.
    pub async fn finish(self) -> Result<Ended, ServerError> {
        let patience = self.session.dial.patience;
        let patience = match self.verb {
            Verb::Store => patience.max(STORED_PATIENCE),
            _ => patience,
        };
        self.finish_within(patience).await
    }

    /// The same for an upload that takes its bytes from a spool at the gateway. Nobody here sees whether they move: the
    /// gateway gives up a server that takes none.
    ///
    /// # Errors
    /// [`ServerError`] with what the server or the gateway says.
    pub async fn finish_from_spool(self) -> Result<Ended, ServerError> {
        self.finish_within(SPOOLED_PATIENCE).await
    }

    async fn finish_within(mut self, patience: Duration) -> Result<Ended, ServerError> {
        self.end_data().await?;
        let is_upload = self.verb == Verb::Store;
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
                // A reset after our end says that not all was taken. The server may say so, too, or wait for the rest.
                tokio::select! {
                    reply = session.control.last_within(sent, patience) => reply?,
                    error = broken(&mut leg) => {
                        return Err(session.reason(sent, ServerError::Data(error)).await);
                    }
                }
            }
            None => session.control.last_within(sent, patience).await?,
        };
        session.is_moving = false;
        let ended_in_silence = leg.closed_without_notify();
        session.says_goodbye |= leg.is_tls() && !is_upload && !ended_in_silence;
        // Until here: what a TLS server says at the end would be answered by a reset.
        drop(leg);
        if !reply.is_completed() {
            return Err(sent.refused(reply));
        }
        let facts = match session.behind.take() {
            Some(asked) => Some(session.answered(asked).await?),
            None => None,
        };
        // Some servers never say that the data has ended. Of one that does, the silence is somebody else's.
        let is_sure = !ended_in_silence || !session.says_goodbye;
        Ok(Ended { is_sure, facts })
    }

    /// Leaves the rest of a download. A server that says so soon is of further use.
    pub async fn abandon(self) {
        let Self {
            session, leg, sent, ..
        } = self;
        drop(leg);
        let answered = session.control.last_within(sent, REASON_PATIENCE).await;
        session.is_moving = answered.is_err();
    }

    /// The reason for a broken data connection is what the server says of it.
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

/// Returns when a data connection on which nothing more is to come is reset.
async fn broken(leg: &mut Leg) -> io::Error {
    loop {
        match leg.read(&mut [0; 64]).await {
            Ok(0) => std::future::pending().await,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

impl Replies {
    /// A reply came while data moves. A failure ends the transfer. A success may be ahead of the last data that we read; of an
    /// upload it means that the server has not waited for all.
    fn note(&mut self, reply: Reply, verb: Verb, sent: Sent) -> Result<(), ServerError> {
        match reply.class() {
            Class::Preliminary => {
                self.has_begun = true;
                Ok(())
            }
            Class::Completed if verb == Verb::Store => Err(ServerError::TooEarly(reply)),
            Class::Completed => {
                self.early = Some(reply);
                Ok(())
            }
            Class::Intermediate | Class::Failed => Err(sent.refused(reply)),
        }
    }
}

impl Verb {
    /// The command.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Retrieve => "RETR",
            Self::Store => "STOR",
            Self::MachineListing => "MLSD",
            Self::Listing => "LIST",
        }
    }
}

/// How long a broken data connection waits for the reply that explains it.
const REASON_PATIENCE: Duration = Duration::from_secs(5);

/// How long an upload from a spool waits for its success: a slow server may take that long for a large file.
const SPOOLED_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// How long an upload waits for its success, at least. Bytes that we have sent are still on their way through the gateways;
/// some servers look at what they got, or copy it elsewhere, before they answer.
const STORED_PATIENCE: Duration = Duration::from_secs(600);
