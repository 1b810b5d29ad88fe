//! Choice of the connection between two endpoints, and its end.

use super::{joined::Joined, *};

const DELAY: Duration = Duration::from_millis(20);

/// Returns the current connection of A and of B, each by the ID that B has given it.
fn current(two: &Two) -> [Option<ConnectionId>; 2] {
    let of_a = two.a.peers[0]
        .current
        .map(|id| two.a.connections[&id].peer_id);
    [of_a, two.b.peers[0].current]
}

#[test]
fn a_peer_that_restarts_while_two_connections_are_silent_is_found_within_two_seconds() {
    let mut joined = Joined::new(DELAY);
    joined.handshakes_only = true;
    joined.run(Duration::from_secs(20));
    let silent = joined
        .two
        .a
        .connections
        .values()
        .filter(|it| it.is_silent());
    assert!(silent.count() >= 2, "the first one, and one beside it");
    joined.lost_each = 1;
    joined.run(Duration::from_secs(5));
    let now = joined.two.now;
    joined.two.b = instance(2, 1, now, UNIX_NS + 10_000_000_000, 3);
    joined.run(Duration::from_secs(5));
    (joined.lost_each, joined.handshakes_only) = (u64::MAX, false);
    joined.run(Duration::from_secs(2));
    assert!(joined.two.a.is_up(0) && joined.two.b.is_up(0));
}

#[test]
fn both_sides_choose_the_same_connection_while_keys_are_exchanged() {
    // A has a key that B does not use any more, or not yet, and that sorts before or behind.
    for other in 3..20 {
        #[expect(clippy::disallowed_methods, reason = "any origin does")]
        let epoch = Instant::now();
        let mut two = Two::new();
        let peers = vec![EndpointPeer {
            public_keys: [other, 2]
                .map(|seed| Identity::from_seed([seed; 32]).public_key())
                .to_vec(),
            has_endpoint: true,
            rate_max: None,
            is_guest: false,
        }];
        two.now = epoch;
        two.a = endpoint(1, 2, epoch);
        let memory_max = ByteCount::mebibytes(64);
        two.a
            .set_peers(peers, None, memory_max, epoch)
            .expect("the keys are valid");
        two.a.peers[0].next_key = 1;
        two.a.set_address(0, Some(at_b()), epoch);
        two.b = endpoint(2, 1, epoch);
        two.b.peers[0].has_endpoint = true;
        two.b.set_address(0, Some(at_a()), epoch);
        two.exchange(20);
        assert_eq!([&two.a, &two.b].map(|it| it.connections.len()), [2, 2]);
        let [of_a, of_b] = current(&two);
        assert_eq!(of_a, of_b, "the other key is {other}");
    }
}

#[test]
fn a_close_arrives_when_a_burst_takes_the_first_of_it() {
    let mut joined = Joined::new(DELAY);
    joined.two.a.close();
    joined.lost_each = 1;
    joined.run(Duration::from_millis(30));
    assert!(!joined.two.b.is_idle(), "the burst took the first copy");
    joined.lost_each = u64::MAX;
    joined.run(Duration::from_millis(200));
    assert!(joined.two.a.is_idle(), "A has closed");
    assert!(joined.two.b.is_idle(), "B was told");
}

/// The copies of a close take a while, and a stream of that time must not be lost with them.
#[test]
fn a_peer_that_is_removed_and_comes_back_at_once_has_a_connection_of_its_own() {
    let mut joined = Joined::new(DELAY);
    let memory_max = ByteCount::mebibytes(64);
    let known = joined.two.a.config.peers.clone();
    let mut gone = known.clone();
    gone[0].public_keys.clear();
    let now = joined.two.now;
    joined
        .two
        .a
        .set_peers(gone, None, memory_max, now)
        .expect("no key is bad");
    joined.run(Duration::from_millis(30));
    let now = joined.two.now;
    joined
        .two
        .a
        .set_peers(known, None, memory_max, now)
        .expect("the keys are valid");
    let closing = joined
        .two
        .a
        .connections
        .values()
        .filter(|it| it.is_closing());
    assert_eq!(closing.count(), 1, "it takes 80 ms");
    assert!(
        !joined.two.a.is_up(0),
        "a closing connection takes no streams"
    );
    joined.run(Duration::from_secs(2));
    assert!(joined.two.a.is_up(0) && joined.two.b.is_up(0));
    assert_eq!(
        [&joined.two.a, &joined.two.b].map(|it| it.connections.len()),
        [1, 1]
    );
}

#[test]
fn a_peer_that_is_removed_loses_its_streams_at_once_and_hears_why() {
    let mut joined = Joined::new(DELAY);
    let now = joined.two.now;
    let key = joined.two.b.open(0, Class::Bulk, now).expect("A is up");
    joined.two.b.write(key, vec![7; 100_000].into());
    joined.run(Duration::from_millis(100));
    assert_eq!(joined.two.a.streams_of(0), 1, "a transfer is under way");
    let mut gone = joined.two.a.config.peers.clone();
    gone[0].public_keys.clear();
    let now = joined.two.now;
    let set = joined
        .two
        .a
        .set_peers(gone, None, ByteCount::mebibytes(64), now);
    set.expect("no key is bad");
    joined.run(Duration::from_millis(200));
    assert!(joined.two.a.is_idle(), "A has closed");
    assert!(joined.two.b.peers[0].current.is_none(), "B was told");
    assert!(joined.two.b.peer_view(0).is_dismissed);
}

#[test]
fn a_key_that_is_taken_away_ends_the_connection_that_was_made_with_it() {
    for (keeps, is_up) in [([2, 9], true), ([8, 9], false)] {
        let mut joined = Joined::new(DELAY);
        let mut changed = joined.two.a.config.peers.clone();
        changed[0].public_keys = keeps
            .map(|seed| Identity::from_seed([seed; 32]).public_key())
            .to_vec();
        let now = joined.two.now;
        let set = joined
            .two
            .a
            .set_peers(changed, None, ByteCount::mebibytes(64), now);
        set.expect("the keys are valid");
        joined.run(Duration::from_millis(200));
        assert_eq!(joined.two.a.is_up(0), is_up, "{keeps:?}");
        assert_eq!(joined.two.b.peer_view(0).is_dismissed, !is_up);
    }
}

#[test]
fn a_connection_whose_numbers_come_to_an_end_makes_way_in_time() {
    let mut joined = Joined::new(DELAY);
    let before = current(&joined.two);
    let id = joined.two.a.peers[0].current.expect("B is up");
    let old = joined
        .two
        .a
        .connections
        .get_mut(&id)
        .expect("it is current");
    old.streams.wear_out();
    let now = joined.two.now;
    let key = joined.two.a.open(0, Class::Bulk, now).expect("B is up");
    joined.run(Duration::from_secs(10));
    let after = current(&joined.two);
    assert!(
        after[0].is_some() && after[0] != before[0],
        "a new connection"
    );
    assert!(
        joined.two.a.connections.contains_key(&id),
        "its stream goes on"
    );
    joined.two.a.write(key, Bytes::from_static(b"the end"));
    joined.two.a.reset(key, 0);
    joined.two.a.stop(key, 0);
    joined.run(Duration::from_secs(30));
    assert!(
        !joined.two.a.connections.contains_key(&id),
        "the old one is over"
    );
    assert_eq!(current(&joined.two), [after[0]; 2], "both use the new one");
}

/// B abandons the connection while A is stopped. B's earlier packets wait in A's socket, each
/// datagram with the time at which it came.
#[test]
fn who_was_stopped_for_longer_than_the_peer_waits_doubts_the_connection_whatever_has_come() {
    let mut joined = Joined::new(DELAY);
    let two = &mut joined.two;
    let start = two.now;
    assert!(two.a.next_timeout(start).is_some());
    let mut waiting = Vec::new();
    while !two.b.is_idle() {
        two.b.handle_timeout(two.now);
        while two.b.poll_event().is_some() {}
        let now = two.now;
        waiting.extend(two.sent_by_b().into_iter().map(|bytes| (now, bytes)));
        two.now = match two.b.next_timeout(now) {
            Some(due) => due.max(now + Duration::from_micros(100)),
            None => break,
        };
    }
    assert!(two.now - start > Duration::from_secs(500) && waiting.len() > 100);
    two.now += Duration::from_secs(100);
    for (arrived, mut bytes) in waiting {
        two.a.handle_datagram(&mut bytes, at_b(), arrived);
    }
    two.a.handle_timeout(two.now);
    let connection = two.a.connections.values().next();
    let connection = connection.expect("B has some seconds to answer");
    assert!(connection.is_doubtful(), "B may have given it up");
    assert!(!two.a.is_up(0), "no stream is opened before B answers");
}

#[test]
fn a_connection_that_the_peer_retires_keeps_its_streams_and_gets_a_successor() {
    let mut joined = Joined::new(DELAY);
    let now = joined.two.now;
    let held = joined.two.a.open(0, Class::Bulk, now).expect("B is up");
    joined.two.a.write(held, Bytes::from_static(b"before"));
    joined.run(Duration::from_millis(100));
    // The endpoint stands for its own successor.
    joined.two.b.retire();
    joined.two.b.take_back();
    joined.run(Duration::from_millis(200));
    let now = joined.two.now;
    let fresh = joined.two.a.open(0, Class::Bulk, now).expect("B is up");
    assert_ne!(fresh.connection, held.connection, "within five round trips");
    let beside = joined.two.a.open_beside(held, Class::Bulk, now);
    let beside = beside.expect("it is there");
    assert_eq!(beside.connection, held.connection);
    joined.run(Duration::from_secs(60));
    assert_eq!(
        joined.two.a.connections.len(),
        2,
        "as long as it has streams"
    );
    for stream in [held, beside] {
        joined.two.a.reset(stream, 0);
        joined.two.a.stop(stream, 0);
    }
    joined.run(Duration::from_secs(10));
    let left = [&joined.two.a, &joined.two.b].map(|it| it.connections.len());
    assert_eq!(left, [1, 1]);
}

/// A peer is replaced again and again while transfers continue in each of its processes, or claims
/// so.
#[test]
fn retired_connections_are_kept_up_to_a_bound() {
    let mut joined = Joined::new(DELAY);
    for round in 0..40 {
        let now = joined.two.now;
        let held = joined.two.a.open(0, Class::Bulk, now).expect("B is up");
        joined.two.a.write(held, Bytes::from_static(b"kept open"));
        joined.run(Duration::from_millis(100));
        for endpoint in [&mut joined.two.a, &mut joined.two.b] {
            endpoint.retire();
            endpoint.take_back();
        }
        joined.run(Duration::from_secs(3));
        let connections = joined.two.a.connections.len();
        assert!((round.min(31)..=36).contains(&connections), "{connections}");
    }
}

#[test]
fn a_peer_whose_name_cannot_be_resolved_any_more_is_tried_at_its_last_address() {
    let mut joined = Joined::new(DELAY);
    joined.names_resolve = false;
    joined.two.b = instance(2, 1, joined.two.now, UNIX_NS + 20_000_000_000, 9);
    joined.run(Duration::from_secs(5));
    assert!(joined.two.a.is_up(0) && joined.two.b.is_up(0));
}
