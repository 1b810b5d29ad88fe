//! Tests with peers of the previous release.

use std::{
    io::{Read as _, Write as _},
    thread,
};

use ftp::session::MessageToNear;
use relay::wire::{FarMessage, NearMessage, Service, Version, encode};

use crate::{
    common::{Control, noise},
    hostile_chunks::{
        near::Victim,
        peer::{PeerWorld, Session, stored},
    },
};

/// Returns the refusal that a release sends if it supports no protocol version above 5.
fn refusal() -> bytes::Bytes {
    let text = "the peer speaks version 6 of the gateway protocol, this gateway 5";
    let refused = MessageToNear::Refused {
        code: 421,
        text: text.to_owned(),
    };
    encode(&FarMessage::Session(refused))
}

fn version(service: &Service) -> Version {
    match service {
        Service::FtpSession { version, .. } => *version,
        other => panic!("no session: {other:?}"),
    }
}

#[test]
fn a_session_begins_again_in_the_version_of_an_older_far_gateway() {
    let victim = Victim::start();
    let client = Control::connect(victim.near.ftp[0]);
    let (service, mut session) = victim.peer.accept();
    assert_eq!(version(&service), Version::V6);
    session.say(refusal());
    session.send.finish();
    let (service, session) = victim.peer.accept();
    assert_eq!(version(&service), Version::V5);
    // An older far gateway sends no grants, so the upload has no budget.
    let mut upload = victim.transfer(client, service, session, "STOR a");
    let content = noise(1, 8_000_000);
    let bytes = content.len();
    let mut client_data = upload.client_data;
    let sender = thread::spawn(move || client_data.write_all(&content));
    let mut received = 0;
    let runtime = &victim.peer.runtime;
    while let Ok(Some(piece)) = runtime.block_on(upload.data.recv.read()) {
        received += piece.len();
    }
    sender.join().expect("no panic").expect("all is taken");
    assert!(received >= bytes, "{received} bytes");
    // The next session starts with that version.
    let _client = Control::connect(victim.near.ftp[0]);
    let (service, _session) = loop {
        let (service, session) = victim.peer.accept();
        if matches!(service, Service::FtpSession { .. }) {
            break (service, session);
        }
    };
    assert_eq!(version(&service), Version::V5);
}

#[test]
fn commands_sent_before_a_refused_version_reach_the_session_that_begins_again() {
    let victim = Victim::start();
    let mut client = Control::connect(victim.near.ftp[0]);
    let (_, mut refused) = victim.peer.accept();
    client.send("USER joe");
    client.send("PASS secret");
    let sent: [NearMessage; 2] = [refused.next(), refused.next()];
    refused.say(refusal());
    refused.send.finish();
    let (service, mut session) = victim.peer.accept();
    assert_eq!(version(&service), Version::V5);
    assert_eq!(sent, [session.next(), session.next()]);
}

#[test]
fn a_refusal_of_the_version_5_too_reaches_the_client() {
    let victim = Victim::start();
    let mut client = Control::connect(victim.near.ftp[0]);
    for expected in [Version::V6, Version::V5] {
        let (service, mut session) = victim.peer.accept();
        assert_eq!(version(&service), expected);
        session.say(refusal());
        session.send.finish();
    }
    assert!(client.line().starts_with("421 gateway: the peer speaks"));
}

#[test]
fn a_far_gateway_speaks_the_version_of_the_hello() {
    let world = PeerWorld::start();
    let peer = world.peer("a");
    let mut session = Session::begin_in(Version::V5, &world, &peer, 7, "");
    let mut data = session.transfer("STOR a");
    let content = noise(1, 250_000);
    data.stream.say(stored(&content).repeat(4));
    let mut received = vec![0; 4 * content.len()];
    data.server.read_exact(&mut received).expect("it arrives");
    // If the gateway sent a message that version 5 does not have, this loop would fail to decode
    // the message.
    loop {
        if let FarMessage::Delivered(transfer, delivered) = session.messages.next() {
            assert_eq!(transfer, data.transfer);
            assert!(delivered.bytes > 0 && delivered.bytes <= received.len() as u64);
            break;
        }
    }
}
