//! Messages between gateways. Each kind of stream and direction has its own enum.

use codec::{BodyError, Reader, Version, put_flags, put_text};
use ftp::session::{
    CommandId, MessageToFar, MessageToNear, SessionMode, TransferId, far::DataOpener,
};
use link::PublicKey;

use super::{
    WireError, WireMessage,
    coding::{CodingOffer, CutParameters, coding, cutting, put_coding, put_cutting},
    report::{
        DeliveryReport, Grant, TransferBottleneck, delivered, grant, limit, put_delivered,
        put_grant, put_limit,
    },
};
use net::{
    target::{Host, HostPort},
    tls::ServerTls,
};

/// The first message of a stream. The gateway that opens the stream sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamHello {
    /// Service that the stream requests.
    pub service: Service,
}

/// Service that a stream requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// Relaying of bytes to and from a TCP service.
    Forward {
        /// Address to which the far gateway connects.
        target: HostPort,
        /// Offered coding of both directions. `None` if the bytes are not coded.
        coding: Option<CodingOffer>,
    },
    /// An FTP session. Messages of the session follow on the stream.
    FtpSession {
        /// Protocol version of the messages that follow.
        version: Version,
        /// Number of the session. The number is unique within the opening gateway.
        session: u64,
        /// Server of the session.
        target: HostPort,
        /// Number and line of the client's `USER name` command. `None` if the client does not name
        /// its server. In this case, the client receives the server's own greeting.
        logon: Option<(CommandId, Vec<u8>)>,
        /// Session mode. In fast mode, the far gateway may send commands before the client sends
        /// them.
        mode: SessionMode,
        /// Host that opens the server's data connections.
        server_data: DataOpener,
        /// TLS between the far gateway and the server. `None` disables TLS.
        tls: Option<ServerTls>,
        /// Offered coding of the session's data connections. `None` if their bytes are not coded.
        coding: Option<CodingOffer>,
    },
    /// A data connection. Its bytes follow on the stream.
    FtpData {
        /// Number of the session.
        session: u64,
        /// Number of the data connection within the session.
        transfer: TransferId,
    },
    /// Report of a truncation: at the sender, a data connection ended without close_notify. The
    /// receiver ends its data connection in the same way. The receiver finishes this stream in
    /// order to confirm the report.
    Truncated {
        /// Number of the session, which the near gateway has chosen.
        session: u64,
        /// Number of the data connection within the session.
        transfer: TransferId,
        /// Whether the truncation occurred at the near gateway, which opened this stream.
        /// Otherwise, it occurred at the far gateway.
        by_client: bool,
    },
    /// Requests for missing chunks. The data of a data connection contain references to these
    /// chunks. The requests are [`ChunkRequest`](super::ChunkRequest)s. The replies are the chunks
    /// in order, as coded bytes.
    Chunks {
        /// Number of the session.
        session: u64,
        /// Number of the data connection within the session.
        transfer: TransferId,
        /// Whether the near gateway sends the data of the data connection. The near gateway is the
        /// gateway that opened the session.
        of_near: bool,
    },
    /// A service with this name. The following bytes belong to the service.
    Named(String),
    /// Request to become a peer, from a gateway that presents an invite. The reply is one
    /// [`EnrolReply`].
    Enrol {
        /// Secret token of the invite.
        token: [u8; TOKEN_BYTES],
        /// Public key of the requesting gateway.
        public_key: PublicKey,
        /// Name that the requesting gateway suggests for itself.
        name: String,
    },
}

/// Length of the token of an invite. A token of 128 bits cannot be guessed.
pub const TOKEN_BYTES: usize = 16;

/// Reply to [`Service::Enrol`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrolReply {
    /// The requesting gateway is now a peer.
    Enrolled {
        /// Name of the new peer at the replying gateway.
        name: String,
    },
    /// The requesting gateway has not become a peer.
    Refused {
        /// Reason for the refusal.
        text: String,
    },
}

/// A message from the near gateway on the stream of an FTP session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearMessage {
    /// A message of the FTP session.
    Session(MessageToFar),
    /// Report of a transfer's bottleneck, as measured at the near gateway.
    Waiting(TransferId, TransferBottleneck),
}

/// A message from the far gateway on the stream of an FTP session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FarMessage {
    /// A message of the FTP session.
    Session(MessageToNear),
    /// Report of a transfer's bottleneck, as measured at the far gateway.
    Waiting(TransferId, TransferBottleneck),
    /// Report of the number of bytes that the server has accepted in an upload. Protocol version 5
    /// uses this message instead of grants.
    Delivered(TransferId, DeliveryReport),
    /// Grant of an upload: the maximum number of bytes in flight.
    Granted(TransferId, Grant),
    /// For each later upload, the maximum number of bytes in flight until the first grant arrives.
    FirstBudget(u64),
    /// Parameters by which the far gateway cuts bytes into chunks. A far gateway with a chunk store
    /// for this session sends these parameters before all messages of the FTP session.
    Store(CutParameters),
}

impl WireMessage for StreamHello {
    fn encode_body(&self, _: Version, body: &mut Vec<u8>) -> u8 {
        // Only the streams of FTP sessions differ between versions.
        let version = match &self.service {
            Service::FtpSession { version, .. } => *version,
            _ => Version::OLDEST,
        };
        body.push(version.byte());
        match &self.service {
            Service::Forward { target, coding } => {
                put_endpoint(body, target);
                put_coding(body, coding.as_ref());
                1
            }
            Service::FtpSession {
                version: _,
                session,
                target,
                logon,
                mode,
                server_data,
                tls,
                coding,
            } => {
                body.extend_from_slice(&session.to_be_bytes());
                put_endpoint(body, target);
                let is_strict = *mode == SessionMode::Strict;
                let is_active = *server_data == DataOpener::Active;
                put_flags(body, [logon.is_some(), is_strict, is_active, tls.is_some()]);
                put_coding(body, coding.as_ref());
                if let Some(tls) = tls {
                    body.extend_from_slice(&(tls.encoded_bytes() as u16).to_be_bytes());
                    tls.encode(body);
                }
                if let Some((id, line)) = logon {
                    body.extend_from_slice(&id.0.to_be_bytes());
                    body.extend_from_slice(line);
                }
                FTP_SESSION
            }
            Service::FtpData { session, transfer } => {
                body.extend_from_slice(&session.to_be_bytes());
                body.extend_from_slice(&transfer.0.to_be_bytes());
                3
            }
            Service::Truncated {
                session,
                transfer,
                by_client,
            } => {
                body.extend_from_slice(&session.to_be_bytes());
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_flags(body, [*by_client]);
                4
            }
            Service::Chunks {
                session,
                transfer,
                of_near,
            } => {
                body.extend_from_slice(&session.to_be_bytes());
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_flags(body, [*of_near]);
                6
            }
            Service::Enrol {
                token,
                public_key,
                name,
            } => {
                body.extend_from_slice(token);
                body.extend_from_slice(&public_key.0);
                put_text(body, name);
                5
            }
            Service::Named(name) => {
                put_text(body, name);
                7
            }
        }
    }

    fn decode_body(_: Version, kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        let peer = reader.u8()?;
        let version = Version::from_byte(peer).ok_or(WireError::Version {
            peer,
            // The type bytes are the same in every version.
            is_session: kind == FTP_SESSION,
        })?;
        let service = match kind {
            1 => Service::Forward {
                target: endpoint(&mut reader)?,
                coding: coding(&mut reader)?,
            },
            FTP_SESSION => {
                let session = reader.u64()?;
                let target = endpoint(&mut reader)?;
                let [has_logon, is_strict, is_active, has_tls] = reader.flags()?;
                let coding = coding(&mut reader)?;
                let tls = match has_tls {
                    true => {
                        let bytes = reader.bytes()?;
                        Some(ServerTls::decode(bytes).ok_or(reader.malformed())?)
                    }
                    false => None,
                };
                let logon = if has_logon {
                    Some((CommandId(reader.u32()?), line(&mut reader)?))
                } else {
                    None
                };
                Service::FtpSession {
                    version,
                    session,
                    target,
                    logon,
                    mode: match is_strict {
                        true => SessionMode::Strict,
                        false => SessionMode::Fast,
                    },
                    server_data: match is_active {
                        true => DataOpener::Active,
                        false => DataOpener::Passive,
                    },
                    tls,
                    coding,
                }
            }
            3 => Service::FtpData {
                session: reader.u64()?,
                transfer: TransferId(reader.u32()?),
            },
            4 => Service::Truncated {
                session: reader.u64()?,
                transfer: TransferId(reader.u32()?),
                by_client: reader.flag()?,
            },
            5 => Service::Enrol {
                token: reader.array()?,
                public_key: PublicKey(reader.array()?),
                name: reader.text()?,
            },
            6 => Service::Chunks {
                session: reader.u64()?,
                transfer: TransferId(reader.u32()?),
                of_near: reader.flag()?,
            },
            7 => Service::Named(reader.text()?),
            other => return Err(BodyError::UnknownType(other).into()),
        };
        #[cfg(fuzz_canary)]
        if let Service::FtpData { transfer, .. } = &service {
            assert!(transfer.0 != 0x5eed, "canary: in the decoder of hellos");
        }
        Ok(reader.end(Self { service })?)
    }
}

impl WireMessage for EnrolReply {
    fn encode_body(&self, _: Version, body: &mut Vec<u8>) -> u8 {
        let (kind, text) = match self {
            Self::Enrolled { name } => (1, name),
            Self::Refused { text } => (2, text),
        };
        put_text(body, text);
        kind
    }

    fn decode_body(_: Version, kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        let reply = match kind {
            1 => Self::Enrolled {
                name: reader.text()?,
            },
            2 => Self::Refused {
                text: reader.text()?,
            },
            other => return Err(BodyError::UnknownType(other).into()),
        };
        Ok(reader.end(reply)?)
    }
}

impl WireMessage for NearMessage {
    fn encode_body(&self, _: Version, body: &mut Vec<u8>) -> u8 {
        match self {
            Self::Session(message) => message.encode(body),
            Self::Waiting(transfer, limit) => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_limit(body, *limit);
                4
            }
        }
    }

    fn decode_body(_: Version, kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        let message = match kind {
            4 => Self::Waiting(TransferId(reader.u32()?), limit(&mut reader)?),
            _ => return Ok(Self::Session(MessageToFar::decode(kind, body)?)),
        };
        Ok(reader.end(message)?)
    }
}

impl WireMessage for FarMessage {
    fn is_in(&self, version: Version) -> bool {
        match self {
            Self::Session(_) | Self::Waiting(..) | Self::Store(_) => true,
            Self::Granted(..) | Self::FirstBudget(_) => version >= Version::V6,
            Self::Delivered(..) => version == Version::V5,
        }
    }

    fn encode_body(&self, _: Version, body: &mut Vec<u8>) -> u8 {
        match self {
            Self::Session(message) => message.encode(body),
            Self::Waiting(transfer, limit) => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_limit(body, *limit);
                5
            }
            Self::Store(cutting) => {
                put_cutting(body, cutting);
                9
            }
            Self::Granted(transfer, grant) => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_grant(body, *grant);
                10
            }
            Self::Delivered(transfer, delivered) => {
                body.extend_from_slice(&transfer.0.to_be_bytes());
                put_delivered(body, *delivered);
                10
            }
            Self::FirstBudget(bytes) => {
                body.extend_from_slice(&bytes.to_be_bytes());
                12
            }
        }
    }

    fn decode_body(version: Version, kind: u8, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(kind, body);
        let message = match kind {
            5 => Self::Waiting(TransferId(reader.u32()?), limit(&mut reader)?),
            9 => Self::Store(cutting(&mut reader)?),
            10 if version == Version::V5 => {
                Self::Delivered(TransferId(reader.u32()?), delivered(&mut reader)?)
            }
            10 => Self::Granted(TransferId(reader.u32()?), grant(&mut reader)?),
            12 if version >= Version::V6 => Self::FirstBudget(reader.u64()?),
            _ => return Ok(Self::Session(MessageToNear::decode(kind, body)?)),
        };
        Ok(reader.end(message)?)
    }
}

/// Returns the remaining bytes as one line. A line with a newline is an error, because the text
/// after the newline would be another command.
fn line(reader: &mut Reader<'_>) -> Result<Vec<u8>, BodyError> {
    let line = reader.rest();
    if line.contains(&b'\n') {
        Err(reader.malformed())
    } else {
        Ok(line)
    }
}

fn put_endpoint(body: &mut Vec<u8>, endpoint: &HostPort) {
    let host = match &endpoint.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    put_text(body, &host);
    body.extend_from_slice(&endpoint.port.to_be_bytes());
}

fn endpoint(reader: &mut Reader<'_>) -> Result<HostPort, BodyError> {
    let host = reader.text()?;
    let host = Host::parse(&host).map_err(|_| reader.malformed())?;
    match reader.u16()? {
        0 => Err(reader.malformed()),
        port => Ok(HostPort { host, port }),
    }
}

/// Type of the [`StreamHello`] of an FTP session. The type is the same in all protocol versions. A
/// gateway of any version therefore recognises such a stream, and may send a reply on it. On a
/// stream of raw bytes, the peer would treat a reply as data.
const FTP_SESSION: u8 = 2;
