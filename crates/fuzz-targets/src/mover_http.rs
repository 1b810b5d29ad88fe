//! Fuzz target: the mover's parser of responses from web servers. A response arrives in pieces of
//! any size.

use mover::web::fuzzing::read_answer;

use crate::Tape;

/// Runs one input, which contains the size of the pieces and the bytes.
pub fn run(data: &[u8]) {
    let mut tape = Tape::new(data);
    let piece_bytes = usize::from(tape.byte()).max(1);
    let bytes = data.get(1..).unwrap_or_default();
    let read = read_answer(bytes, piece_bytes);
    assert_eq!(
        read,
        read_answer(bytes, usize::MAX),
        "pieces make no difference"
    );
    let Some(answer) = read else {
        return;
    };
    let is_https = |url: &String| url.starts_with("https://");
    assert!(answer.leads_to.iter().all(is_https), "no other scheme");
    let body = answer.body.unwrap_or_default();
    assert!(body.len() <= bytes.len(), "nothing is made up");
}

/// Returns first inputs for the fuzzer: responses of web servers.
pub fn seeds() -> Vec<Vec<u8>> {
    let answers: [&str; 6] = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nLast-Modified: Tue, 02 Jan 2024 03:04:05 GMT\r\n\
         Accept-Ranges: bytes\r\n\r\nhello",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 9-12/4096\r\nContent-Length: 4\r\n\r\nfour",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: https://joe:secret@other.example:8443/x?token=1#y\r\n\
         Content-Length: 0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */0\r\nConnection: close\r\n\r\n",
    ];
    let in_pieces = |it: &&str| [b"\x07", it.as_bytes()].concat();
    answers.iter().map(in_pieces).collect()
}
