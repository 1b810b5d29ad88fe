use super::*;
use proptest::prelude::*;

fn far_body(message: &MessageToFar) -> (u8, Vec<u8>) {
    let mut body = Vec::new();
    (message.encode(&mut body), body)
}

fn near_body(message: &MessageToNear) -> (u8, Vec<u8>) {
    let mut body = Vec::new();
    (message.encode(&mut body), body)
}

#[test]
fn every_message_for_the_far_half_reads_back() {
    let transfer = TransferId(7);
    for message in [
        MessageToFar::Request(ServerRequest::Command {
            id: CommandId(1),
            synch: true,
            answered: true,
            line: b"RETR a b\0".to_vec(),
        }),
        MessageToFar::Request(ServerRequest::Data {
            id: CommandId(2),
            transfer,
            answered: true,
        }),
        MessageToFar::Abandon(transfer),
    ] {
        let (kind, body) = far_body(&message);
        assert_eq!(MessageToFar::decode(kind, &body), Ok(message));
    }
}

#[test]
fn every_message_for_the_near_half_reads_back() {
    let tag = ReplyTag {
        command: Some(CommandId(1)),
        transfer: None,
        stage: ReplyStage::Preliminary,
        code: 150,
        last: true,
        prefetches: true,
    };
    for message in [
        MessageToNear::Reply {
            tag,
            line: vec![b'x'; crate::line::REPLY_MAX],
        },
        MessageToNear::DataReady(CommandId(2)),
        MessageToNear::AnsweredAhead,
        MessageToNear::LeftUnanswered(CommandId(3)),
        MessageToNear::UploadEnded {
            transfer: TransferId(7),
            is_whole: true,
        },
        MessageToNear::Prefetched {
            subject: QuestionSubject::Features,
            answer: Some(b"211-\r\n MDTM\r\n211 End".to_vec()),
            last: false,
        },
        MessageToNear::Prefetched {
            subject: QuestionSubject::Directory,
            answer: None,
            last: true,
        },
        MessageToNear::Refused {
            code: 530,
            text: "not allowed".into(),
        },
        MessageToNear::ServerClosed,
    ] {
        let (kind, body) = near_body(&message);
        assert_eq!(MessageToNear::decode(kind, &body), Ok(message));
    }
}

#[test]
fn a_newline_cannot_be_smuggled_into_a_line() {
    let message = MessageToFar::Request(ServerRequest::Command {
        id: CommandId(1),
        synch: false,
        answered: false,
        line: b"NOOP\r\nDELE x".to_vec(),
    });
    let (kind, body) = far_body(&message);
    assert_eq!(
        MessageToFar::decode(kind, &body),
        Err(BodyError::Malformed(kind))
    );
    let refused = MessageToNear::Refused {
        code: 421,
        text: "no\r\n230 in".to_owned(),
    };
    let (kind, body) = near_body(&refused);
    assert_eq!(
        MessageToNear::decode(kind, &body),
        Err(BodyError::Malformed(kind))
    );
}

proptest! {
    #[test]
    fn what_decodes_encodes_to_the_same_body(
        kind in any::<u8>().prop_map(|kind| kind % 14),
        body in proptest::collection::vec(any::<u8>(), 0..60)
    ) {
        if let Ok(message) = MessageToFar::decode(kind, &body) {
            prop_assert_eq!(far_body(&message), (kind, body.clone()));
        }
        if let Ok(message) = MessageToNear::decode(kind, &body) {
            prop_assert_eq!(near_body(&message), (kind, body));
        }
    }
}
