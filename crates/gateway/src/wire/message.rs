//! The messages, one enum for each place where they may come.

use ftp::{
    command::PassiveForm,
    session::{CommandId, Stage, Tag, TransferId},
};

use super::{
    VERSION, Wire, WireError,
    body::{Reader, put_text},
};
use crate::target::{Endpoint, Host};

/// The first message of a stream, from the side that opened it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// What the stream is for.
    pub service: Service,
}

/// What a stream is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// Raw bytes to and from a TCP service.
    Forward {
        /// What to connect to.
        target: Endpoint,
    },
    /// An FTP session; messages follow.
    FtpSession {
        /// Number of the session, unique among those of the opening gateway.
        session: u64,
        /// The server.
        target: Endpoint,
        /// `USER name`, when the client was greeted by the gateway and named its server.
        logon: Option<(CommandId, Vec<u8>)>,
    },
    /// The bytes of a data connection.
    FtpData {
        /// Its session.
        session: u64,
        /// Its number within the session.
        transfer: TransferId,
    },
}

/// From the near side, on the stream of an FTP session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearMessage {
    /// A command of the client's.
    Command {
        /// Its number.
        id: CommandId,
        /// A Telnet Synch came with it.
        synch: bool,
        /// Without terminator.
        line: Vec<u8>,
    },
    /// The client wants a passive data connection.
    Passive {
        /// Number of the command.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
        /// How the client asked.
        form: PassiveForm,
    },
    /// A data connection was given up.
    Abandon(TransferId),
}

/// From the far side, on the stream of an FTP session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FarMessage {
    /// A reply line of the server's.
    Reply {
        /// What it answers.
        tag: Tag,
        /// Without terminator.
        line: Vec<u8>,
    },
    /// The server awaits the data connection.
    PassiveReady {
        /// Number of the command that asked.
        id: CommandId,
        /// Number of the data connection.
        transfer: TransferId,
    },
    /// The server is not reached; the reply that says why.
    Refused {
        /// Code of the reply.
        code: u16,
        /// Its text.
        text: String,
    },
    /// The server's control connection has ended.
    ServerClosed,
    /// What the far side waits for in a transfer.
    Waiting(TransferId, Limit),
}

/// What limits a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The client reads or writes slowly.
    Client,
    /// The link.
    Wan,
    /// The server reads or writes slowly.
    Server,
}

impl Wire for Hello {
    fn encode_body(&self, body: &mut Vec<u8>) -> u8 {
        body.push(VERSION);
        match &self.service {
            Service::Forward { target } => {
                put_endpoint(body, target);
                1
            }
            Service::FtpSession {
                session,
                target,
                logon,
            } => {
                body.extend_from_slice(&session.to_be_bytes());
                put_endpoint(body, target);
                body.push(u8::from(logon.is_some()));
                if let Some((id, line)) = logon {
                    body.extend_from_slice(&id.0.to_be_bytes());
                    body.extend_from_slice(line);
                }
                2
            }
            Service::FtpData { session, transfer } => {
                body.extend_from_slice(&session.to_be_bytes());
                body.extend_from_slice(&transfer.0.to_be_bytes());
                3
            }
        }
    }

    fn decode_body(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        match reader.u8()? {
            VERSION => {}
            other => return Err(WireError::Version(other)),
        }
        let service = match kind {
            1 => Service::Forward {
                target: endpoint(&mut reader)?,
            },
            2 => {
                let session = reader.u64()?;
                let target = endpoint(&mut reader)?;
                let logon = if reader.flag()? {
                    Some((CommandId(reader.u32()?), line(&mut reader)?))
                } else {
                    None
                };
                Service::FtpSession {
                    session,
                    target,
                    logon,
                }
            }
            3 => Service::FtpData {
                session: reader.u64()?,
                transfer: TransferId(reader.u32()?),
            },
            other => return Err(WireError::UnknownType(other)),
        };
        #[cfg(fuzz_canary)]
        if let Service::FtpData { transfer, .. } = &service {
            assert!(transfer.0 != 0x5eed, "canary: in the decoder of hellos");
        }
        reader.end(Self { service })
    }
}

impl Wire for NearMessage {
    fn encode_body(&self, body: &mut Vec<u8>) -> u8 {
        match self {
            Self::Command { id, synch, line } => {
                body.extend_from_slice(&id.0.to_be_bytes());
                body.push(u8::from(*synch));
                body.extend_from_slice(line);
                1
            }
            Self::Passive { id, transfer, form } => {
                body.extend_from_slice(&id.0.to_be_bytes());
                body.extend_from_slice(&transfer.0.to_be_bytes());
                body.push(u8::from(*form == PassiveForm::Epsv));
                2
            }
            Self::Abandon(transfer) => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                3
            }
        }
    }

    fn decode_body(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        let message = match kind {
            1 => Self::Command {
                id: CommandId(reader.u32()?),
                synch: reader.flag()?,
                line: line(&mut reader)?,
            },
            2 => Self::Passive {
                id: CommandId(reader.u32()?),
                transfer: TransferId(reader.u32()?),
                form: if reader.flag()? {
                    PassiveForm::Epsv
                } else {
                    PassiveForm::Pasv
                },
            },
            3 => Self::Abandon(TransferId(reader.u32()?)),
            other => return Err(WireError::UnknownType(other)),
        };
        reader.end(message)
    }
}

impl Wire for FarMessage {
    fn encode_body(&self, body: &mut Vec<u8>) -> u8 {
        match self {
            Self::Reply { tag, line } => {
                body.extend_from_slice(&tag.command.map_or(0, |c| c.0).to_be_bytes());
                body.extend_from_slice(&tag.transfer.map_or(0, |t| t.0).to_be_bytes());
                body.push(u8::from(tag.stage == Stage::Final));
                body.extend_from_slice(&tag.code.to_be_bytes());
                body.push(u8::from(tag.last));
                body.extend_from_slice(line);
                1
            }
            Self::PassiveReady { id, transfer } => {
                body.extend_from_slice(&id.0.to_be_bytes());
                body.extend_from_slice(&transfer.0.to_be_bytes());
                2
            }
            Self::Refused { code, text } => {
                body.extend_from_slice(&code.to_be_bytes());
                put_text(body, text);
                3
            }
            Self::ServerClosed => 4,
            Self::Waiting(transfer, limit) => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                body.push(match limit {
                    Limit::Client => 0,
                    Limit::Wan => 1,
                    Limit::Server => 2,
                });
                5
            }
        }
    }

    fn decode_body(kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        let message = match kind {
            1 => Self::Reply {
                tag: Tag {
                    command: Some(reader.u32()?).filter(|id| *id != 0).map(CommandId),
                    transfer: Some(reader.u32()?).filter(|id| *id != 0).map(TransferId),
                    stage: if reader.flag()? {
                        Stage::Final
                    } else {
                        Stage::Preliminary
                    },
                    code: reader.u16()?,
                    last: reader.flag()?,
                },
                line: line(&mut reader)?,
            },
            2 => Self::PassiveReady {
                id: CommandId(reader.u32()?),
                transfer: TransferId(reader.u32()?),
            },
            3 => Self::Refused {
                code: reader.u16()?,
                text: one_line(&mut reader)?,
            },
            4 => Self::ServerClosed,
            5 => {
                let transfer = TransferId(reader.u32()?);
                let limit = match reader.u8()? {
                    0 => Limit::Client,
                    1 => Limit::Wan,
                    2 => Limit::Server,
                    _ => return Err(reader.malformed()),
                };
                Self::Waiting(transfer, limit)
            }
            other => return Err(WireError::UnknownType(other)),
        };
        reader.end(message)
    }
}

/// What is left, as a line: a newline inside it would become another command or reply.
fn line(reader: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
    let line = reader.rest();
    if line.contains(&b'\n') {
        Err(reader.malformed())
    } else {
        Ok(line)
    }
}

fn one_line(reader: &mut Reader<'_>) -> Result<String, WireError> {
    let text = reader.text()?;
    if text.contains(['\r', '\n']) {
        Err(reader.malformed())
    } else {
        Ok(text)
    }
}

fn put_endpoint(body: &mut Vec<u8>, endpoint: &Endpoint) {
    let host = match &endpoint.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    put_text(body, &host);
    body.extend_from_slice(&endpoint.port.to_be_bytes());
}

fn endpoint(reader: &mut Reader<'_>) -> Result<Endpoint, WireError> {
    let host = reader.text()?;
    let host = Host::parse(&host).map_err(|_| reader.malformed())?;
    match reader.u16()? {
        0 => Err(reader.malformed()),
        port => Ok(Endpoint { host, port }),
    }
}
