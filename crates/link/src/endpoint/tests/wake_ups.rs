//! Rate of an endpoint's wake-ups. A wake-up is caused by a deadline or by an arriving datagram.

use super::{endpoint_pair::EndpointPair, *};

#[test]
fn a_silent_peer_wakes_us_ten_times_a_second_at_most() {
    for delay_ms in [1, 10, 100, 300] {
        let mut pair = EndpointPair::new(Duration::from_millis(delay_ms));
        if delay_ms == 300 {
            // The transparent mode also uses a short keep-alive interval.
            pair.sites.a.set_keep_alive(Duration::from_millis(200));
        }
        pair.run(Duration::from_secs(20));
        pair.lost_each = 1;
        let at_first = pair.run(Duration::from_secs(10));
        assert!(!pair.sites.a.is_up(0), "B is silent");
        let then = pair.run(Duration::from_secs(120));
        assert!(at_first <= 50.0, "{at_first:.1} a second, {delay_ms} ms");
        assert!(then <= 10.0, "{then:.1} a second, {delay_ms} ms");
        pair.lost_each = u64::MAX;
        pair.run(Duration::from_secs(3));
        assert!(pair.sites.a.is_up(0), "B is back");
    }
}

#[test]
fn a_peer_that_dies_before_it_confirms_wakes_us_ten_times_a_second_at_most() {
    let mut sites = SitePair::new();
    while sites.a.connections.is_empty() {
        sites.pass(Duration::from_millis(10));
        for datagram in sites.sent_by_a() {
            sites.hand_b(&datagram, at_a());
        }
        for datagram in sites.sent_by_b() {
            sites.hand_a(&datagram);
        }
    }
    let start = sites.now;
    let end = start + Duration::from_secs(120);
    let (mut wake_ups, mut datagrams) = (0, 0);
    while sites.now < end {
        sites.a.handle_timeout(sites.now);
        datagrams += sites.sent_by_a().len();
        let connection = sites.a.connections.values().next();
        let connection = connection.expect("it is not given up yet");
        assert!(!connection.is_confirmed(), "B is dead");
        let due = sites.a.next_timeout(sites.now).expect("a probe is due");
        sites.now = due.max(sites.now + Duration::from_micros(100));
        wake_ups += 1;
    }
    assert!(
        wake_ups <= 1200 && datagrams <= 1200,
        "{wake_ups} wake-ups, {datagrams} datagrams"
    );
    assert!(datagrams > 200, "A goes on trying");
}

#[test]
fn an_upload_that_waits_for_credit_wakes_us_twenty_times_a_second_at_most() {
    for delay_ms in [1, 10, 100] {
        let mut pair = EndpointPair::new(Duration::from_millis(delay_ms));
        let now = pair.sites.now;
        let key = pair
            .sites
            .a
            .open(0, StreamClass::Bulk, now)
            .expect("B is up");
        pair.lost_each = 50;
        for _ in 0..100 {
            if pair.sites.a.writable(key) > 0 {
                pair.sites.a.write(key, Bytes::from(vec![1; 1_000_000]));
            }
            pair.run(Duration::from_millis(300));
        }
        // B does not read.
        let waiting = pair.run(Duration::from_secs(30));
        assert!(pair.sites.a.is_up(0), "B answers");
        let connection = pair.sites.a.connections.values_mut().next();
        let connection = connection.expect("it is up");
        assert!(connection.loss() > 0.0, "packets were lost");
        let stream = connection.streams.get(key.stream).expect("it is open");
        assert!(stream.send.is_blocked(), "there is more to send");
        assert!(waiting <= 20.0, "{waiting:.1} a second, {delay_ms} ms");
    }
}

#[test]
fn an_idle_link_wakes_us_hardly_ever() {
    for (keep_alive_ms, most) in [(5000, 1.0), (200, 12.0)] {
        for delay_ms in [1, 10, 50, 100] {
            let mut pair = EndpointPair::new(Duration::from_millis(delay_ms));
            pair.sites
                .a
                .set_keep_alive(Duration::from_millis(keep_alive_ms));
            let idle = pair.run(Duration::from_secs(120));
            assert!(
                idle <= most,
                "{idle:.1} a second, {delay_ms} ms, {keep_alive_ms} ms"
            );
        }
    }
}

#[test]
fn a_first_flight_of_which_a_part_has_come_wakes_nobody() {
    let mut sites = SitePair::new();
    sites.pass(Duration::from_millis(10));
    let flight = sites.sent_by_a();
    assert!(flight.len() > 1, "the flight has parts");
    sites.hand_b(&flight[0], at_a());
    assert_eq!(sites.b.attempts.len(), 1, "B waits for the rest");
    assert!(sites.sent_by_b().is_empty(), "B has nothing to say yet");
    let due = sites.b.next_timeout(sites.now).expect("the attempt ends");
    assert!(due - sites.now > Duration::from_secs(5));
    sites.pass(Duration::from_secs(1));
    sites.hand_b(&flight[1], at_a());
    assert!(!sites.sent_by_b().is_empty(), "B answers at once");
}
