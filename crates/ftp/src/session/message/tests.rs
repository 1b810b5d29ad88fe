use super::*;
use proptest::prelude::*;

fn far_body(message: &ToFar) -> (u8, Vec<u8>) {
    let mut body = Vec::new();
    (message.encode(&mut body), body)
}

fn near_body(message: &ToNear) -> (u8, Vec<u8>) {
    let mut body = Vec::new();
    (message.encode(&mut body), body)
}

#[test]
fn every_message_for_the_far_half_reads_back() {
    let transfer = TransferId(7);
    for message in [
        ToFar::Request(Request::Command {
            id: CommandId(1),
            synch: true,
            answered: true,
            line: b"RETR a b\0".to_vec(),
        }),
        ToFar::Request(Request::Data {
            id: CommandId(2),
            transfer,
            answered: true,
        }),
        ToFar::Abandon(transfer),
    ] {
        let (kind, body) = far_body(&message);
        assert_eq!(ToFar::decode(kind, &body), Ok(message));
    }
}

#[test]
fn every_message_for_the_near_half_reads_back() {
    let tag = Tag {
        command: Some(CommandId(1)),
        transfer: None,
        stage: Stage::Preliminary,
        code: 150,
        last: true,
        prefetches: true,
    };
    for message in [
        ToNear::Reply {
            tag,
            line: vec![b'x'; crate::line::REPLY_MAX],
        },
        ToNear::DataReady(CommandId(2)),
        ToNear::Taken,
        ToNear::LeftUnanswered(CommandId(3)),
        ToNear::UploadEnded {
            transfer: TransferId(7),
            is_whole: true,
        },
        ToNear::Prefetched {
            subject: Subject::Features,
            answer: Some(b"211-\r\n MDTM\r\n211 End".to_vec()),
            last: false,
        },
        ToNear::Prefetched {
            subject: Subject::Directory,
            answer: None,
            last: true,
        },
        ToNear::Refused {
            code: 530,
            text: "not allowed".into(),
        },
        ToNear::ServerClosed,
    ] {
        let (kind, body) = near_body(&message);
        assert_eq!(ToNear::decode(kind, &body), Ok(message));
    }
}

#[test]
fn a_newline_cannot_be_smuggled_into_a_line() {
    let message = ToFar::Request(Request::Command {
        id: CommandId(1),
        synch: false,
        answered: false,
        line: b"NOOP\r\nDELE x".to_vec(),
    });
    let (kind, body) = far_body(&message);
    assert_eq!(ToFar::decode(kind, &body), Err(BodyError::Malformed(kind)));
    let refused = ToNear::Refused {
        code: 421,
        text: "no\r\n230 in".to_owned(),
    };
    let (kind, body) = near_body(&refused);
    assert_eq!(ToNear::decode(kind, &body), Err(BodyError::Malformed(kind)));
}

proptest! {
    #[test]
    fn what_decodes_encodes_to_the_same_body(
        kind in any::<u8>().prop_map(|kind| kind % 14),
        body in proptest::collection::vec(any::<u8>(), 0..60)
    ) {
        if let Ok(message) = ToFar::decode(kind, &body) {
            prop_assert_eq!(far_body(&message), (kind, body.clone()));
        }
        if let Ok(message) = ToNear::decode(kind, &body) {
            prop_assert_eq!(near_body(&message), (kind, body));
        }
    }
}
