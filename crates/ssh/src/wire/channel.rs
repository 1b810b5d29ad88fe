//! Messages on the stream of a channel.

use bytes::Bytes;
use sftp::Rope;

use super::{
    Token, VERSION, WireError,
    frame::{self, Fields, Frame, put_bytes, put_list},
};

/// First message of a channel: its session and the client's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channel {
    /// Secret number of the session.
    pub(crate) token: Token,
    /// Program that the server starts.
    pub(crate) program: Program,
    /// Terminal that the client has requested.
    pub(crate) terminal: Option<Terminal>,
    /// Environment variables that the client has requested.
    pub(crate) environment: Vec<(String, String)>,
    /// Number of the channel within the session. `None` if the data of the channel are not coded.
    pub(crate) coded: Option<u32>,
}

/// Program that the server starts for a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Program {
    /// The user's shell.
    Shell,
    /// A command.
    Exec(Bytes),
    /// A subsystem.
    Subsystem(String),
    /// The subsystem `sftp`. Messages of the crate `sftp` replace the data.
    Sftp,
}

/// Terminal of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terminal {
    /// Type of the terminal: the value of `TERM`.
    pub(crate) kind: String,
    /// Size of the terminal.
    pub(crate) size: TerminalSize,
    /// Modes of the terminal, with their codes (RFC 4254 section 8).
    pub(crate) modes: Vec<(u8, u32)>,
}

/// Size of a terminal in characters and in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) columns: u32,
    pub(crate) rows: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// Later message of a channel, in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChannelMessage {
    /// Bytes of standard input or standard output.
    Data(Bytes),
    /// Bytes of standard error.
    Extended(Bytes),
    /// Message of an SFTP session.
    Sftp(u8, Rope),
    /// End of the data.
    Eof,
    /// End of the channel.
    Close,
    /// Signal for the program.
    Signal(String),
    /// New size of the terminal.
    Resize(TerminalSize),
    /// The server has started the program.
    Started,
    /// The server has refused to start the program.
    Refused,
    /// The far gateway could not open the channel. The text is a sentence for the user.
    Failed(String),
    /// Exit status of the program.
    ExitStatus(u32),
    /// Signal that has ended the program.
    ExitSignal {
        name: String,
        has_dumped_core: bool,
        message: String,
    },
}

impl Channel {
    /// Encodes the message as a frame.
    pub(crate) fn encode(&self) -> Bytes {
        let mut body = vec![VERSION];
        body.extend_from_slice(&self.token);
        match &self.program {
            Program::Shell => body.push(0),
            Program::Exec(command) => {
                body.push(1);
                put_bytes(&mut body, command);
            }
            Program::Subsystem(name) => {
                body.push(2);
                put_bytes(&mut body, name.as_bytes());
            }
            Program::Sftp => body.push(3),
        }
        body.push(u8::from(self.terminal.is_some()));
        if let Some(terminal) = &self.terminal {
            put_bytes(&mut body, terminal.kind.as_bytes());
            put_size(&mut body, terminal.size);
            put_list(&mut body, &terminal.modes, |body, (code, value)| {
                body.push(*code);
                body.extend_from_slice(&value.to_be_bytes());
            });
        }
        put_list(&mut body, &self.environment, |body, (name, value)| {
            put_bytes(body, name.as_bytes());
            put_bytes(body, value.as_bytes());
        });
        body.push(u8::from(self.coded.is_some()));
        if let Some(number) = self.coded {
            body.extend_from_slice(&number.to_be_bytes());
        }
        super::encode(CHANNEL, &body)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// [`WireError`] if the message is not valid.
    pub(crate) fn decode(kind: u8, body: Bytes) -> Result<Self, WireError> {
        if kind != CHANNEL {
            return Err(WireError::UnknownType(kind));
        }
        let mut fields = Fields::new(kind, body);
        let version = fields.u8()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let token = fields.take(16)?;
        let program = match fields.u8()? {
            0 => Program::Shell,
            1 => Program::Exec(fields.bytes()?),
            2 => Program::Subsystem(fields.text()?),
            3 => Program::Sftp,
            _ => return Err(fields.malformed()),
        };
        let terminal = match fields.flag()? {
            true => Some(Terminal {
                kind: fields.text()?,
                size: size(&mut fields)?,
                modes: fields.list(|fields| Ok((fields.u8()?, fields.u32()?)))?,
            }),
            false => None,
        };
        let channel = Self {
            token: token[..].try_into().expect("the token has 16 bytes"),
            program,
            terminal,
            environment: fields.list(|fields| Ok((fields.text()?, fields.text()?)))?,
            coded: match fields.flag()? {
                true => Some(fields.u32()?),
                false => None,
            },
        };
        fields.end(channel)
    }
}

impl ChannelMessage {
    /// Encodes the message as a frame, unless the message contains data.
    ///
    /// # Panics
    /// Panics for data, which have their own writers.
    pub(crate) fn encode(&self) -> Bytes {
        let mut body = Vec::new();
        let kind = match self {
            Self::Eof => EOF,
            Self::Close => CLOSE,
            Self::Signal(name) => {
                put_bytes(&mut body, name.as_bytes());
                SIGNAL
            }
            Self::Resize(size) => {
                put_size(&mut body, *size);
                RESIZE
            }
            Self::Started => STARTED,
            Self::Refused => REFUSED,
            Self::Failed(text) => {
                put_bytes(&mut body, text.as_bytes());
                FAILED
            }
            Self::ExitStatus(status) => {
                body.extend_from_slice(&status.to_be_bytes());
                EXIT_STATUS
            }
            Self::ExitSignal {
                name,
                has_dumped_core,
                message,
            } => {
                put_bytes(&mut body, name.as_bytes());
                body.push(u8::from(*has_dumped_core));
                put_bytes(&mut body, message.as_bytes());
                EXIT_SIGNAL
            }
            Self::Data(_) | Self::Extended(_) | Self::Sftp(..) => {
                unreachable!("data have their own writers")
            }
        };
        super::encode(kind, &body)
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// [`WireError`] if the body is not valid for the type.
    pub(crate) fn decode(frame: Frame) -> Result<Self, WireError> {
        let (kind, body) = match frame {
            Frame::Piece { kind: DATA, data } => return Ok(Self::Data(data)),
            Frame::Piece { data, .. } => return Ok(Self::Extended(data)),
            Frame::Whole { kind, body } if SFTP.contains(&kind) => {
                return Ok(Self::Sftp(kind, body));
            }
            Frame::Whole { kind, body } => (kind, body.into_bytes()),
        };
        let mut fields = Fields::new(kind, body);
        let message = match kind {
            EOF => Self::Eof,
            CLOSE => Self::Close,
            SIGNAL => Self::Signal(fields.text()?),
            RESIZE => Self::Resize(size(&mut fields)?),
            STARTED => Self::Started,
            REFUSED => Self::Refused,
            FAILED => Self::Failed(fields.text()?),
            EXIT_STATUS => Self::ExitStatus(fields.u32()?),
            EXIT_SIGNAL => Self::ExitSignal {
                name: fields.text()?,
                has_dumped_core: fields.flag()?,
                message: fields.text()?,
            },
            _ => return Err(WireError::UnknownType(kind)),
        };
        fields.end(message)
    }
}

fn put_size(body: &mut Vec<u8>, size: TerminalSize) {
    for value in [size.columns, size.rows, size.width, size.height] {
        body.extend_from_slice(&value.to_be_bytes());
    }
}

fn size(fields: &mut Fields) -> Result<TerminalSize, WireError> {
    Ok(TerminalSize {
        columns: fields.u32()?,
        rows: fields.u32()?,
        width: fields.u32()?,
        height: fields.u32()?,
    })
}

/// Type of frames with bytes of standard input or standard output.
pub(crate) const DATA: u8 = frame::DATA;

/// Type of frames with bytes of standard error.
pub(crate) const EXTENDED: u8 = frame::EXTENDED;

/// Types of the messages of the crate `sftp`.
const SFTP: std::ops::RangeInclusive<u8> = 64..=95;

const CHANNEL: u8 = 1;
const EOF: u8 = 4;
const CLOSE: u8 = 5;
const SIGNAL: u8 = 6;
const RESIZE: u8 = 7;
const STARTED: u8 = 8;
const REFUSED: u8 = 9;
const FAILED: u8 = 10;
const EXIT_STATUS: u8 = 11;
const EXIT_SIGNAL: u8 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: TerminalSize = TerminalSize {
        columns: 80,
        rows: 24,
        width: 0,
        height: 1,
    };

    #[test]
    fn the_first_message_reads_back_and_no_part_of_it_does() {
        for program in [
            Program::Shell,
            Program::Exec(Bytes::from_static(b"cat\xff")),
            Program::Subsystem("netconf".to_owned()),
            Program::Sftp,
        ] {
            let channel = Channel {
                token: [3; 16],
                program,
                terminal: Some(Terminal {
                    kind: "xterm".to_owned(),
                    size: SIZE,
                    modes: vec![(1, 3), (53, 1)],
                }),
                environment: vec![("LANG".to_owned(), "C".to_owned())],
                coded: Some(7),
            };
            let frame = channel.encode();
            assert_eq!(Channel::decode(frame[4], frame.slice(5..)), Ok(channel));
            for end in 5..frame.len() {
                Channel::decode(frame[4], frame.slice(5..end)).expect_err("truncated");
            }
        }
    }

    #[test]
    fn later_messages_read_back() {
        for message in [
            ChannelMessage::Eof,
            ChannelMessage::Close,
            ChannelMessage::Signal("INT".to_owned()),
            ChannelMessage::Resize(SIZE),
            ChannelMessage::Started,
            ChannelMessage::Refused,
            ChannelMessage::Failed("why".to_owned()),
            ChannelMessage::ExitStatus(3),
            ChannelMessage::ExitSignal {
                name: "KILL".to_owned(),
                has_dumped_core: true,
                message: String::new(),
            },
        ] {
            let frame = message.encode();
            let body = frame.slice(5..).into();
            let decoded = ChannelMessage::decode(Frame::Whole {
                kind: frame[4],
                body,
            });
            assert_eq!(decoded, Ok(message));
        }
    }
}
