//! Agent whose signatures a gateway uses to log in at the server (draft-miller-ssh-agent).
//!
//! The agent has one key, and signs only log-ins of one user with this key.

use std::time::Duration;

use russh::keys::HashAlg;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::identity::LogInKey;

/// Agent with one key for the log-ins of one user.
#[derive(Debug, Clone)]
pub(super) struct ForwardedAgent {
    /// User name at the server.
    user: String,
    key: LogInKey,
    /// Public key in the form of SSH.
    public_key: Vec<u8>,
}

/// Request to the agent.
#[derive(Debug, PartialEq, Eq)]
enum AgentRequest<'a> {
    Identities,
    Sign {
        key: &'a [u8],
        data: &'a [u8],
        hash: Option<HashAlg>,
    },
}

impl ForwardedAgent {
    pub(super) fn new(user: String, key: LogInKey) -> Self {
        let public_key = key.public_key().to_bytes().unwrap_or_default();
        Self {
            user,
            key,
            public_key,
        }
    }

    /// Answers the requests on a channel of the gateway, until the gateway closes the channel.
    pub(super) async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let serving = async {
            for _ in 0..REQUESTS_MAX {
                let length = stream.read_u32().await?;
                if length > REQUEST_MAX_BYTES {
                    break;
                }
                let mut request = vec![0; length as usize];
                stream.read_exact(&mut request).await?;
                let reply = self.reply(&request).await;
                stream.write_u32(reply.len() as u32).await?;
                stream.write_all(&reply).await?;
                stream.flush().await?;
            }
            stream.shutdown().await
        };
        // An error is ignored here, because the gateway reports that its log-in has failed.
        let _: Result<std::io::Result<()>, _> = timeout(CHANNEL_TIMEOUT, serving).await;
    }

    async fn reply(&self, request: &[u8]) -> Vec<u8> {
        match AgentRequest::parse(request) {
            Some(AgentRequest::Identities) => {
                let mut reply = vec![IDENTITIES_ANSWER];
                reply.extend_from_slice(&1u32.to_be_bytes());
                put_string(&mut reply, &self.public_key);
                put_string(&mut reply, b"");
                reply
            }
            Some(AgentRequest::Sign { key, data, hash })
                if key == self.public_key && ssh::is_login(data, &self.user, key) =>
            {
                match self.key.sign(data, hash).await {
                    Ok(signature) => {
                        let mut reply = vec![SIGN_RESPONSE];
                        put_string(&mut reply, &signature);
                        reply
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no signature for the log-in of the gateway");
                        vec![FAILURE]
                    }
                }
            }
            _ => vec![FAILURE],
        }
    }
}

impl<'a> AgentRequest<'a> {
    /// Parses a request, without the length in front of it. Returns `None` if the request is
    /// malformed, or if the agent does not support it.
    fn parse(request: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = request.split_first()?;
        match *kind {
            REQUEST_IDENTITIES => Some(Self::Identities),
            SIGN_REQUEST => {
                let key = field(&mut rest)?;
                let data = field(&mut rest)?;
                let (flags, _) = rest.split_first_chunk()?;
                let flags = u32::from_be_bytes(*flags);
                let hash = match flags {
                    RSA_SHA2_256 => Some(HashAlg::Sha256),
                    RSA_SHA2_512 => Some(HashAlg::Sha512),
                    _ => None,
                };
                Some(Self::Sign { key, data, hash })
            }
            _ => None,
        }
    }
}

/// Removes the next string from `rest`, and returns the string.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (value, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(value)
}

fn put_string(target: &mut Vec<u8>, value: &[u8]) {
    target.extend_from_slice(&(value.len() as u32).to_be_bytes());
    target.extend_from_slice(value);
}

const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const RSA_SHA2_256: u32 = 2;
const RSA_SHA2_512: u32 = 4;

/// Maximum number of channels to the agent in a session.
pub(super) const AGENT_CHANNELS_MAX: usize = 4;

/// Maximum number of requests on a channel.
const REQUESTS_MAX: usize = 16;

/// Maximum length of a request in bytes.
const REQUEST_MAX_BYTES: u32 = 64 * 1024;

/// Time limit of a channel.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use russh::keys::{Algorithm, PrivateKey, key::safe_rng};

    use super::*;

    fn agent() -> ForwardedAgent {
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).expect("a key");
        ForwardedAgent::new("me".to_owned(), LogInKey::File(Arc::new(key)))
    }

    fn sign_request(key: &[u8], data: &[u8]) -> Vec<u8> {
        let mut request = vec![SIGN_REQUEST];
        put_string(&mut request, key);
        put_string(&mut request, data);
        request.extend_from_slice(&0u32.to_be_bytes());
        request
    }

    fn log_in(user: &str, key: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        put_string(&mut data, &[7; 32]);
        data.push(50);
        for text in [user.as_bytes(), b"ssh-connection", b"publickey"] {
            put_string(&mut data, text);
        }
        data.push(1);
        put_string(&mut data, b"ssh-ed25519");
        put_string(&mut data, key);
        data
    }

    #[tokio::test]
    async fn only_the_log_in_of_the_user_is_signed() {
        let agent = agent();
        let key = agent.public_key.clone();
        let identities = agent.reply(&[REQUEST_IDENTITIES]).await;
        assert_eq!(identities[0], IDENTITIES_ANSWER);
        let signed = agent.reply(&sign_request(&key, &log_in("me", &key))).await;
        assert_eq!(signed[0], SIGN_RESPONSE);
        for (key, data) in [
            (&key[..], log_in("root", &key)),
            (&key[..], b"anything".to_vec()),
            (b"other key", log_in("me", b"other key")),
        ] {
            assert_eq!(agent.reply(&sign_request(key, &data)).await, [FAILURE]);
        }
        for kind in [0, 1, 17, 22, 27] {
            assert_eq!(agent.reply(&[kind]).await, [FAILURE]);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_requests_are_parsed_or_refused(request: Vec<u8>) {
            let _ = AgentRequest::parse(&request);
            let of_signature = [&[SIGN_REQUEST][..], &request].concat();
            let _ = AgentRequest::parse(&of_signature);
        }
    }
}
