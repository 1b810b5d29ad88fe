//! Fuzz target: messages between two gateways. Any bytes are either decoded as a message or
//! refused. Decoding an encoded message must return the same message. The size of the received
//! pieces must not change the result.

use ftp::session::{
    self, CommandId, MessageToFar, MessageToNear, QuestionSubject, ReplyStage, ReplyTag,
    ServerRequest, TransferId, far::DataOpener,
};
use gatewayd::enrolment::Invite;
use net::{
    target::{Host, HostPort},
    tls::{CertificateCheck, ServerTls, TlsStart},
};
use relay::wire::{
    ChunkRequest, CodingOffer, CutParameters, DeliveryReport, EnrolReply, FarMessage, Grant,
    MessageDecoder, NearMessage, Service, StoreTerms, StreamHello, TransferBottleneck, Version,
    WireMessage, decode_in, encode, encode_in,
};

use crate::Tape;

/// Runs one input. It contains the kind and version of the message, the size of the pieces, and the
/// bytes.
pub fn run(data: &[u8]) {
    let mut tape = Tape::new(data);
    let kind = tape.byte();
    let piece = usize::from(tape.byte()).max(1);
    let bytes = data.get(2..).unwrap_or_default();
    let version = match kind >= OLDER {
        true => Version::OLDEST,
        false => Version::LATEST,
    };
    match kind % 5 {
        0 => check::<StreamHello>(version, bytes, piece),
        1 => check::<NearMessage>(version, bytes, piece),
        2 => check::<FarMessage>(version, bytes, piece),
        3 => check::<ChunkRequest>(version, bytes, piece),
        _ => {
            check::<EnrolReply>(version, bytes, piece);
            invite(bytes);
        }
    }
}

/// Parses a text as an invite that a user pastes.
fn invite(bytes: &[u8]) {
    if let Ok(read) = String::from_utf8_lossy(bytes).parse::<Invite>() {
        assert_eq!(read.to_string().parse(), Ok(read));
    }
}

fn check<M: WireMessage + PartialEq + std::fmt::Debug>(
    version: Version,
    bytes: &[u8],
    piece: usize,
) {
    let decode = |bytes: &[u8]| decode_in::<M>(version, bytes);
    let encode = |message: &M| encode_in(version, message).expect("what decodes is in the version");
    if let Ok(Some((message, length))) = decode(bytes) {
        assert!(length <= bytes.len());
        // Encoding shortens very long texts. Therefore the test encodes the decoded message before
        // it compares.
        let written = encode(&message);
        let (again, length) = decode(&written)
            .expect("what we write is well formed")
            .expect("and complete");
        assert_eq!(length, written.len());
        assert_eq!(encode(&again), written);
        for cut in [0, 1, written.len() / 2, written.len() - 1] {
            assert!(matches!(decode(&written[..cut]), Ok(None)), "cut at {cut}");
        }
    }
    let mut whole = Vec::new();
    let mut rest = bytes;
    while let Ok(Some((message, length))) = decode(rest) {
        whole.push(message);
        rest = &rest[length..];
    }
    let mut decoder = MessageDecoder::default();
    decoder.set_version(version);
    let mut in_pieces = Vec::new();
    'pieces: for piece in bytes.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.next_message::<M>() {
                Ok(Some(message)) => in_pieces.push(message),
                Ok(None) => break,
                Err(_) => break 'pieces,
            }
        }
    }
    assert_eq!(in_pieces, whole);
}

/// Threshold for the first byte of an input. From this value on, the byte selects the oldest
/// supported version.
const OLDER: u8 = 130;

/// Returns first inputs for the fuzzer: messages of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let target = |host: &str| HostPort {
        host: Host::parse(host).expect("a proper host"),
        port: 21,
    };
    let (id, transfer) = (CommandId(7), TransferId(2));
    let hellos = [
        Service::Forward {
            target: target("2001:db8::1"),
            coding: None,
        },
        Service::FtpSession {
            version: Version::LATEST,
            session: 9,
            target: target("ftp.example.com"),
            logon: None,
            mode: session::SessionMode::Fast,
            server_data: DataOpener::Passive,
            tls: None,
            coding: None,
        },
        Service::FtpSession {
            version: Version::LATEST,
            session: 9,
            target: target("10.0.0.1"),
            logon: Some((id, b"USER joe".to_vec())),
            mode: session::SessionMode::Strict,
            server_data: DataOpener::Active,
            tls: Some(ServerTls {
                mode: TlsStart::Implicit,
                verify: CertificateCheck::Off,
            }),
            coding: Some(CodingOffer {
                compresses: true,
                store: Some(StoreTerms {
                    tenant: "news".to_owned(),
                    downloads: true,
                    cutting: CutParameters {
                        id: 1,
                        secret: [9; 32],
                    },
                }),
            }),
        },
        Service::FtpData {
            session: 9,
            transfer,
        },
        Service::Truncated {
            session: 9,
            transfer,
            by_client: true,
        },
        Service::Named("echo".to_owned()),
    ];
    let near = [
        NearMessage::Session(MessageToFar::Request(ServerRequest::Command {
            id,
            synch: false,
            answered: true,
            line: b"RETR file".to_vec(),
        })),
        NearMessage::Session(MessageToFar::Request(ServerRequest::Data {
            id,
            transfer,
            answered: false,
        })),
        NearMessage::Session(MessageToFar::Abandon(transfer)),
        NearMessage::Waiting(transfer, TransferBottleneck::Client),
    ];
    let tag = ReplyTag {
        command: Some(id),
        transfer: Some(transfer),
        stage: ReplyStage::Final,
        code: 226,
        last: true,
        prefetches: true,
    };
    let session = [
        MessageToNear::Reply {
            tag,
            line: b"226 done".to_vec(),
        },
        MessageToNear::DataReady(id),
        MessageToNear::AnsweredAhead,
        MessageToNear::LeftUnanswered(id),
        MessageToNear::UploadEnded {
            transfer,
            is_whole: true,
        },
        MessageToNear::Prefetched {
            subject: QuestionSubject::Features,
            answer: Some(b"211-\r\n MDTM\r\n211 End".to_vec()),
            last: true,
        },
        MessageToNear::Refused {
            code: 425,
            text: "not reached".into(),
        },
        MessageToNear::ServerClosed,
    ];
    let reports = [
        FarMessage::Waiting(transfer, TransferBottleneck::Wan),
        FarMessage::Granted(
            transfer,
            Grant {
                accepted_bytes: 1 << 20,
                budget_bytes: 1 << 18,
            },
        ),
        FarMessage::FirstBudget(1 << 20),
        FarMessage::Store(CutParameters {
            id: 1,
            secret: [8; 32],
        }),
    ];
    let far: Vec<_> = session
        .map(FarMessage::Session)
        .into_iter()
        .chain(reports)
        .collect();
    let delivered = FarMessage::Delivered(
        transfer,
        DeliveryReport {
            bytes: 1 << 20,
            waited_us: 1000,
        },
    );
    let older = near.iter().filter_map(|it| encode_in(Version::OLDEST, it));
    let older_near: Vec<u8> = older.flatten().collect();
    let older = far.iter().chain([&delivered]);
    let older = older.filter_map(|it| encode_in(Version::OLDEST, it));
    let older_far: Vec<u8> = older.flatten().collect();
    let seed = |kind: u8, bytes: &[u8]| [&[kind, 3], bytes].concat();
    let mut seeds = Vec::new();
    seeds.extend(hellos.map(|service| seed(0, &encode(&StreamHello { service }))));
    seeds.extend(near.iter().map(|message| seed(1, &encode(message))));
    seeds.extend(far.iter().map(|message| seed(2, &encode(message))));
    seeds.push(seed(3, &encode(&ChunkRequest::Acknowledged(7))));
    seeds.push(seed(3, &encode(&ChunkRequest::Missing(8))));
    seeds.push(seed(OLDER + 1, &older_near));
    seeds.push(seed(OLDER + 2, &older_far));
    seeds.push(seed(1, &near.iter().flat_map(encode).collect::<Vec<_>>()));
    seeds.push(seed(2, &far.iter().flat_map(encode).collect::<Vec<_>>()));
    seeds
}
