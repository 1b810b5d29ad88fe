use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{Rope, SftpError};

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn rope() -> impl Strategy<Value = Rope> {
    prop::collection::vec(bytes(900), 0..4).prop_map(|pieces| pieces.into_iter().collect())
}

prop_compose! {
    fn attrs()(
        size: Option<u64>,
        owner: Option<(u32, u32)>,
        permissions: Option<u32>,
        times: Option<(u32, u32)>,
        extended in prop::collection::vec((bytes(9), bytes(9)), 0..3),
    ) -> Attrs {
        let times = times.map(|(accessed_s, modified_s)| Times { accessed_s, modified_s });
        Attrs { size, owner, permissions, times, extended }
    }
}

prop_compose! {
    fn request()(
        which in 0..28,
        path in bytes(300),
        other in bytes(300),
        handle in bytes(HANDLE_MAX + 1),
        to in bytes(HANDLE_MAX + 1),
        attrs in attrs(),
        flags: u32,
        offset: u64,
        length: u32,
        data in rope(),
    ) -> Request {
        let (from, first, second) = (path.clone(), path.clone(), other.clone());
        let extended = |request| Request::Extended(request);
        match which {
            0 => Request::Open { path, flags: OpenFlags(flags), attrs },
            1 => Request::Close { handle },
            2 => Request::Read { handle, offset, length },
            3 => Request::Write { handle, offset, data },
            4 => Request::Lstat { path },
            5 => Request::Fstat { handle },
            6 => Request::SetStat { path, attrs },
            7 => Request::FsetStat { handle, attrs },
            8 => Request::OpenDir { path },
            9 => Request::ReadDir { handle },
            10 => Request::Remove { path },
            11 => Request::MakeDir { path, attrs },
            12 => Request::RemoveDir { path },
            13 => Request::RealPath { path },
            14 => Request::Stat { path },
            15 => Request::Rename { from, to: other },
            16 => Request::ReadLink { path },
            17 => Request::Symlink { first, second },
            18 => extended(ExtendedRequest::Limits),
            19 => extended(ExtendedRequest::Fsync { handle }),
            20 => extended(ExtendedRequest::PosixRename { from, to: other }),
            21 => extended(ExtendedRequest::StatVfs { path }),
            22 => extended(ExtendedRequest::FstatVfs { handle }),
            23 => extended(ExtendedRequest::Hardlink { from, to: other }),
            24 => extended(ExtendedRequest::CopyData {
                from: handle,
                from_offset: offset,
                length: length.into(),
                to,
                to_offset: offset,
            }),
            25 => extended(ExtendedRequest::LsetStat { path, attrs }),
            26 => extended(ExtendedRequest::ExpandPath { path }),
            _ => {
                let name = [b"unknown@", &path[..]].concat().into();
                extended(ExtendedRequest::Unknown { name, body: data })
            }
        }
    }
}

prop_compose! {
    fn response()(
        which in 0..6,
        code: u32,
        message in bytes(90),
        language in bytes(9),
        handle in bytes(HANDLE_MAX + 1),
        data in rope(),
        attrs in attrs(),
        names in prop::collection::vec((bytes(90), bytes(90), attrs()), 0..5),
    ) -> Response {
        let name = |(name, long_name, attrs)| Name { name, long_name, attrs };
        match which {
            0 => Response::Status(Status { code: StatusCode(code), message, language }),
            1 => Response::Handle(handle),
            2 => Response::Data(data),
            3 => Response::Names(names.into_iter().map(name).collect()),
            4 => Response::Attrs(attrs),
            _ => Response::Extended(data),
        }
    }
}

/// Passes a stream to a splitter in pieces of the given lengths.
fn split(stream: &[u8], cuts: &[usize]) -> Result<Vec<Rope>, SftpError> {
    let mut splitter = PacketSplitter::default();
    let mut packets = Vec::new();
    let mut rest = stream;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let length = *cuts.next().expect("there are cuts");
        let (piece, after) = rest.split_at(length.min(rest.len()));
        splitter.push(Bytes::copy_from_slice(piece));
        while let Some(packet) = splitter.next_packet()? {
            packets.push(packet);
        }
        assert!(splitter.buffered_bytes() < 4 + PACKET_MAX);
        rest = after;
    }
    Ok(packets)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1..9usize, 1..3000usize], 1..9)
}

proptest! {
    #[test]
    fn requests_read_back_in_any_cut(
        requests in prop::collection::vec((any::<u32>(), request()), 1..5),
        cuts in cuts(),
    ) {
        let encoded = requests.iter().map(|(id, request)| request.encode(*id).into_bytes());
        let stream = encoded.collect::<Vec<_>>().concat();
        let packets = split(&stream, &cuts).expect("the packets are short enough");
        let decoded: Vec<_> = packets
            .into_iter()
            .map(|packet| Request::decode(packet).expect("the packet is well formed"))
            .collect();
        prop_assert_eq!(decoded, requests);
    }

    #[test]
    fn responses_read_back_in_any_cut(
        responses in prop::collection::vec((any::<u32>(), response()), 1..5),
        cuts in cuts(),
    ) {
        let encoded = responses.iter().map(|(id, response)| response.encode(*id).into_bytes());
        let stream = encoded.collect::<Vec<_>>().concat();
        let packets = split(&stream, &cuts).expect("the packets are short enough");
        let decoded: Vec<_> = packets
            .into_iter()
            .map(|packet| Response::decode(packet).expect("the packet is well formed"))
            .collect();
        prop_assert_eq!(decoded, responses);
    }

    #[test]
    fn truncated_requests_are_refused(id: u32, request in request(), cut: usize) {
        let whole = request.encode(id).into_bytes();
        let packet = whole.slice(4..4 + cut % (whole.len() - 4));
        // Any body of an unknown extension is valid, even if it was truncated.
        let is_open = matches!(
            &request,
            Request::Extended(ExtendedRequest::Unknown { .. })
        );
        prop_assert!(is_open || Request::decode(packet.into()).is_err());
    }

    #[test]
    fn greetings_read_back(
        version: u32,
        extensions in prop::collection::vec((bytes(30), bytes(30)), 0..5),
        is_client: bool,
    ) {
        let source = if is_client { GreetingSource::Client } else { GreetingSource::Server };
        let greeting = Greeting { version, extensions };
        let mut packet = greeting.encode(source);
        packet.advance(4);
        prop_assert_eq!(Greeting::decode(source, packet), Ok(greeting));
    }

    #[test]
    fn arbitrary_packets_are_decoded_or_refused(
        kind in prop_oneof![0..30u8, 99..110u8, 198..203u8],
        body in bytes(200),
    ) {
        let mut packet = Rope::from(vec![kind]);
        packet.push(body);
        let _ = Request::decode(packet.clone());
        let _ = Response::decode(packet.clone());
        let _ = Greeting::decode(GreetingSource::Client, packet);
    }

    #[test]
    fn arbitrary_streams_are_split_within_the_limit(
        stream in prop::collection::vec(
            prop_oneof![Just(0u8), Just(0u8), Just(0u8), any::<u8>()],
            0..600,
        ),
        cuts in cuts(),
    ) {
        // `split` checks the limit after each piece.
        let _ = split(&stream, &cuts);
    }
}

#[test]
fn longest_packet_is_split_and_a_longer_one_is_refused() {
    let stream = |length: usize| {
        let mut stream = (length as u32).to_be_bytes().to_vec();
        stream.resize(4 + length, 7);
        stream
    };
    let packets = split(&stream(PACKET_MAX), &[1000]).expect("the length is permitted");
    assert_eq!(packets[0].len(), PACKET_MAX);
    let refused = split(&stream(PACKET_MAX + 1), &[1000]);
    assert_eq!(refused, Err(SftpError::PacketLength(PACKET_MAX as u32 + 1)));
    assert_eq!(split(&stream(0), &[9]), Err(SftpError::PacketLength(0)));
}

#[test]
fn data_of_a_write_is_not_copied() {
    let data = Bytes::from(vec![5; 4000]);
    let handle = Bytes::from_static(b"h");
    let request = Request::Write {
        handle,
        offset: 0,
        data: data.clone().into(),
    };
    let encoded = request.encode(1);
    let last = encoded.pieces().last().expect("the packet has data");
    assert_eq!(last.as_ptr(), data.as_ptr());
    let mut splitter = PacketSplitter::default();
    encoded.into_iter().for_each(|piece| splitter.push(piece));
    let packet = splitter.next_packet().expect("the packet is valid");
    let (_, request) = Request::decode(packet.expect("the packet is whole")).expect("well formed");
    let Request::Write { data: decoded, .. } = request else {
        panic!("no WRITE: {request:?}");
    };
    let piece = decoded.pieces().next().expect("the WRITE has data");
    assert_eq!(piece.as_ptr(), data.as_ptr());
}

#[test]
fn status_without_a_text_is_read() {
    // Servers of older drafts send the code alone.
    let packet = Rope::from(vec![kind::STATUS, 0, 0, 0, 7, 0, 0, 0, 4]);
    let (id, response) = Response::decode(packet).expect("the packet is accepted");
    let Response::Status(status) = response else {
        panic!("no STATUS: {response:?}");
    };
    assert_eq!((id, status.code), (7, StatusCode::FAILURE));
    assert_eq!(status.text(), "SFTP status 4");
}

#[test]
fn limits_read_back() {
    let limits = Limits {
        packet_max_bytes: 262_144,
        read_max_bytes: 261_120,
        write_max_bytes: 261_120,
        handles_max: 1019,
    };
    assert_eq!(Limits::decode(limits.encode()), Ok(limits));
}
