//! Signature of the agent that the client forwards (draft-miller-ssh-agent).

use std::time::Duration;

use bytes::Bytes;
use russh::server::Handle;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

/// Requests a signature over `data` with the private key of `key` from the client's agent.
///
/// # Errors
/// The reason why the agent does not sign, as a sentence for the user.
pub(super) async fn sign(
    handle: &Handle,
    key: &[u8],
    data: &[u8],
    algorithm: &str,
) -> Result<Bytes, String> {
    let signed = async {
        let channel = handle.channel_open_agent().await;
        let channel =
            channel.map_err(|error| format!("your client does not open its agent: {error}"))?;
        let mut stream = channel.into_stream();
        let exchanged = async {
            stream.write_all(&request(key, data, algorithm)).await?;
            let length = stream.read_u32().await?;
            if length == 0 || length > REPLY_MAX {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            let mut reply = vec![0; length as usize];
            stream.read_exact(&mut reply).await?;
            // The gateway needs no further signature.
            let _ = stream.shutdown().await;
            Ok(Bytes::from(reply))
        };
        let reply: Result<Bytes, std::io::Error> = exchanged.await;
        let reply = reply.map_err(|error| format!("your agent does not answer: {error}"))?;
        signature(reply).ok_or_else(|| {
            "your agent refuses to sign; keys with restrictions of ssh-add -h or -c need a direct \
             connection"
                .to_owned()
        })
    };
    let signed = timeout(TIMEOUT, signed).await;
    signed.unwrap_or_else(|_| Err("your agent does not answer in time".to_owned()))
}

/// Returns a request for a signature.
fn request(key: &[u8], data: &[u8], algorithm: &str) -> Vec<u8> {
    let flags: u32 = match algorithm {
        "rsa-sha2-256" => 2,
        "rsa-sha2-512" => 4,
        _ => 0,
    };
    let mut body = vec![SIGN_REQUEST];
    for field in [key, data] {
        body.extend_from_slice(&(field.len() as u32).to_be_bytes());
        body.extend_from_slice(field);
    }
    body.extend_from_slice(&flags.to_be_bytes());
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// Returns the signature in a reply. Returns `None` if the agent has refused.
fn signature(mut reply: Bytes) -> Option<Bytes> {
    if reply.split_to(1)[0] != SIGN_RESPONSE || reply.len() < 4 {
        return None;
    }
    let length = u32::from_be_bytes(reply.split_to(4)[..].try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    (length == reply.len()).then_some(reply)
}

const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// Maximum length of a reply in bytes. Signatures have less than 2 KiB.
const REPLY_MAX: u32 = 16 * 1024;

/// Time limit for the signature. Agents may ask their users, or wait for a touch.
const TIMEOUT: Duration = Duration::from_secs(60);
