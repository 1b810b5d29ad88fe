//! Attacks with many handshakes by an attacker who has both public keys.

use super::*;

fn put(hello: &Hello<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    hello.put(&mut out, &envelope());
    out
}

/// Regression test: failed handshakes did not count, so an attacker could begin 200 of 200
/// handshakes without a cookie.
#[test]
fn handshakes_that_fail_take_a_cookie_as_those_in_progress_do() {
    const COUNT: u32 = 200;
    let mut sites = SitePair::new();
    sites.pass(Duration::from_millis(1));
    let mut parts = sites.sent_by_a();
    parts.retain(|it| it[0] == HELLO);
    let read = |part: &[u8]| Hello::read(part).map(|it| it.crypto.len());
    let end: usize = parts.iter().map(|it| read(it).expect("A's")).sum();
    let mut begun = 0;
    for count in 0..COUNT {
        let from = ([198, 51, 100, count as u8], 9).into();
        let hello = |part: usize| {
            let mut hello = Hello::read(&parts[part]).expect("it is A's own");
            hello.source = ConnectionId((0xe000_0000 | count).to_be_bytes());
            hello.timestamp += u64::from(count) * 10 + part as u64;
            hello
        };
        for part in 0..parts.len() {
            sites.hand_b(&put(&hello(part)), from);
        }
        begun += sites.b.attempts.len();
        let junk = [0xff; 64];
        let mut ending = hello(0);
        ending.timestamp += 9;
        ending.crypto_offset = end as u16;
        ending.crypto = &junk;
        sites.hand_b(&put(&ending), from);
        assert_eq!(sites.b.attempts.len(), 0);
        sites.pass(Duration::from_millis(1));
        sites.sent_by_b();
    }
    assert!((1..=4).contains(&begun), "{begun}");
    assert!(sites.b.dropped().crowded > 100);
    sites.exchange(100);
    assert!(sites.b.is_up(0), "A shows a cookie");
}

/// Regression test: a forged hello with A's address moved an attempt of another host to that
/// address.
///
/// The other host had returned a cookie for the attempt. The attempt then counted as an attempt of
/// A's host, so A could not begin its own attempt.
#[test]
fn one_host_with_cookies_does_not_keep_the_peer_out() {
    let mut sites = SitePair::new();
    let mut flood = Flood::new(&mut sites);
    for which in 0..4 {
        sites.hand_b(&flood.next(None), ([198, 51, 100, 70 + which], 9).into());
    }
    sites.hand_b(&flood.next(None), elsewhere());
    sites.sent_by_b();
    let mut replies = sites.sent_by_b.iter().filter(|(to, _)| *to == elsewhere());
    let cookie = replies.find_map(|(_, bytes)| CookieReply::read(bytes).ok());
    let cookie = cookie.expect("it was asked for one").cookie;
    let (mut source, mut later) = (0xf000_0000_u32, 1_000);
    let mut hello = |source: u32, cookie| {
        let mut hello = Hello::read(&flood.template).expect("it is A's own");
        later += 1;
        hello.source = ConnectionId(source.to_be_bytes());
        hello.timestamp += later;
        hello.cookie = cookie;
        put(&hello)
    };
    // The peer's own attempts begin during the attack.
    for round in 0..1500 {
        if round % 200 == 0 {
            source += 1;
            sites.hand_b(&hello(source, Some(cookie)), elsewhere());
            sites.hand_b(&hello(source, None), at_a());
        }
        sites.exchange(1);
        while let Some(event) = sites.a.poll_event() {
            if let crate::EndpointEvent::Resolve { peer } = event {
                let now = sites.now;
                sites.a.set_address(peer, Some(at_b()), now);
            }
        }
        while sites.b.poll_event().is_some() {}
        if sites.b.is_up(0) {
            return;
        }
    }
    panic!("A is not up after 15 s");
}
