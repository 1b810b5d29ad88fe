//! Connections to a peer that runs the previous release. That release supports only version 2.

use super::{
    hostile_peer::{connection_of_a, payload, sealed_by_b},
    *,
};
use crate::{StreamKey, StreamRead, stream::SLOT_SIZE, wire::frame::Frame};

const UPLOAD_BYTES: usize = 300_000;

/// Returns A and B after they have connected. A supports versions up to `of_a`, and B up to `of_b`.
fn connected(of_a: FrameVersion, of_b: FrameVersion) -> SitePair {
    let mut sites = SitePair::of_versions(of_a, of_b);
    sites.exchange(50);
    sites
}

/// Sends an upload from B to A. Returns the number of bytes that A has read after two seconds.
fn upload_of_b(sites: &mut SitePair) -> usize {
    let key = sites
        .b
        .open(0, StreamClass::Bulk, sites.now)
        .expect("A is up");
    sites.b.write(key, Bytes::from(vec![1; UPLOAD_BYTES]));
    let mut read_bytes = 0;
    for _ in 0..200 {
        sites.exchange(1);
        let Some(&id) = sites.a.connections.keys().next() else {
            break;
        };
        let at_a = StreamKey {
            connection: id,
            ..key
        };
        while let StreamRead::Data(data) = sites.a.read(at_a, 1 << 16, sites.now) {
            read_bytes += data.len();
        }
    }
    read_bytes
}

#[test]
fn an_upload_of_a_peer_of_version_2_is_granted_by_paced_credit() {
    for (of_a, of_b) in [
        (FrameVersion::V3, FrameVersion::V2),
        (FrameVersion::V2, FrameVersion::V3),
    ] {
        let mut sites = connected(of_a, of_b);
        assert_eq!(upload_of_b(&mut sites), UPLOAD_BYTES);
        let key = sites
            .b
            .open(0, StreamClass::Bulk, sites.now)
            .expect("A is up");
        sites.b.write(key, Bytes::from(vec![1; 1000]));
        sites.exchange(10);
        let frame = connection_of_a(&mut sites).credit_frame(key.stream);
        let is_paced = matches!(frame, Some(Frame::PacedCredit { .. }));
        assert!(is_paced, "{frame:?} from {of_a:?} to {of_b:?}");
    }
}

#[test]
fn both_ends_of_a_connection_have_the_version_of_the_older_one() {
    use FrameVersion::{V2, V3};
    for (of_a, of_b, common) in [(V3, V3, V3), (V3, V2, V2), (V2, V3, V2), (V2, V2, V2)] {
        let sites = connected(of_a, of_b);
        for endpoint in [&sites.a, &sites.b] {
            let mut connections = endpoint.connections.values();
            let version = connections.next().map(|connection| connection.version);
            assert_eq!(version, Some(common), "of {of_a:?} and {of_b:?}");
        }
    }
}

/// Sends bytes from B to A faster than A's slow reader reads them. Returns the stream, and the
/// largest number of unread bytes at A.
fn slow_reader(sites: &mut SitePair) -> (StreamKey, usize) {
    let key = sites
        .b
        .open(0, StreamClass::Bulk, sites.now)
        .expect("A is up");
    sites.b.write(key, Bytes::from(vec![1; 3_000_000]));
    let (mut read_bytes, mut most_bytes) = (0, 0);
    for _ in 0..300 {
        sites.exchange(1);
        let (&id, connection) = sites.a.connections.iter().next().expect("A is up");
        let arrived_bytes = connection.stats.payload_received as usize;
        most_bytes = most_bytes.max(arrived_bytes - read_bytes);
        let at_a = StreamKey {
            connection: id,
            ..key
        };
        if let StreamRead::Data(data) = sites.a.read(at_a, 1000, sites.now) {
            read_bytes += data.len();
        }
    }
    assert!(read_bytes > 200_000, "A reads");
    (key, most_bytes)
}

#[test]
fn a_peer_of_version_2_is_granted_little_more_than_a_slow_reader_takes() {
    let (_, unpaced_bytes) = slow_reader(&mut connected(FrameVersion::V3, FrameVersion::V3));
    let (_, paced_bytes) = slow_reader(&mut connected(FrameVersion::V3, FrameVersion::V2));
    assert!(paced_bytes < 500_000, "{paced_bytes} bytes");
    assert!(unpaced_bytes > 2 * paced_bytes, "{unpaced_bytes} bytes");
}

/// A sender of version 2 computes the limits of its queues from the `window` field of PACED_CREDIT.
#[test]
fn paced_credit_names_the_window_that_its_limit_follows() {
    let mut sites = connected(FrameVersion::V3, FrameVersion::V2);
    let (key, _) = slow_reader(&mut sites);
    let connection = connection_of_a(&mut sites);
    let frame = connection.credit_frame(key.stream);
    let stream = connection.streams.get(key.stream).expect("it is open");
    let unpaced = stream.recv.window();
    let Some(Frame::PacedCredit { window, .. }) = frame else {
        panic!("{frame:?}");
    };
    assert!(window as usize * SLOT_SIZE < 500_000, "{window} slots");
    assert!(
        window >= 271,
        "{window} slots are less than the least window"
    );
    assert!(unpaced > 2 * window, "{window} of {unpaced} slots");
}

#[test]
fn an_upload_of_a_peer_of_the_latest_version_is_granted_by_credit() {
    let mut sites = connected(FrameVersion::LATEST, FrameVersion::LATEST);
    assert_eq!(upload_of_b(&mut sites), UPLOAD_BYTES);
    assert!(!sites.b.connections.is_empty());
}

#[test]
fn paced_credit_of_a_peer_of_version_2_withdraws_unused_slots() {
    let mut sites = connected(FrameVersion::V3, FrameVersion::V2);
    let key = sites
        .a
        .open(0, StreamClass::Bulk, sites.now)
        .expect("B is up");
    let paced = |limit| Frame::PacedCredit {
        stream: key.stream,
        limit,
        window: 5,
    };
    for (frame, slots) in [
        (paced(5), 5),
        (paced(4), 5),
        (
            Frame::Credit {
                stream: key.stream,
                limit: 90,
            },
            5,
        ),
        (paced(7), 7),
    ] {
        let datagram = sealed_by_b(&mut sites, &payload(&frame));
        sites.hand_a(&datagram);
        let streams = &mut connection_of_a(&mut sites).streams;
        let stream = streams.get(key.stream).expect("it is open");
        let granted = stream.send.credit_bytes() / SLOT_SIZE;
        assert_eq!(granted, slots, "{frame:?}");
    }
}

#[test]
fn paced_credit_ends_a_connection_of_the_latest_version() {
    let mut sites = connected(FrameVersion::LATEST, FrameVersion::LATEST);
    let key = sites
        .a
        .open(0, StreamClass::Bulk, sites.now)
        .expect("B is up");
    let paced = payload(&Frame::PacedCredit {
        stream: key.stream,
        limit: 5,
        window: 5,
    });
    let datagram = sealed_by_b(&mut sites, &paced);
    sites.hand_a(&datagram);
    while sites.a.poll_event().is_some() {}
    assert!(sites.a.connections.is_empty());
}
