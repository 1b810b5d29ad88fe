//! Replies of the sending gateway to requests for chunks that the receiver does not have.

use bytes::BytesMut;
use link::{RecvStream, SendStream};
use optimiser::{
    frame::{self, FrameHead},
    zstd_block,
};
use tracing::debug;

use super::{ReferenceKey, ReferenceStore};
use crate::wire::{ChunkRequest, MessageDecoder, reset};

/// Replies to requests for chunks of the stream `key`, until the receiver ends its request stream.
/// `decoder` may already contain the first request.
pub(crate) async fn serve(
    references: &ReferenceStore,
    key: ReferenceKey,
    mut send: SendStream,
    mut recv: RecvStream,
    mut decoder: MessageDecoder,
) {
    loop {
        match decoder.next_message() {
            Ok(Some(ChunkRequest::Acknowledged(up_to))) => references.acknowledge(key, up_to),
            Ok(Some(ChunkRequest::Missing(number))) => {
                let Some(chunk) = references.chunk(key, number) else {
                    debug!(
                        number,
                        "request for a chunk without an outstanding reference"
                    );
                    return send.reset(reset::SESSION_ENDED);
                };
                let chunk_bytes = chunk.len();
                let coded = zstd_block::compress(&chunk, MISSING_LEVEL);
                let (head, bytes) = match coded {
                    Some(coded) => {
                        let head = FrameHead::Compressed {
                            bytes: chunk.len(),
                            coded_bytes: coded.len(),
                        };
                        (head, coded)
                    }
                    None => (FrameHead::Stored { bytes: chunk.len() }, chunk),
                };
                let mut frame = BytesMut::from(&frame::encode_head(head)[..]);
                frame.extend_from_slice(&bytes);
                references.count_sent(key, chunk_bytes, frame.len());
                if send.write(frame.freeze()).await.is_err() {
                    return;
                }
            }
            Ok(None) => match recv.read().await {
                Ok(Some(bytes)) => decoder.push(&bytes),
                Ok(None) => return send.finish(),
                Err(_) => return,
            },
            Err(error) => {
                debug!(%error, "malformed requests for chunks");
                return send.reset(reset::PROTOCOL);
            }
        }
    }
}

/// Compression level of requested chunks. The level is low, because compression must be fast: the
/// receiver waits for the chunk.
const MISSING_LEVEL: i32 = 1;
