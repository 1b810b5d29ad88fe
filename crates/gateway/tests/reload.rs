//! A configuration that is read again while the gateway runs.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

mod common;

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use common::{World, accept, pattern};

/// How long it takes to bring `bytes` through the forward.
fn bring(world: &World, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    let mut client = world.forward(0);
    let mut received = vec![0; bytes.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(bytes).expect("the gateway takes it"));
        let mut server = accept(&world.server);
        server
            .read_exact(&mut received)
            .expect("everything arrives");
    });
    assert_eq!(received, bytes);
    began.elapsed()
}

/// These measure real time: `cargo xtask test` runs them alone.
mod real_time {
    use super::*;

    #[test]
    fn caps_on_rates_are_taken_on_from_either_side_and_lifted_again() {
        let world = World::start();
        let bytes = pattern(2_000_000);
        bring(&world, &bytes);
        let capped = |section: &str| {
            let section = section.to_owned();
            move |text: &str| text.replace(&section, &format!("{section}rate_max = \"8 Mbit/s\"\n"))
        };
        // At 8 Mbit/s 2 MB take 2 s. The peer must have heard of it.
        let at_least = Duration::from_millis(1_800);
        let settle = || std::thread::sleep(Duration::from_millis(300));
        for section in ["[[peer]]\n", "[link]\n"] {
            world.near.reload(capped(section));
            settle();
            let took = bring(&world, &bytes);
            assert!(took >= at_least, "{section:?} at the sender: {took:?}");
        }
        world.near.reload(str::to_owned);
        world.far.reload(capped("[[peer]]\n"));
        settle();
        let took = bring(&world, &bytes);
        assert!(took >= at_least, "at the receiver: {took:?}");
        world.far.reload(str::to_owned);
        settle();
        // Under the cap these would take 20 s.
        let took = bring(&world, &pattern(20_000_000));
        assert!(took < Duration::from_secs(18), "still capped: {took:?}");
    }

    #[test]
    fn other_peers_are_not_taken_on() {
        let world = World::start();
        let bytes = pattern(1_000_000);
        // 1 MB takes 4 s under the cap.
        let cap = |text: &str| text.replace("[link]\n", "[link]\nrate_max = \"2 Mbit/s\"\n");
        let at_least = Duration::from_millis(3_600);
        world
            .near
            .reload(|text| cap(text).replace("site-b", "site-c"));
        std::thread::sleep(Duration::from_millis(300));
        let took = bring(&world, &bytes);
        assert!(took < at_least, "the refused file's cap holds: {took:?}");
        // The same cap in a file that names the same peers is taken on.
        world.near.reload(cap);
        std::thread::sleep(Duration::from_millis(300));
        let took = bring(&world, &bytes);
        assert!(took >= at_least, "no reload has any effect: {took:?}");
    }
}
