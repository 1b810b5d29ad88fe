//! Messages between the two halves of a session (near gateway and far gateway), and their encoding.

use codec::{BodyError, Reader, put_flags, put_text};

use super::{CommandId, QuestionSubject, ReplyStage, ReplyTag, TransferId};

/// Message from the near gateway to the far gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageToFar {
    /// A request for the server. The far gateway queues the request until the server may receive
    /// it.
    Request(ServerRequest),
    /// The near gateway has dropped a data connection.
    Abandon(TransferId),
}

/// A client's request for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerRequest {
    /// A command line.
    Command {
        /// Number of the command.
        id: CommandId,
        /// Whether the client sent a Telnet Synch before the command.
        synch: bool,
        /// Whether the client already has a reply from the near gateway. If so, the gateways do not
        /// relay the server's reply.
        answered: bool,
        /// The line without its terminator and without its Telnet prefix.
        line: Vec<u8>,
    },
    /// A request for a data connection (`PASV`, `PORT` and similar commands).
    Data {
        /// Number of the command.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
        /// Whether the client already has a reply from the near gateway. If so, a refusal by the
        /// server becomes the reply to the client's transfer command.
        answered: bool,
    },
}

/// Message from the far gateway to the near gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageToNear {
    /// A reply line of the server.
    Reply {
        /// Properties of the line, such as the command to which it belongs.
        tag: ReplyTag,
        /// The line without its terminator.
        line: Vec<u8>,
    },
    /// The server has accepted the data connection that this command requested.
    DataReady(CommandId),
    /// The near gateway itself has replied to some commands. The server has now replied to the
    /// oldest of these commands.
    AnsweredAhead,
    /// The server sent no reply to this command, and the client has sent further commands.
    LeftUnanswered(CommandId),
    /// The server's reply to a prefetched command. The far gateway sent this command before any
    /// client requested it.
    Prefetched {
        /// Subject of the prefetched command.
        subject: QuestionSubject,
        /// Lines of the reply, joined by CRLF. `None` if the server sent no reply, or if the near
        /// gateway must not repeat the reply to clients.
        answer: Option<Vec<u8>>,
        /// Whether this message is the last one, so that no further prefetched reply follows.
        last: bool,
    },
    /// The session with the server is refused. The reply contains the reason. No further message
    /// follows.
    Refused {
        /// Code of the reply for the client.
        code: u16,
        /// Text of the reply for the client.
        text: String,
    },
    /// The server's control connection has ended. No further message follows.
    ServerClosed,
    /// The upload has ended at the server. Until this message arrives, the near gateway holds back
    /// a successful final reply.
    UploadEnded {
        /// Number of the data connection.
        transfer: TransferId,
        /// Whether the far gateway has written all of the client's bytes and the end of file to the
        /// server.
        is_whole: bool,
    },
}

impl From<ServerRequest> for MessageToFar {
    fn from(request: ServerRequest) -> Self {
        Self::Request(request)
    }
}

impl MessageToFar {
    /// Appends the encoded message to `body`, and returns its message type. The encoding is the
    /// same in all protocol versions.
    pub fn encode(&self, body: &mut Vec<u8>) -> u8 {
        match self {
            Self::Request(ServerRequest::Command {
                id,
                synch,
                answered,
                line,
            }) => {
                body.extend_from_slice(&id.0.to_be_bytes());
                put_flags(body, [*synch, *answered]);
                body.extend_from_slice(line);
                COMMAND
            }
            Self::Request(ServerRequest::Data {
                id,
                transfer,
                answered,
            }) => {
                body.extend_from_slice(&id.0.to_be_bytes());
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_flags(body, [*answered]);
                DATA
            }
            Self::Abandon(transfer) => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                ABANDON
            }
        }
    }

    /// Decodes the body of a message of type `kind`.
    ///
    /// # Errors
    /// [`BodyError`] if the type is unknown, or if the body is malformed.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, BodyError> {
        let mut reader = Reader::new(kind, body);
        let message = match kind {
            COMMAND => {
                let id = CommandId(reader.u32()?);
                let [synch, answered] = reader.flags()?;
                Self::Request(ServerRequest::Command {
                    id,
                    synch,
                    answered,
                    line: line(&mut reader)?,
                })
            }
            DATA => Self::Request(ServerRequest::Data {
                id: CommandId(reader.u32()?),
                transfer: TransferId(reader.u32()?),
                answered: reader.flag()?,
            }),
            ABANDON => Self::Abandon(TransferId(reader.u32()?)),
            other => return Err(BodyError::UnknownType(other)),
        };
        reader.end(message)
    }
}

impl MessageToNear {
    /// Appends the encoded message to `body`, and returns its message type. The encoding is the
    /// same in all protocol versions.
    pub fn encode(&self, body: &mut Vec<u8>) -> u8 {
        match self {
            Self::Reply { tag, line } => {
                put_tag(body, *tag);
                body.extend_from_slice(line);
                REPLY
            }
            Self::DataReady(id) => {
                body.extend_from_slice(&id.0.to_be_bytes());
                DATA_READY
            }
            Self::Refused { code, text } => {
                body.extend_from_slice(&code.to_be_bytes());
                put_text(body, text);
                REFUSED
            }
            Self::ServerClosed => SERVER_CLOSED,
            Self::Prefetched {
                subject,
                answer,
                last,
            } => {
                body.push(match subject {
                    QuestionSubject::System => 0,
                    QuestionSubject::Features => 1,
                    QuestionSubject::Directory => 2,
                });
                put_flags(body, [answer.is_some(), *last]);
                body.extend_from_slice(answer.as_deref().unwrap_or_default());
                PREFETCHED
            }
            Self::AnsweredAhead => ANSWERED_AHEAD,
            Self::UploadEnded { transfer, is_whole } => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_flags(body, [*is_whole]);
                UPLOAD_ENDED
            }
            Self::LeftUnanswered(id) => {
                body.extend_from_slice(&id.0.to_be_bytes());
                LEFT_UNANSWERED
            }
        }
    }

    /// Decodes the body of a message of type `kind`.
    ///
    /// # Errors
    /// [`BodyError`] if the type is unknown, or if the body is malformed.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, BodyError> {
        let mut reader = Reader::new(kind, body);
        let message = match kind {
            REPLY => Self::Reply {
                tag: tag(&mut reader)?,
                line: line(&mut reader)?,
            },
            DATA_READY => Self::DataReady(CommandId(reader.u32()?)),
            REFUSED => Self::Refused {
                code: reader.u16()?,
                text: one_line(&mut reader)?,
            },
            SERVER_CLOSED => Self::ServerClosed,
            PREFETCHED => prefetched(&mut reader)?,
            ANSWERED_AHEAD => Self::AnsweredAhead,
            UPLOAD_ENDED => Self::UploadEnded {
                transfer: TransferId(reader.u32()?),
                is_whole: reader.flag()?,
            },
            LEFT_UNANSWERED => Self::LeftUnanswered(CommandId(reader.u32()?)),
            other => return Err(BodyError::UnknownType(other)),
        };
        reader.end(message)
    }
}

fn put_tag(body: &mut Vec<u8>, tag: ReplyTag) {
    body.extend_from_slice(&tag.command.map_or(0, |c| c.0).to_be_bytes());
    body.extend_from_slice(&tag.transfer.map_or(0, |t| t.0).to_be_bytes());
    body.push(u8::from(tag.stage == ReplyStage::Final));
    body.extend_from_slice(&tag.code.to_be_bytes());
    put_flags(body, [tag.last, tag.prefetches]);
}

fn tag(reader: &mut Reader<'_>) -> Result<ReplyTag, BodyError> {
    let command = Some(reader.u32()?).filter(|id| *id != 0).map(CommandId);
    let transfer = Some(reader.u32()?).filter(|id| *id != 0).map(TransferId);
    let stage = match reader.flag()? {
        true => ReplyStage::Final,
        false => ReplyStage::Preliminary,
    };
    let code = reader.u16()?;
    let [last, prefetches] = reader.flags()?;
    Ok(ReplyTag {
        command,
        transfer,
        stage,
        code,
        last,
        prefetches,
    })
}

fn prefetched(reader: &mut Reader<'_>) -> Result<MessageToNear, BodyError> {
    let subject = match reader.u8()? {
        0 => QuestionSubject::System,
        1 => QuestionSubject::Features,
        2 => QuestionSubject::Directory,
        _ => return Err(reader.malformed()),
    };
    let [is_known, last] = reader.flags()?;
    let lines = reader.rest();
    if !is_known && !lines.is_empty() {
        return Err(reader.malformed());
    }
    Ok(MessageToNear::Prefetched {
        subject,
        answer: is_known.then_some(lines),
        last,
    })
}

/// Returns the remaining bytes as one line. A line with a newline is an error, because the text
/// after the newline would be another command or reply.
fn line(reader: &mut Reader<'_>) -> Result<Vec<u8>, BodyError> {
    let line = reader.rest();
    if line.contains(&b'\n') {
        Err(reader.malformed())
    } else {
        Ok(line)
    }
}

fn one_line(reader: &mut Reader<'_>) -> Result<String, BodyError> {
    let text = reader.text()?;
    if text.contains(['\r', '\n']) {
        Err(reader.malformed())
    } else {
        Ok(text)
    }
}

/// Types of messages to the far gateway. On the same stream, the gateways use other types for their
/// own reports.
const COMMAND: u8 = 1;
const DATA: u8 = 2;
const ABANDON: u8 = 3;

/// Types of messages to the near gateway.
const REPLY: u8 = 1;
const DATA_READY: u8 = 2;
const REFUSED: u8 = 3;
const SERVER_CLOSED: u8 = 4;
const PREFETCHED: u8 = 6;
const ANSWERED_AHEAD: u8 = 7;
const UPLOAD_ENDED: u8 = 8;
const LEFT_UNANSWERED: u8 = 11;

#[cfg(test)]
mod tests;
