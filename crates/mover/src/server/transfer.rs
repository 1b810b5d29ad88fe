//! Transfers: one at a time on a session. The next one can be prepared while one runs, where the server allows it.

use std::{io, time::Duration};

use ftp::{client::Reply, reply::Class};
use gateway::tls::Leg;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{ServerError, Session, control::Sent, data::Data};

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

/// A transfer whose commands have been put among those to be sent.
pub struct Prepared {
    what: What,
    data: Data,
    rest: Option<Sent>,
    transfer: Sent,
}

/// A transfer's command.
#[derive(Debug, Clone)]
struct What {
    verb: Verb,
    argument: Vec<u8>,
    offset_bytes: u64,
}

/// A transfer under way. Dropped before its end, it leaves the session unusable.
pub struct Transfer<'a> {
    session: &'a mut Session,
    leg: Leg,
    sent: Sent,
    /// The final reply, where it came before the end of the data.
    early: Option<Reply>,
}

impl Session {
    /// Prepares a transfer. The commands leave with the next wait for a reply.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, or no port can be opened for an active connection.
    pub async fn prepare(
        &mut self,
        verb: Verb,
        argument: &[u8],
        offset_bytes: u64,
    ) -> Result<Prepared, ServerError> {
        let what = What {
            verb,
            argument: argument.to_vec(),
            offset_bytes,
        };
        self.prepare_again(what).await
    }

    async fn prepare_again(&mut self, what: What) -> Result<Prepared, ServerError> {
        let data = self.ask_for_data().await?;
        let rest = match what.offset_bytes {
            0 => None,
            offset => Some(self.control.send("REST", offset.to_string().as_bytes())?),
        };
        let transfer = self.control.send(what.verb.name(), &what.argument)?;
        Ok(Prepared {
            what,
            data,
            rest,
            transfer,
        })
    }

    /// Begins a prepared transfer: the data connection is open afterwards.
    ///
    /// # Errors
    /// [`ServerError`] if the server refused, or no data connection came about.
    pub async fn begin(&mut self, prepared: Prepared) -> Result<Transfer<'_>, ServerError> {
        let Prepared {
            what,
            data,
            rest,
            transfer,
        } = prepared;
        let connected = self.connect_data(data).await;
        if let Some(rest) = rest {
            let reply = self.control.last(rest).await?;
            if reply.class() == Class::Failed {
                // The transfer behind it begins at the first byte, which nobody wants.
                drop(connected);
                let _ = self.control.last(transfer).await?;
                return Err(rest.refused(reply));
            }
        }
        let pending = match connected {
            Ok(Some(pending)) => pending,
            Ok(None) => {
                let _ = self.control.last(transfer).await?;
                let again = Box::pin(self.prepare_again(what)).await?;
                return Box::pin(self.begin(again)).await;
            }
            Err(error) => return Err(self.reason(transfer, error).await),
        };
        match self.open_data(pending).await {
            Ok(leg) => Ok(Transfer {
                session: self,
                leg,
                sent: transfer,
                early: None,
            }),
            Err(error) => Err(self.reason(transfer, error).await),
        }
    }

    /// Why a transfer failed: what the server says of it, where it says so soon, else `error`.
    async fn reason(&mut self, transfer: Sent, error: ServerError) -> ServerError {
        match timeout(REASON_PATIENCE, self.control.last(transfer)).await {
            Ok(Ok(reply)) if !reply.is_completed() => transfer.refused(reply),
            Ok(Err(lost @ ServerError::Full(_))) => lost,
            _ => error,
        }
    }
}

impl Transfer<'_> {
    /// The session, to prepare what comes next.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }

    /// Reads data; 0 at its end.
    ///
    /// # Errors
    /// [`ServerError`] if the server gave the transfer up, or nothing came for too long.
    pub async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ServerError> {
        let stall_max = self.session.dial.stall_max;
        let Self {
            session,
            leg,
            sent,
            early,
        } = self;
        let reading = timeout(stall_max, async {
            loop {
                tokio::select! {
                    read = leg.read(bytes) => return read.map_err(ServerError::Data),
                    reply = session.control.next_reply(*sent), if early.is_none() => {
                        note(reply?, *sent, early)?;
                    }
                }
            }
        });
        let read = reading
            .await
            .unwrap_or(Err(ServerError::Stalled(stall_max)));
        self.explained(read).await
    }

    /// Writes data.
    ///
    /// # Errors
    /// [`ServerError`] if the server gave the transfer up, or took nothing for too long.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        let stall_max = self.session.dial.stall_max;
        let mut rest = bytes;
        while !rest.is_empty() {
            let Self {
                session,
                leg,
                sent,
                early,
            } = self;
            let writing = timeout(stall_max, async {
                loop {
                    tokio::select! {
                        written = leg.write(rest) => return written.map_err(ServerError::Data),
                        reply = session.control.next_reply(*sent), if early.is_none() => {
                            note(reply?, *sent, early)?;
                        }
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
    pub async fn finish(mut self) -> Result<Reply, ServerError> {
        let ended = timeout(self.session.dial.stall_max, self.leg.shutdown()).await;
        let ended = match ended {
            Ok(result) => result.map_err(ServerError::Data),
            Err(_) => Err(ServerError::Stalled(self.session.dial.stall_max)),
        };
        // A server that has read all may close first.
        if let Err(error) = ended
            && !matches!(&error, ServerError::Data(it) if it.kind() == io::ErrorKind::NotConnected)
        {
            self.explained(Err::<(), _>(error)).await?;
        }
        let Self {
            session,
            leg,
            sent,
            early,
        } = self;
        let reply = match early {
            Some(reply) => reply,
            None => session.control.last(sent).await?,
        };
        // Until here: what a TLS server says at the end would be answered by a reset.
        drop(leg);
        if reply.is_completed() {
            Ok(reply)
        } else {
            Err(sent.refused(reply))
        }
    }

    /// The reason for a broken data connection is what the server says of it.
    async fn explained<T>(&mut self, result: Result<T, ServerError>) -> Result<T, ServerError> {
        match result {
            Err(error @ ServerError::Data(_)) if self.early.is_none() => {
                Err(self.session.reason(self.sent, error).await)
            }
            result => result,
        }
    }
}

/// A reply came while data moves: a failure ends the transfer, a success may be ahead of the last data.
fn note(reply: Reply, sent: Sent, early: &mut Option<Reply>) -> Result<(), ServerError> {
    match reply.class() {
        Class::Preliminary => Ok(()),
        Class::Completed => {
            *early = Some(reply);
            Ok(())
        }
        Class::Intermediate | Class::Failed => Err(sent.refused(reply)),
    }
}

impl Verb {
    fn name(self) -> &'static str {
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
