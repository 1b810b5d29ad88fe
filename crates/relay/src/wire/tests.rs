use super::*;
use ftp::session::{
    CommandId, MessageToFar, MessageToNear, ReplyStage, ReplyTag, SessionMode, TransferId,
    far::DataOpener,
};
use net::tls::{self, CertificateCheck, ServerTls};
use proptest::prelude::*;

fn round_trip<M: WireMessage + PartialEq + std::fmt::Debug>(message: &M) {
    let bytes = encode(message);
    let (read, length) = decode::<M>(&bytes).expect("well formed").expect("complete");
    assert_eq!((&read, length), (message, bytes.len()));
    for cut in 0..bytes.len() {
        assert_eq!(
            decode::<M>(&bytes[..cut]),
            Ok(None),
            "{message:?} cut at {cut}"
        );
    }
}

fn endpoint(text: &str) -> net::target::HostPort {
    text.parse().expect("a valid endpoint")
}

#[test]
fn every_message_reads_back() {
    let target = endpoint("ftp.example.com:2121");
    let transfer = TransferId(7);
    let logon = Some((CommandId(3), b"USER jo\xffe".to_vec()));
    for service in [
        Service::Forward {
            target: endpoint("[2001:db8::1]:873"),
            coding: Some(CodingOffer {
                compresses: false,
                store: None,
            }),
        },
        Service::FtpSession {
            version: Version::V5,
            session: 9,
            target: target.clone(),
            logon,
            mode: SessionMode::Strict,
            server_data: DataOpener::Passive,
            tls: None,
            coding: None,
        },
        Service::FtpSession {
            version: Version::V6,
            session: u64::MAX,
            target,
            logon: None,
            mode: SessionMode::Fast,
            server_data: DataOpener::Active,
            tls: Some(ServerTls {
                mode: tls::TlsStart::Explicit,
                verify: CertificateCheck::Roots(Some(vec![vec![7; 300].into()])),
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
            session: 1 << 40,
            transfer,
        },
        Service::Truncated {
            session: 9,
            transfer,
            by_client: true,
        },
        Service::Chunks {
            session: 9,
            transfer,
            of_near: true,
        },
        Service::Named("echo".to_owned()),
        Service::Enrol {
            token: [9; 16],
            public_key: link::PublicKey([7; 32]),
            name: "oslo".to_owned(),
        },
    ] {
        round_trip(&StreamHello { service });
    }
    round_trip(&ChunkRequest::Acknowledged(u64::MAX));
    round_trip(&ChunkRequest::Missing(0));
    round_trip(&EnrolReply::Enrolled {
        name: "oslo".to_owned(),
    });
    round_trip(&EnrolReply::Refused {
        text: "no".to_owned(),
    });
    for message in [
        NearMessage::Session(MessageToFar::Abandon(transfer)),
        NearMessage::Waiting(transfer, TransferBottleneck::Client),
    ] {
        round_trip(&message);
    }
    for message in [
        FarMessage::Session(MessageToNear::Reply {
            tag: ReplyTag {
                command: Some(CommandId(1)),
                transfer: None,
                stage: ReplyStage::Preliminary,
                code: 150,
                last: true,
                prefetches: true,
            },
            line: vec![b'x'; ftp::line::REPLY_MAX],
        }),
        FarMessage::Session(MessageToNear::ServerClosed),
        FarMessage::Waiting(transfer, TransferBottleneck::Server),
        FarMessage::Granted(
            transfer,
            Grant {
                accepted_bytes: 1 << 40,
                budget_bytes: 7,
            },
        ),
        FarMessage::FirstBudget(1 << 20),
        FarMessage::Store(CutParameters {
            id: 1,
            secret: [8; 32],
        }),
    ] {
        round_trip(&message);
    }
}

#[test]
fn reports_have_types_that_no_session_message_has() {
    let body = [0; 40];
    assert_eq!(
        MessageToFar::decode(4, &body),
        Err(BodyError::UnknownType(4))
    );
    for kind in [5, 9, 10, 12] {
        let refused = BodyError::UnknownType(kind);
        assert_eq!(MessageToNear::decode(kind, &body), Err(refused));
    }
}

#[test]
fn another_version_is_named() {
    // The body of another version has no meaning.
    for (kind, is_session) in [(1, false), (2, true), (3, false), (4, false), (77, false)] {
        let bytes = [kind, 0, 0, 0, 2, 9, 0];
        let refused = WireError::Version {
            peer: 9,
            is_session,
        };
        assert_eq!(decode::<StreamHello>(&bytes), Err(refused));
    }
}

#[test]
fn a_refusal_names_the_version_that_the_refusing_gateway_speaks() {
    let error = WireError::Version {
        peer: 9,
        is_session: true,
    };
    let text = error.to_string();
    assert_eq!(version_of_refusal(&text), Some(Version::LATEST));
    let older = "the peer speaks version 6 of the gateway protocol, this gateway 5";
    assert_eq!(version_of_refusal(older), Some(Version::V5));
    for other in [
        "the peer speaks version 6 of the gateway protocol, this gateway 4",
        "ftp.example.com:21 is not allowed",
        "",
    ] {
        assert_eq!(version_of_refusal(other), None, "{other}");
    }
}

/// Checks the bytes that the last release with protocol version 5 sends.
#[test]
fn version_5_has_reports_of_delivered_bytes_in_place_of_grants() {
    let transfer = TransferId(7);
    let delivered = FarMessage::Delivered(
        transfer,
        DeliveryReport {
            bytes: 258,
            waited_us: 3,
        },
    );
    let bytes = [
        &[10, 0, 0, 0, 20, 0, 0, 0, 7][..],
        &258u64.to_be_bytes(),
        &3u64.to_be_bytes(),
    ]
    .concat();
    let encoded = encode_in(Version::V5, &delivered).expect("version 5 has it");
    assert_eq!(encoded, bytes);
    let read = decode_in::<FarMessage>(Version::V5, &bytes);
    assert_eq!(read, Ok(Some((delivered.clone(), bytes.len()))));
    assert_eq!(encode_in(Version::V6, &delivered), None);

    let granted = FarMessage::Granted(transfer, Grant::default());
    for message in [granted, FarMessage::FirstBudget(1)] {
        assert_eq!(encode_in(Version::V5, &message), None, "{message:?}");
        assert!(encode_in(Version::V6, &message).is_some());
    }
}

/// Checks two messages that the last release with protocol version 5 sends.
#[test]
fn version_5_has_limits_of_the_near_gateway_and_commands_left_unanswered() {
    let waiting = NearMessage::Waiting(TransferId(7), TransferBottleneck::Client);
    let bytes = encode_in(Version::V5, &waiting).expect("version 5 has it");
    let read = decode_in(Version::V5, &bytes);
    assert_eq!(read, Ok(Some((waiting, bytes.len()))));
    let unanswered = FarMessage::Session(MessageToNear::LeftUnanswered(CommandId(1)));
    let bytes = encode_in(Version::V5, &unanswered).expect("version 5 has it");
    let read = decode_in(Version::V5, &bytes);
    assert_eq!(read, Ok(Some((unanswered, bytes.len()))));
}

#[test]
fn a_hello_names_the_oldest_version_unless_it_begins_a_session() {
    let hello = StreamHello {
        service: Service::FtpData {
            session: 1,
            transfer: TransferId(1),
        },
    };
    assert_eq!(encode(&hello)[5], Version::OLDEST.byte());
}

#[test]
fn a_length_above_the_bound_is_refused_before_it_is_buffered() {
    assert_eq!(
        decode::<StreamHello>(&[1, 0xff, 0, 0, 0]),
        Err(WireError::TooLong(0xff00_0000))
    );
}

proptest! {
    #[test]
    fn any_bytes_can_be_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<StreamHello>(&bytes);
        let _ = decode::<NearMessage>(&bytes);
        let _ = decode::<FarMessage>(&bytes);
    }

    #[test]
    fn what_decodes_encodes_to_the_same_bytes(
        kind in 1u8..14, body in proptest::collection::vec(any::<u8>(), 0..60)
    ) {
        let mut bytes = vec![kind, 0, 0, 0, body.len() as u8];
        bytes.extend_from_slice(&body);
        if let Ok(Some((message, _))) = decode::<NearMessage>(&bytes) {
            prop_assert_eq!(encode(&message).to_vec(), bytes.clone());
        }
        if let Ok(Some((message, _))) = decode::<FarMessage>(&bytes) {
            prop_assert_eq!(encode(&message).to_vec(), bytes);
        }
    }
}
