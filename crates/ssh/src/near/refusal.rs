//! Refusal of a client before the key exchange: a disconnect message with a sentence.

use std::time::Duration;

use net::{Connection, tls::Leg};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::algorithms::IDENTIFICATION;

/// Sends the sentence `text` to a client that has just connected, and closes the connection.
pub(super) async fn turn_away(connection: Connection, text: &str) {
    let mut stream = Leg::plain(connection);
    let line = format!("{IDENTIFICATION}\r\n");
    if timeout(TIMEOUT, stream.write_all(line.as_bytes()))
        .await
        .is_ok()
    {
        send(stream, text).await;
    }
}

/// Sends the sentence `text` after the identification of the gateway, and closes the connection.
///
/// The message precedes the key exchange, so no host key protects it. Clients print the message and
/// exit.
pub(super) async fn send(mut stream: Leg, text: &str) {
    let bytes = disconnect(text);
    let say = async {
        // The client may be gone.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        // If the gateway left bytes of the client unread, the kernel would reset the connection.
        // The client could then lose the message.
        let mut ignored = [0; 4096];
        while let Ok(1..) = stream.read(&mut ignored).await {}
    };
    let _ = timeout(TIMEOUT, say).await;
}

/// Returns a disconnect message as an unencrypted packet (RFC 4253 sections 6 and 11.1).
fn disconnect(text: &str) -> Vec<u8> {
    let mut payload = vec![SSH_MSG_DISCONNECT];
    payload.extend_from_slice(&SERVICE_NOT_AVAILABLE.to_be_bytes());
    payload.extend_from_slice(&(text.len() as u32).to_be_bytes());
    payload.extend_from_slice(text.as_bytes());
    // Empty language tag.
    payload.extend_from_slice(&0u32.to_be_bytes());
    // The padding has at least four bytes, and completes a block of eight bytes.
    let padding = 8 - (payload.len() + 5) % 8;
    let padding = if padding < 4 { padding + 8 } else { padding };
    let length = (payload.len() + padding + 1) as u32;
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(padding as u8);
    packet.extend_from_slice(&payload);
    packet.resize(packet.len() + padding, 0);
    packet
}

const SSH_MSG_DISCONNECT: u8 = 1;
const SERVICE_NOT_AVAILABLE: u32 = 7;

/// Time limit for the client to read the message and to close the connection.
const TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_padded_to_whole_blocks() {
        for length in 0..40 {
            let packet = disconnect(&"x".repeat(length));
            assert_eq!(packet.len() % 8, 0);
            let field = u32::from_be_bytes(packet[..4].try_into().expect("four bytes"));
            assert_eq!(field as usize, packet.len() - 4);
            assert!(packet[4] >= 4, "{}", packet[4]);
        }
    }
}
