//! Tests of failed transfers, as the client observes them.

use super::*;

/// Creates a session during a `STOR` (command 2) over data connection 1. The `150` reply has been
/// relayed.
fn uploading() -> NearSession {
    let mut near = prepared();
    client(&mut near, "STOR a");
    reply(&mut near, 2, 1, "150 go");
    near
}

fn upload_ended(near: &mut NearSession, is_whole: bool) -> Vec<String> {
    let transfer = TransferId(1);
    near.handle(NearInput::Received(MessageToNear::UploadEnded {
        transfer,
        is_whole,
    }));
    drain(near)
}

fn records(near: &mut NearSession) -> Vec<TransferSummary> {
    std::iter::from_fn(|| near.poll())
        .filter_map(|output| match output {
            NearOutput::Transferred(record) => Some(record),
            _ => None,
        })
        .collect()
}

#[test]
fn abor_behind_a_held_226_ends_the_data_and_is_answered() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    let out = client(&mut near, "ABOR");
    assert_eq!(
        out,
        ["< ABOR", "1 Kill", "> 426 gateway: transfer aborted"],
        "the client reads no data while it waits for this"
    );
    assert_eq!(reply(&mut near, 3, 0, "225 none"), ["> 225 none"]);
    assert!(near.is_idle());
}

#[test]
fn abor_ahead_of_a_226_that_must_be_held_ends_the_data_too() {
    let mut near = downloading();
    assert_eq!(client(&mut near, "ABOR"), ["< ABOR"]);
    assert_eq!(
        reply(&mut near, 2, 1, "226 done"),
        [
            "1 Finish { succeeded: true }",
            "1 Kill",
            "> 426 gateway: transfer aborted"
        ]
    );
    assert_eq!(reply(&mut near, 3, 0, "225 none"), ["> 225 none"]);
}

#[test]
fn an_upload_succeeds_only_if_it_has_reached_the_server_whole() {
    let mut near = uploading();
    data(&mut near, NearDataEvent::ClientEnded);
    data(&mut near, NearDataEvent::Delivered);
    let out = reply(&mut near, 2, 1, "226 done");
    assert_eq!(out, ["1 Finish { succeeded: true }"], "nobody vouches yet");
    assert_eq!(upload_ended(&mut near, true), ["> 226 done"]);

    let mut near = uploading();
    data(&mut near, NearDataEvent::ClientEnded);
    upload_ended(&mut near, false);
    let out = reply(&mut near, 2, 1, "226 done");
    assert!(
        out[1].starts_with("> 426 gateway: the server closed"),
        "{out:?}"
    );
}

#[test]
fn nothing_is_said_to_a_client_that_has_left() {
    let mut near = downloading();
    reply(&mut near, 2, 1, "226 done");
    near.handle(NearInput::ClientClosed);
    assert_eq!(drain(&mut near), ["1 Kill", "leave", "close"]);
}

#[test]
fn a_3yz_to_a_transfer_is_its_failure_and_waits_for_no_data() {
    let mut near = downloading();
    let out = reply(&mut near, 2, 1, "314 what");
    assert_eq!(out, ["1 Finish { succeeded: false }", "> 314 what"]);
}

#[test]
fn each_transfer_is_recorded_once_with_the_code_that_the_client_has_had() {
    let outcome = |near: &mut NearSession, act: &dyn Fn(&mut NearSession)| {
        act(near);
        records(near)
            .into_iter()
            .map(|r| (r.verb, r.argument, r.code, r.succeeded))
            .collect::<Vec<_>>()
    };
    let far_reply = |near: &mut NearSession, line: &str| {
        let code: u16 = line[..3].parse().expect("a code");
        let tag = ReplyTag {
            command: Some(CommandId(2)),
            transfer: Some(TransferId(1)),
            stage: ReplyStage::Final,
            code,
            last: true,
            prefetches: false,
        };
        relayed(near, tag, line.as_bytes());
    };
    let stor = ("STOR".to_owned(), b"a".to_vec());
    let record = |code, succeeded| vec![(stor.0.clone(), stor.1.clone(), code, succeeded)];

    let mut near = uploading();
    let refused = outcome(&mut near, &|near| far_reply(near, "552 full"));
    assert_eq!(refused, record(Some(552), false));

    let mut near = uploading();
    let whole = outcome(&mut near, &|near| {
        near.handle(NearInput::Data(TransferId(1), NearDataEvent::Delivered));
        let transfer = TransferId(1);
        let is_whole = true;
        near.handle(NearInput::Received(MessageToNear::UploadEnded {
            transfer,
            is_whole,
        }));
        far_reply(near, "226 done");
    });
    assert_eq!(whole, record(Some(226), true));

    let mut near = uploading();
    let left = outcome(&mut near, &|near| near.handle(NearInput::ClientClosed));
    assert_eq!(left, record(None, false));

    let mut near = uploading();
    let lost = outcome(&mut near, &|near| near.handle(NearInput::LinkLost("gone")));
    assert_eq!(lost, record(Some(426), false));

    let mut near = uploading();
    let broken = outcome(&mut near, &|near| {
        let failed = NearDataEvent::Failed("reset".to_owned());
        near.handle(NearInput::Data(TransferId(1), failed));
        far_reply(near, "226 done");
        near.handle(NearInput::ClientClosed);
    });
    assert_eq!(broken, record(Some(426), false));
}
