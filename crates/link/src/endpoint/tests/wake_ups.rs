//! Rate of an endpoint's wake-ups. A wake-up is a deadline that has come, or a datagram.

use super::{joined::Joined, *};

#[test]
fn a_silent_peer_wakes_us_ten_times_a_second_at_most() {
    for delay_ms in [1, 10, 100, 300] {
        let mut joined = Joined::new(Duration::from_millis(delay_ms));
        if delay_ms == 300 {
            // As in transparent mode.
            joined.two.a.set_keep_alive(Duration::from_millis(200));
        }
        joined.run(Duration::from_secs(20));
        joined.lost_each = 1;
        let at_first = joined.run(Duration::from_secs(10));
        assert!(!joined.two.a.is_up(0), "B is silent");
        let then = joined.run(Duration::from_secs(120));
        assert!(at_first <= 50.0, "{at_first:.1} a second, {delay_ms} ms");
        assert!(then <= 10.0, "{then:.1} a second, {delay_ms} ms");
        joined.lost_each = u64::MAX;
        joined.run(Duration::from_secs(3));
        assert!(joined.two.a.is_up(0), "B is back");
    }
}

#[test]
fn a_peer_that_dies_before_it_confirms_wakes_us_ten_times_a_second_at_most() {
    let mut two = Two::new();
    while two.a.connections.is_empty() {
        two.pass(Duration::from_millis(10));
        for datagram in two.sent_by_a() {
            two.hand_b(&datagram, at_a());
        }
        for datagram in two.sent_by_b() {
            two.hand_a(&datagram);
        }
    }
    let start = two.now;
    let end = start + Duration::from_secs(120);
    let (mut wake_ups, mut datagrams) = (0, 0);
    while two.now < end {
        two.a.handle_timeout(two.now);
        datagrams += two.sent_by_a().len();
        let connection = two.a.connections.values().next();
        let connection = connection.expect("it is not given up yet");
        assert!(!connection.is_confirmed(), "B is dead");
        let due = two.a.next_timeout(two.now).expect("a probe is due");
        two.now = due.max(two.now + Duration::from_micros(100));
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
        let mut joined = Joined::new(Duration::from_millis(delay_ms));
        let now = joined.two.now;
        let key = joined.two.a.open(0, Class::Bulk, now).expect("B is up");
        joined.lost_each = 50;
        for _ in 0..100 {
            if joined.two.a.writable(key) > 0 {
                joined.two.a.write(key, Bytes::from(vec![1; 1_000_000]));
            }
            joined.run(Duration::from_millis(300));
        }
        // B does not read.
        let waiting = joined.run(Duration::from_secs(30));
        assert!(joined.two.a.is_up(0), "B answers");
        let connection = joined.two.a.connections.values_mut().next();
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
            let mut joined = Joined::new(Duration::from_millis(delay_ms));
            joined
                .two
                .a
                .set_keep_alive(Duration::from_millis(keep_alive_ms));
            let idle = joined.run(Duration::from_secs(120));
            assert!(
                idle <= most,
                "{idle:.1} a second, {delay_ms} ms, {keep_alive_ms} ms"
            );
        }
    }
}

#[test]
fn a_first_flight_of_which_a_part_has_come_wakes_nobody() {
    let mut two = Two::new();
    two.pass(Duration::from_millis(10));
    let flight = two.sent_by_a();
    assert!(flight.len() > 1, "the flight has parts");
    two.hand_b(&flight[0], at_a());
    assert_eq!(two.b.attempts.len(), 1, "B waits for the rest");
    assert!(two.sent_by_b().is_empty(), "B has nothing to say yet");
    let due = two.b.next_timeout(two.now).expect("the attempt ends");
    assert!(due - two.now > Duration::from_secs(5));
    two.pass(Duration::from_secs(1));
    two.hand_b(&flight[1], at_a());
    assert!(!two.sent_by_b().is_empty(), "B answers at once");
}
