//! Tests of two endpoints: the selection of the connection between them, and the end of a
//! connection.

use super::{endpoint_pair::EndpointPair, *};

const DELAY: Duration = Duration::from_millis(20);

/// Returns the current connection of A and of B. Both are identified by the connection ID that B
/// assigned.
fn current(sites: &SitePair) -> [Option<ConnectionId>; 2] {
    let of_a = sites.a.peers[0]
        .current
        .map(|id| sites.a.connections[&id].peer_id);
    [of_a, sites.b.peers[0].current]
}

#[test]
fn a_peer_that_restarts_while_two_connections_are_silent_is_found_within_two_seconds() {
    let mut pair = EndpointPair::new(DELAY);
    pair.handshakes_only = true;
    pair.run(Duration::from_secs(20));
    let silent = pair
        .sites
        .a
        .connections
        .values()
        .filter(|it| it.is_silent());
    assert!(silent.count() >= 2, "the first one, and one beside it");
    pair.lost_each = 1;
    pair.run(Duration::from_secs(5));
    let now = pair.sites.now;
    pair.sites.b = instance(2, 1, now, UNIX_NS + 10_000_000_000, 3);
    pair.run(Duration::from_secs(5));
    (pair.lost_each, pair.handshakes_only) = (u64::MAX, false);
    pair.run(Duration::from_secs(2));
    assert!(pair.sites.a.is_up(0) && pair.sites.b.is_up(0));
}

#[test]
fn both_sides_choose_the_same_connection_while_keys_are_exchanged() {
    // A has a key that B no longer accepts, or does not accept yet. The key is smaller or larger
    // than B's key.
    for other in 3..20 {
        #[expect(clippy::disallowed_methods, reason = "any origin does")]
        let epoch = Instant::now();
        let mut sites = SitePair::new();
        let peers = vec![EndpointPeer {
            public_keys: [other, 2]
                .map(|seed| Identity::from_seed([seed; 32]).public_key())
                .to_vec(),
            has_endpoint: true,
            rate_max: None,
            is_guest: false,
        }];
        sites.now = epoch;
        sites.a = endpoint(1, 2, epoch);
        let memory_max = ByteCount::mebibytes(64);
        sites
            .a
            .set_peers(peers, None, memory_max, epoch)
            .expect("the keys are valid");
        sites.a.peers[0].next_key = 1;
        sites.a.set_address(0, Some(at_b()), epoch);
        sites.b = endpoint(2, 1, epoch);
        sites.b.peers[0].has_endpoint = true;
        sites.b.set_address(0, Some(at_a()), epoch);
        sites.exchange(20);
        assert_eq!([&sites.a, &sites.b].map(|it| it.connections.len()), [2, 2]);
        let [of_a, of_b] = current(&sites);
        assert_eq!(of_a, of_b, "the other key is {other}");
    }
}

#[test]
fn a_close_arrives_when_a_burst_takes_the_first_of_it() {
    let mut pair = EndpointPair::new(DELAY);
    pair.sites.a.close();
    pair.lost_each = 1;
    pair.run(Duration::from_millis(30));
    assert!(!pair.sites.b.is_idle(), "the burst took the first copy");
    pair.lost_each = u64::MAX;
    pair.run(Duration::from_millis(200));
    assert!(pair.sites.a.is_idle(), "A has closed");
    assert!(pair.sites.b.is_idle(), "B was told");
}

/// Sending the copies of a CLOSE frame takes some time. A stream that is opened during that time
/// must not be lost with the old connection.
#[test]
fn a_peer_that_is_removed_and_comes_back_at_once_has_a_connection_of_its_own() {
    let mut pair = EndpointPair::new(DELAY);
    let memory_max = ByteCount::mebibytes(64);
    let known = pair.sites.a.config.peers.clone();
    let mut gone = known.clone();
    gone[0].public_keys.clear();
    let now = pair.sites.now;
    pair.sites
        .a
        .set_peers(gone, None, memory_max, now)
        .expect("no key is bad");
    pair.run(Duration::from_millis(30));
    let now = pair.sites.now;
    pair.sites
        .a
        .set_peers(known, None, memory_max, now)
        .expect("the keys are valid");
    let closing = pair
        .sites
        .a
        .connections
        .values()
        .filter(|it| it.is_closing());
    assert_eq!(closing.count(), 1, "it takes 80 ms");
    assert!(
        !pair.sites.a.is_up(0),
        "a closing connection takes no streams"
    );
    pair.run(Duration::from_secs(2));
    assert!(pair.sites.a.is_up(0) && pair.sites.b.is_up(0));
    assert_eq!(
        [&pair.sites.a, &pair.sites.b].map(|it| it.connections.len()),
        [1, 1]
    );
}

#[test]
fn a_peer_that_is_removed_loses_its_streams_at_once_and_hears_why() {
    let mut pair = EndpointPair::new(DELAY);
    let now = pair.sites.now;
    let key = pair
        .sites
        .b
        .open(0, StreamClass::Bulk, now)
        .expect("A is up");
    pair.sites.b.write(key, vec![7; 100_000].into());
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.sites.a.streams_of(0), 1, "a transfer is under way");
    let mut gone = pair.sites.a.config.peers.clone();
    gone[0].public_keys.clear();
    let now = pair.sites.now;
    let set = pair
        .sites
        .a
        .set_peers(gone, None, ByteCount::mebibytes(64), now);
    set.expect("no key is bad");
    pair.run(Duration::from_millis(200));
    assert!(pair.sites.a.is_idle(), "A has closed");
    assert!(pair.sites.b.peers[0].current.is_none(), "B was told");
    assert!(pair.sites.b.peer_view(0).is_dismissed);
}

#[test]
fn a_key_that_is_taken_away_ends_the_connection_that_was_made_with_it() {
    for (keeps, is_up) in [([2, 9], true), ([8, 9], false)] {
        let mut pair = EndpointPair::new(DELAY);
        let mut changed = pair.sites.a.config.peers.clone();
        changed[0].public_keys = keeps
            .map(|seed| Identity::from_seed([seed; 32]).public_key())
            .to_vec();
        let now = pair.sites.now;
        let set = pair
            .sites
            .a
            .set_peers(changed, None, ByteCount::mebibytes(64), now);
        set.expect("the keys are valid");
        pair.run(Duration::from_millis(200));
        assert_eq!(pair.sites.a.is_up(0), is_up, "{keeps:?}");
        assert_eq!(pair.sites.b.peer_view(0).is_dismissed, !is_up);
    }
}

#[test]
fn a_connection_whose_numbers_come_to_an_end_makes_way_in_time() {
    let mut pair = EndpointPair::new(DELAY);
    let before = current(&pair.sites);
    let id = pair.sites.a.peers[0].current.expect("B is up");
    let old = pair
        .sites
        .a
        .connections
        .get_mut(&id)
        .expect("it is current");
    old.streams.wear_out();
    let now = pair.sites.now;
    let key = pair
        .sites
        .a
        .open(0, StreamClass::Bulk, now)
        .expect("B is up");
    pair.run(Duration::from_secs(10));
    let after = current(&pair.sites);
    assert!(
        after[0].is_some() && after[0] != before[0],
        "a new connection"
    );
    assert!(
        pair.sites.a.connections.contains_key(&id),
        "its stream goes on"
    );
    pair.sites.a.write(key, Bytes::from_static(b"the end"));
    pair.sites.a.reset(key, 0);
    pair.sites.a.stop(key, 0);
    pair.run(Duration::from_secs(30));
    assert!(
        !pair.sites.a.connections.contains_key(&id),
        "the old one is over"
    );
    assert_eq!(current(&pair.sites), [after[0]; 2], "both use the new one");
}

/// B ends the connection while the process of A is stopped. B's earlier packets wait in A's socket,
/// each with its arrival time.
#[test]
fn a_process_stopped_for_longer_than_the_timeout_doubts_the_connection_despite_arrivals() {
    let mut pair = EndpointPair::new(DELAY);
    let sites = &mut pair.sites;
    let start = sites.now;
    assert!(sites.a.next_timeout(start).is_some());
    let mut waiting = Vec::new();
    while !sites.b.is_idle() {
        sites.b.handle_timeout(sites.now);
        while sites.b.poll_event().is_some() {}
        let now = sites.now;
        waiting.extend(sites.sent_by_b().into_iter().map(|bytes| (now, bytes)));
        sites.now = match sites.b.next_timeout(now) {
            Some(due) => due.max(now + Duration::from_micros(100)),
            None => break,
        };
    }
    assert!(sites.now - start > Duration::from_secs(500) && waiting.len() > 100);
    sites.now += Duration::from_secs(100);
    for (arrived, mut bytes) in waiting {
        sites.a.handle_datagram(&mut bytes, at_b(), arrived);
    }
    sites.a.handle_timeout(sites.now);
    let connection = sites.a.connections.values().next();
    let connection = connection.expect("B has some seconds to answer");
    assert!(connection.is_doubtful(), "B may have given it up");
    assert!(!sites.a.is_up(0), "no stream is opened before B answers");
}

#[test]
fn a_connection_that_the_peer_retires_keeps_its_streams_and_gets_a_successor() {
    let mut pair = EndpointPair::new(DELAY);
    let now = pair.sites.now;
    let held = pair
        .sites
        .a
        .open(0, StreamClass::Bulk, now)
        .expect("B is up");
    pair.sites.a.write(held, Bytes::from_static(b"before"));
    pair.run(Duration::from_millis(100));
    // In this test the endpoint acts as its own successor.
    pair.sites.b.retire();
    pair.sites.b.take_back();
    pair.run(Duration::from_millis(200));
    let now = pair.sites.now;
    let fresh = pair
        .sites
        .a
        .open(0, StreamClass::Bulk, now)
        .expect("B is up");
    assert_ne!(fresh.connection, held.connection, "within five round trips");
    let beside = pair.sites.a.open_beside(held, StreamClass::Bulk, now);
    let beside = beside.expect("it is there");
    assert_eq!(beside.connection, held.connection);
    pair.run(Duration::from_secs(60));
    assert_eq!(
        pair.sites.a.connections.len(),
        2,
        "as long as it has streams"
    );
    for stream in [held, beside] {
        pair.sites.a.reset(stream, 0);
        pair.sites.a.stop(stream, 0);
    }
    pair.run(Duration::from_secs(10));
    let left = [&pair.sites.a, &pair.sites.b].map(|it| it.connections.len());
    assert_eq!(left, [1, 1]);
}

/// A peer is upgraded repeatedly while each of its processes still has transfers. A hostile peer
/// can also pretend that it is upgraded.
#[test]
fn retired_connections_are_kept_up_to_a_bound() {
    let mut pair = EndpointPair::new(DELAY);
    for round in 0..40 {
        let now = pair.sites.now;
        let held = pair
            .sites
            .a
            .open(0, StreamClass::Bulk, now)
            .expect("B is up");
        pair.sites.a.write(held, Bytes::from_static(b"kept open"));
        pair.run(Duration::from_millis(100));
        for endpoint in [&mut pair.sites.a, &mut pair.sites.b] {
            endpoint.retire();
            endpoint.take_back();
        }
        pair.run(Duration::from_secs(3));
        let connections = pair.sites.a.connections.len();
        assert!((round.min(31)..=36).contains(&connections), "{connections}");
    }
}

#[test]
fn a_peer_whose_name_cannot_be_resolved_any_more_is_tried_at_its_last_address() {
    let mut pair = EndpointPair::new(DELAY);
    pair.names_resolve = false;
    pair.sites.b = instance(2, 1, pair.sites.now, UNIX_NS + 20_000_000_000, 9);
    pair.run(Duration::from_secs(5));
    assert!(pair.sites.a.is_up(0) && pair.sites.b.is_up(0));
}
