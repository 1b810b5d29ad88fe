//! Messages on the stream of a session: log-in, and the end of the session.

use std::fmt;

use bytes::Bytes;
use net::target::HostPort;
use relay::wire::{CodingOffer, CutParameters};
use russh::{MethodKind, MethodSet};

use super::{
    Token, VERSION, WireError,
    frame::{Fields, put_bytes, put_list},
    parse_target,
};
use crate::settings::PublicKeyWay;

/// Message from the near half to the far half.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ToFar {
    /// First message: the server of the session.
    Open {
        /// Secret number of the session.
        token: Token,
        /// Server of the session.
        target: HostPort,
        /// Address of the client, for logs.
        client: String,
        /// Number of the session, for requests for chunks.
        session: u64,
        /// Coding that the near half offers for the data of channels.
        coding: Option<CodingOffer>,
    },
    /// Request for the methods that the server offers to a user.
    Methods {
        /// Name of the user.
        user: String,
    },
    /// Log-in by a password.
    Password {
        /// Name of the user.
        user: String,
        /// Password.
        password: String,
    },
    /// Log-in by questions of the server.
    Interactive {
        /// Name of the user.
        user: String,
        /// Kinds of questions that the client prefers.
        submethods: String,
    },
    /// Answers to the questions in the last [`ToNear::Prompts`].
    Answers {
        /// Answers in the order of the questions.
        answers: Vec<String>,
    },
    /// Public key that the client has offered.
    Offered {
        /// Name of the user.
        user: String,
        /// Public key in its wire format (RFC 4253 section 6.6).
        key: Bytes,
        /// Name of the signature algorithm.
        algorithm: String,
    },
    /// The client has proved that it has the private key of the offered key. The far half logs in
    /// by one of these ways.
    Proved {
        /// Permitted ways in the order of preference.
        ways: Vec<PublicKeyWay>,
    },
    /// Signature of the client's agent over the data in [`ToNear::KeyKnown`].
    Signature {
        /// Signature in its wire format.
        signature: Bytes,
    },
}

/// Message from the far half to the near half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToNear {
    /// The host key of the server is trusted.
    Server {
        /// SHA-256 fingerprint of the host key.
        fingerprint: String,
        /// Parameters by which the far gateway cuts data into chunks. `None` if it has no chunk
        /// store for the session.
        cutting: Option<CutParameters>,
    },
    /// The session is impossible, or has ended.
    Ended {
        /// Reason.
        reason: EndReason,
        /// Sentence for the user.
        text: String,
    },
    /// Message of the server to the user.
    Banner {
        /// Text of the server.
        text: String,
    },
    /// The server has not accepted the log-in.
    Rejected {
        /// Methods with which the client can continue.
        methods: Vec<Method>,
        /// Whether the method was accepted, and another method must follow.
        is_partial: bool,
    },
    /// The server has accepted the log-in.
    Authenticated,
    /// Questions of the server.
    Prompts {
        /// Title.
        name: String,
        /// Instructions.
        instructions: String,
        /// Questions. Each question states whether the answer may be visible.
        prompts: Vec<(String, bool)>,
    },
    /// The server accepts the offered key for the log-in of the user.
    KeyKnown {
        /// Data that the private key must sign.
        to_sign: Bytes,
    },
}

/// Reason why a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The server or the gateway cannot be reached, or is not permitted.
    Unavailable,
    /// The host key of the server is not trusted.
    HostKey,
    /// The connection to the server has ended.
    Closed,
}

/// Method of authentication that the gateways can relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Password,
    PublicKey,
    Interactive,
}

impl Method {
    /// Returns the methods in a set that the gateways can relay.
    pub(crate) fn of_set(set: &MethodSet) -> Vec<Self> {
        let method = |kind: &MethodKind| match kind {
            MethodKind::Password => Some(Self::Password),
            MethodKind::PublicKey => Some(Self::PublicKey),
            MethodKind::KeyboardInteractive => Some(Self::Interactive),
            _ => None,
        };
        set.iter().filter_map(method).collect()
    }

    pub(crate) fn kind(self) -> MethodKind {
        match self {
            Self::Password => MethodKind::Password,
            Self::PublicKey => MethodKind::PublicKey,
            Self::Interactive => MethodKind::KeyboardInteractive,
        }
    }
}

impl ToFar {
    /// Encodes the message as a frame.
    pub(crate) fn encode(&self) -> Bytes {
        let mut body = Vec::new();
        let kind = match self {
            Self::Open {
                token,
                target,
                client,
                session,
                coding,
            } => {
                body.push(VERSION);
                body.extend_from_slice(token);
                put_bytes(&mut body, target.to_string().as_bytes());
                put_bytes(&mut body, client.as_bytes());
                body.extend_from_slice(&session.to_be_bytes());
                put_bytes(&mut body, &CodingOffer::encode(coding.as_ref()));
                OPEN
            }
            Self::Methods { user } => {
                put_bytes(&mut body, user.as_bytes());
                METHODS
            }
            Self::Password { user, password } => {
                put_bytes(&mut body, user.as_bytes());
                put_bytes(&mut body, password.as_bytes());
                PASSWORD
            }
            Self::Interactive { user, submethods } => {
                put_bytes(&mut body, user.as_bytes());
                put_bytes(&mut body, submethods.as_bytes());
                INTERACTIVE
            }
            Self::Answers { answers } => {
                put_list(&mut body, answers, |body, it| {
                    put_bytes(body, it.as_bytes())
                });
                ANSWERS
            }
            Self::Offered {
                user,
                key,
                algorithm,
            } => {
                put_bytes(&mut body, user.as_bytes());
                put_bytes(&mut body, key);
                put_bytes(&mut body, algorithm.as_bytes());
                OFFERED
            }
            Self::Proved { ways } => {
                put_list(&mut body, ways, |body, it| body.push(way_code(*it)));
                PROVED
            }
            Self::Signature { signature } => {
                put_bytes(&mut body, signature);
                SIGNATURE
            }
        };
        super::encode(kind, &body)
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`WireError`] if the body is not valid for the type.
    pub(crate) fn decode(kind: u8, body: Bytes) -> Result<Self, WireError> {
        let mut fields = Fields::new(kind, body);
        let message = match kind {
            OPEN => {
                let version = fields.u8()?;
                if version != VERSION {
                    return Err(WireError::Version(version));
                }
                let token = fields.take(16)?;
                let target = parse_target(&fields.text()?);
                Self::Open {
                    token: token[..].try_into().expect("the token has 16 bytes"),
                    target: target.ok_or(fields.malformed())?,
                    client: fields.text()?,
                    session: fields.u64()?,
                    coding: {
                        let offer = CodingOffer::decode(kind, &fields.bytes()?);
                        offer.map_err(|_| fields.malformed())?
                    },
                }
            }
            METHODS => Self::Methods {
                user: fields.text()?,
            },
            PASSWORD => Self::Password {
                user: fields.text()?,
                password: fields.text()?,
            },
            INTERACTIVE => Self::Interactive {
                user: fields.text()?,
                submethods: fields.text()?,
            },
            ANSWERS => Self::Answers {
                answers: fields.list(Fields::text)?,
            },
            OFFERED => Self::Offered {
                user: fields.text()?,
                key: fields.bytes()?,
                algorithm: fields.text()?,
            },
            PROVED => Self::Proved {
                ways: fields.list(|fields| {
                    let code = fields.u8()?;
                    way_of_code(code).ok_or(fields.malformed())
                })?,
            },
            SIGNATURE => Self::Signature {
                signature: fields.bytes()?,
            },
            _ => return Err(WireError::UnknownType(kind)),
        };
        #[cfg(fuzz_canary)]
        if let Self::Open { session, .. } = &message {
            assert!(session % 64 != 37, "canary: in the opening of a session");
        }
        fields.end(message)
    }
}

/// Shows the type of the message, since messages contain passwords.
impl fmt::Debug for ToFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open { .. } => "Open",
            Self::Methods { .. } => "Methods",
            Self::Password { .. } => "Password",
            Self::Interactive { .. } => "Interactive",
            Self::Answers { .. } => "Answers",
            Self::Offered { .. } => "Offered",
            Self::Proved { .. } => "Proved",
            Self::Signature { .. } => "Signature",
        })
    }
}

impl ToNear {
    /// Encodes the message as a frame.
    pub(crate) fn encode(&self) -> Bytes {
        let mut body = Vec::new();
        let kind = match self {
            Self::Server {
                fingerprint,
                cutting,
            } => {
                put_bytes(&mut body, fingerprint.as_bytes());
                body.push(u8::from(cutting.is_some()));
                if let Some(cutting) = cutting {
                    put_bytes(&mut body, &cutting.encode());
                }
                SERVER
            }
            Self::Ended { reason, text } => {
                body.push(match reason {
                    EndReason::Unavailable => 0,
                    EndReason::HostKey => 1,
                    EndReason::Closed => 2,
                });
                put_bytes(&mut body, text.as_bytes());
                ENDED
            }
            Self::Banner { text } => {
                put_bytes(&mut body, text.as_bytes());
                BANNER
            }
            Self::Rejected {
                methods,
                is_partial,
            } => {
                put_list(&mut body, methods, |body, it| {
                    body.push(match it {
                        Method::Password => 0,
                        Method::PublicKey => 1,
                        Method::Interactive => 2,
                    });
                });
                body.push(u8::from(*is_partial));
                REJECTED
            }
            Self::Authenticated => AUTHENTICATED,
            Self::Prompts {
                name,
                instructions,
                prompts,
            } => {
                put_bytes(&mut body, name.as_bytes());
                put_bytes(&mut body, instructions.as_bytes());
                put_list(&mut body, prompts, |body, (text, is_visible)| {
                    put_bytes(body, text.as_bytes());
                    body.push(u8::from(*is_visible));
                });
                PROMPTS
            }
            Self::KeyKnown { to_sign } => {
                put_bytes(&mut body, to_sign);
                KEY_KNOWN
            }
        };
        super::encode(kind, &body)
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`WireError`] if the body is not valid for the type.
    pub(crate) fn decode(kind: u8, body: Bytes) -> Result<Self, WireError> {
        let mut fields = Fields::new(kind, body);
        let message = match kind {
            SERVER => Self::Server {
                fingerprint: fields.text()?,
                cutting: match fields.flag()? {
                    true => {
                        let cutting = CutParameters::decode(kind, &fields.bytes()?);
                        Some(cutting.map_err(|_| fields.malformed())?)
                    }
                    false => None,
                },
            },
            ENDED => Self::Ended {
                reason: match fields.u8()? {
                    0 => EndReason::Unavailable,
                    1 => EndReason::HostKey,
                    2 => EndReason::Closed,
                    _ => return Err(fields.malformed()),
                },
                text: fields.text()?,
            },
            BANNER => Self::Banner {
                text: fields.text()?,
            },
            REJECTED => Self::Rejected {
                methods: fields.list(|fields| match fields.u8()? {
                    0 => Ok(Method::Password),
                    1 => Ok(Method::PublicKey),
                    2 => Ok(Method::Interactive),
                    _ => Err(fields.malformed()),
                })?,
                is_partial: fields.flag()?,
            },
            AUTHENTICATED => Self::Authenticated,
            PROMPTS => Self::Prompts {
                name: fields.text()?,
                instructions: fields.text()?,
                prompts: fields.list(|fields| Ok((fields.text()?, fields.flag()?)))?,
            },
            KEY_KNOWN => Self::KeyKnown {
                to_sign: fields.bytes()?,
            },
            _ => return Err(WireError::UnknownType(kind)),
        };
        fields.end(message)
    }
}

fn way_code(way: PublicKeyWay) -> u8 {
    match way {
        PublicKeyWay::Agent => 0,
        PublicKeyWay::Key => 1,
        PublicKeyWay::Certificate => 2,
    }
}

fn way_of_code(code: u8) -> Option<PublicKeyWay> {
    match code {
        0 => Some(PublicKeyWay::Agent),
        1 => Some(PublicKeyWay::Key),
        2 => Some(PublicKeyWay::Certificate),
        _ => None,
    }
}

const OPEN: u8 = 1;
const METHODS: u8 = 4;
const PASSWORD: u8 = 5;
const INTERACTIVE: u8 = 6;
const ANSWERS: u8 = 7;
const OFFERED: u8 = 8;
const PROVED: u8 = 9;
const SIGNATURE: u8 = 10;
const SERVER: u8 = 32;
const ENDED: u8 = 33;
const BANNER: u8 = 34;
const REJECTED: u8 = 35;
const AUTHENTICATED: u8 = 36;
const PROMPTS: u8 = 37;
const KEY_KNOWN: u8 = 38;

#[cfg(test)]
mod tests {
    use relay::wire::StoreTerms;

    use super::*;

    const CUTTING: CutParameters = CutParameters {
        id: 1,
        secret: [5; 32],
    };

    #[test]
    fn messages_to_the_far_half_read_back() {
        let [user, text] = ["me", "text"].map(str::to_owned);
        let target = parse_target("[2001:db8::1]:22").expect("a server");
        for message in [
            ToFar::Open {
                token: [7; 16],
                target,
                client: "10.0.0.1:5".to_owned(),
                session: 9,
                coding: Some(CodingOffer {
                    compresses: true,
                    store: Some(StoreTerms {
                        tenant: "a".to_owned(),
                        downloads: true,
                        cutting: CUTTING,
                    }),
                }),
            },
            ToFar::Methods { user: user.clone() },
            ToFar::Password {
                user: user.clone(),
                password: text.clone(),
            },
            ToFar::Interactive {
                user: user.clone(),
                submethods: String::new(),
            },
            ToFar::Answers {
                answers: vec![text.clone(), String::new()],
            },
            ToFar::Offered {
                user,
                key: Bytes::from_static(b"key"),
                algorithm: text,
            },
            ToFar::Proved {
                ways: vec![
                    PublicKeyWay::Certificate,
                    PublicKeyWay::Key,
                    PublicKeyWay::Agent,
                ],
            },
            ToFar::Signature {
                signature: Bytes::from_static(b"signature"),
            },
        ] {
            let frame = message.encode();
            let decoded = ToFar::decode(frame[4], frame.slice(5..));
            assert!(decoded.as_ref() == Ok(&message), "{decoded:?}");
            for end in 5..frame.len() {
                ToFar::decode(frame[4], frame.slice(5..end)).expect_err("truncated");
            }
        }
    }

    #[test]
    fn messages_to_the_near_half_read_back() {
        let text = "text".to_owned();
        for message in [
            ToNear::Server {
                fingerprint: text.clone(),
                cutting: Some(CUTTING),
            },
            ToNear::Ended {
                reason: EndReason::HostKey,
                text: text.clone(),
            },
            ToNear::Banner { text: text.clone() },
            ToNear::Rejected {
                methods: vec![Method::PublicKey, Method::Password, Method::Interactive],
                is_partial: true,
            },
            ToNear::Authenticated,
            ToNear::Prompts {
                name: text.clone(),
                instructions: String::new(),
                prompts: vec![(text, false)],
            },
            ToNear::KeyKnown {
                to_sign: Bytes::from_static(b"data"),
            },
        ] {
            let frame = message.encode();
            assert_eq!(ToNear::decode(frame[4], frame.slice(5..)), Ok(message));
        }
    }

    #[test]
    fn another_version_is_named() {
        let open = super::super::encode(OPEN, &[9]);
        let decoded = ToFar::decode(OPEN, open.slice(5..));
        assert!(decoded == Err(WireError::Version(9)), "{decoded:?}");
    }

    #[test]
    fn a_password_is_not_shown() {
        let password = "secret".to_owned();
        let user = "me".to_owned();
        let message = ToFar::Password { user, password };
        assert_eq!(format!("{message:?}"), "Password");
    }
}
