//! Signature by the agent that the client forwards (draft-miller-ssh-agent).

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

/// Whether `data` is the request of `user` to log in at a server by `key`, and nothing else (RFC
/// 4252 section 7). The check is necessary: a gateway chooses the data, and an agent would sign any
/// data.
pub fn is_login(data: &[u8], user: &str, key: &[u8]) -> bool {
    let is_login = || {
        let mut rest = data;
        let session = field(&mut rest)?;
        let head = rest.split_off(..1)?;
        let name = field(&mut rest)?;
        let service = field(&mut rest)?;
        let method = field(&mut rest)?;
        let has_signature = rest.split_off(..1)?;
        let algorithm = field(&mut rest)?;
        let signing = field(&mut rest)?;
        let of_key = field(&mut &key[..])?;
        let is_algorithm =
            algorithm == of_key || (of_key == b"ssh-rsa" && algorithm.starts_with(b"rsa-sha2-"));
        Some(
            SESSION_ID_BYTES.contains(&session.len())
                && head == [USERAUTH_REQUEST]
                && name == user.as_bytes()
                && service == b"ssh-connection"
                && method == b"publickey"
                && has_signature == [1]
                && is_algorithm
                && signing == key
                && rest.is_empty(),
        )
    };
    is_login().unwrap_or(false)
}

/// Takes the next string off `rest`.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (value, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(value)
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

/// Lengths of session identifiers in bytes: the hash of the key exchange, from SHA-1 to SHA-512.
const SESSION_ID_BYTES: std::ops::RangeInclusive<usize> = 20..=64;

const USERAUTH_REQUEST: u8 = 50;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// Maximum length of a reply in bytes. Signatures have less than 2 KiB.
const REPLY_MAX: u32 = 16 * 1024;

/// Time limit for the signature. Agents may ask their users, or wait for a touch.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
    }

    fn login(session: &[u8], user: &str, service: &str, algorithm: &str, key: &[u8]) -> Vec<u8> {
        [
            string(session),
            vec![USERAUTH_REQUEST],
            string(user.as_bytes()),
            string(service.as_bytes()),
            string(b"publickey"),
            vec![1],
            string(algorithm.as_bytes()),
            string(key),
        ]
        .concat()
    }

    #[test]
    fn only_the_log_in_of_the_user_by_the_key_is_signed() {
        let ed25519 = [string(b"ssh-ed25519"), string(&[7; 32])].concat();
        let rsa = [string(b"ssh-rsa"), string(&[7; 256])].concat();
        let (session, service) = ([1; 32], "ssh-connection");
        let valid = login(&session, "me", service, "ssh-ed25519", &ed25519);
        assert!(is_login(&valid, "me", &ed25519));
        assert!(!is_login(&valid, "root", &ed25519));
        assert!(!is_login(&valid, "me", &rsa));
        for cut in 0..valid.len() {
            assert!(!is_login(&valid[..cut], "me", &ed25519));
        }
        assert!(!is_login(&[&valid[..], b"x"].concat(), "me", &ed25519));
        let by_rsa = login(&session, "me", service, "rsa-sha2-256", &rsa);
        assert!(is_login(&by_rsa, "me", &rsa));
        let other = login(&session, "me", "other", "ssh-ed25519", &ed25519);
        assert!(!is_login(&other, "me", &ed25519));
        let short = login(&[1; 4], "me", service, "ssh-ed25519", &ed25519);
        assert!(!is_login(&short, "me", &ed25519));
        let of_a_file = [&b"SSHSIG"[..], &string(b"git"), &string(&[1; 64])].concat();
        assert!(!is_login(&of_a_file, "me", &ed25519));
    }
}
