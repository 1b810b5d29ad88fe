//! Answers of an SFTP server to the mover: bytes of a channel become answers and entries.

use bytes::Bytes;
use mover::sftp::fuzzing::sftp_answers;
use sftp::packet::{Attrs, Limits, Name, Response, Status, Times};

/// Passes the input to outstanding requests. Entries in answers must have usable names.
pub fn run(input: &[u8]) {
    for entry in sftp_answers(input) {
        assert!(!entry.name.contains(&b'/'), "{entry:?}");
        assert!(![&b"."[..], b".."].contains(&&entry.name[..]), "{entry:?}");
    }
}

/// Returns the number of entries in the answers.
pub fn play(input: &[u8]) -> usize {
    sftp_answers(input).len()
}

/// Returns inputs with an answer to each outstanding request.
pub fn seeds() -> Vec<Vec<u8>> {
    let attrs = Attrs {
        size: Some(5 << 30),
        permissions: Some(0o100_644),
        times: Some(Times {
            accessed_s: 1,
            modified_s: 2,
        }),
        ..Attrs::default()
    };
    let name = |name: &'static [u8]| Name {
        name: Bytes::from_static(name),
        long_name: Bytes::from_static(b"-rw-r--r-- 1 me"),
        attrs: attrs.clone(),
    };
    let limits = Limits {
        packet_max_bytes: 1 << 18,
        read_max_bytes: 1 << 17,
        write_max_bytes: 1 << 17,
        handles_max: 9,
    };
    let answers = [
        Response::Status(Status::ok()),
        Response::Handle(Bytes::from_static(b"handle")),
        Response::Data(b"bytes of a file".to_vec().into()),
        Response::Names(vec![name(b"."), name(b"a"), name(b"caf\xe9")]),
        Response::Attrs(attrs.clone()),
        Response::Extended(limits.encode()),
    ];
    let bytes: Vec<u8> = answers
        .iter()
        .zip(0..)
        .flat_map(|(answer, id)| answer.encode(id).into_bytes())
        .collect();
    let refusals: Vec<u8> = (0..6)
        .flat_map(|id| Response::Status(Status::eof()).encode(id).into_bytes())
        .collect();
    [255, 6, 0]
        .into_iter()
        .flat_map(|cut| [&bytes, &refusals].map(|bytes| [&[cut][..], bytes].concat()))
        .collect()
}
