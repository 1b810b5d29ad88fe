//! Entry point for `fuzz-targets`. Parses a web server's response as the mover does, over an
//! in-memory connection.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    Request,
    client::conn::http1,
    header::{HOST, LOCATION},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, duplex};
use url::Url;

use super::{
    body::Body,
    session::{first_byte, has_length, header, next_url, stat},
};

/// Parsed response of a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebAnswer {
    /// The HTTP status code.
    pub status: u16,
    /// Size of the whole file in bytes, if the response states it.
    pub size_bytes: Option<u64>,
    /// Modification time of the file, in seconds since 1970, if the response states it.
    pub modified_unix_s: Option<i64>,
    /// File offset at which the body begins. `None` if the response is not a range.
    pub first_byte: Option<u64>,
    /// Whether the response states where its body ends.
    pub has_length: bool,
    /// Target of a redirection. `None` if the response is not a redirection.
    pub leads_to: Option<String>,
    /// The body. `None` if the connection ends before the end of the body.
    pub body: Option<Vec<u8>>,
}

/// Parses a response that arrives in pieces of `piece_bytes` bytes. Returns `None` if the response
/// is not valid.
///
/// # Panics
/// If the operating system cannot provide a runtime.
pub fn read_answer(answer: &[u8], piece_bytes: usize) -> Option<WebAnswer> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(read(answer, piece_bytes.max(1)))
}

async fn read(answer: &[u8], piece_bytes: usize) -> Option<WebAnswer> {
    let (ours, mut theirs) = duplex(PIPE_BYTES);
    let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.ok()?;
    tokio::spawn(connection);
    let answer = answer.to_vec();
    tokio::spawn(async move {
        for piece in answer.chunks(piece_bytes) {
            // The reader may have finished early.
            if theirs.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = theirs.shutdown().await;
        // Receives and discards the request until the mover closes the connection.
        let _ = tokio::io::copy(&mut theirs, &mut tokio::io::sink()).await;
    });
    let request = Request::builder()
        .uri("/film")
        .header(HOST, "example.com")
        .body(Empty::<Bytes>::new())
        .expect("a request");
    let response = sender.send_request(request).await.ok()?;
    let headers = response.headers();
    let here = Url::parse("https://example.com/film").expect("a URL");
    let to = header(headers, &LOCATION).unwrap_or_default();
    let (stated, is_sure) = (stat(&response), has_length(headers));
    let mut said = WebAnswer {
        status: response.status().as_u16(),
        size_bytes: stated.size_bytes,
        modified_unix_s: stated.modified.map(|it| it.unix_s),
        first_byte: first_byte(headers),
        has_length: is_sure,
        leads_to: next_url(&here, to).ok().map(Url::into),
        body: None,
    };
    let mut open = None;
    let mut body = Body::new(
        response.into_body(),
        ("example.com".to_owned(), &mut open),
        (stated, is_sure),
        STALL_MAX,
    );
    let (mut whole, mut bytes) = (Vec::new(), [0; 1_024]);
    loop {
        match body.read(&mut bytes).await {
            Ok(0) => break said.body = Some(whole),
            Ok(count) => whole.extend_from_slice(&bytes[..count]),
            Err(_) => break,
        }
    }
    Some(said)
}

const PIPE_BYTES: usize = 4_096;

/// Timeout that never expires, because all bytes are present.
const STALL_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn any_bytes_are_an_answer_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            lines in proptest::collection::vec("[-A-Za-z0-9:;,/= ]{0,40}", 0..8),
            piece_bytes in 1..200_usize,
        ) {
            let head = format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", lines.join("\r\n"));
            for answer in [bytes.clone(), [head.into_bytes(), bytes].concat()] {
                let read = read_answer(&answer, piece_bytes);
                prop_assert_eq!(&read, &read_answer(&answer, usize::MAX));
                let body = read.and_then(|it| it.body).unwrap_or_default();
                prop_assert!(body.len() <= answer.len(), "nothing is made up");
            }
        }

        #[test]
        fn what_a_server_says_of_a_file_is_read(
            body in proptest::collection::vec(any::<u8>(), 0..2_000),
            first in any::<u32>(),
            unix_s in 0..200_000_000_000_u64,
            is_chunked in any::<bool>(),
            piece_bytes in 1..200_usize,
        ) {
            let time = std::time::UNIX_EPOCH + Duration::from_secs(unix_s);
            let time = httpdate::fmt_http_date(time);
            let (first, size_bytes) = (u64::from(first), u64::from(first) + body.len() as u64);
            let (framing, sent) = match is_chunked {
                true => {
                    let chunks = body.chunks(700).map(|it| {
                        [format!("{:x}\r\n", it.len()).as_bytes(), it, b"\r\n"].concat()
                    });
                    let chunks: Vec<u8> = chunks.flatten().chain(*b"0\r\n\r\n").collect();
                    ("Transfer-Encoding: chunked".to_owned(), chunks)
                }
                false => (format!("Content-Length: {}", body.len()), body.clone()),
            };
            let last = size_bytes.saturating_sub(1);
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\n{framing}\r\nLast-Modified: {time}\r\n\
                 Content-Range: bytes {first}-{last}/{size_bytes}\r\nLocation: //host/x\r\n\r\n"
            );
            let read = read_answer(&[head.as_bytes(), &sent].concat(), piece_bytes);
            let expected = WebAnswer {
                status: 206,
                size_bytes: Some(size_bytes),
                modified_unix_s: Some(unix_s.cast_signed()),
                first_byte: Some(first),
                has_length: true,
                leads_to: Some("https://host/x".to_owned()),
                body: Some(body),
            };
            prop_assert_eq!(read, Some(expected));
        }
    }

    #[test]
    fn heads_without_end_are_refused() {
        let line = format!("X-Long: {}\r\n", "x".repeat(1 << 20));
        let long = format!("HTTP/1.1 200 OK\r\n{line}\r\n");
        assert_eq!(read_answer(long.as_bytes(), usize::MAX), None);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Many: x\r\n".repeat(10_000));
        assert_eq!(read_answer(many.as_bytes(), usize::MAX), None);
    }
}
