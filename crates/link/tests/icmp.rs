//! ICMP errors that anybody can forge, in virtual time: they change nothing while the peer lives.

use std::time::Duration;

use link::{
    Class, Policy, congestion,
    sim::{Side, World, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// 10 ms apart.
const LOOKS: u32 = 1000;

/// Bytes that arrive in 10 s, with a forged error each 10 ms or none, and the share of that time in which the peer
/// counted as silent.
fn delivered(line: BitRate, loss: f64, is_forged: bool) -> (u64, f64) {
    let rtt = Duration::from_millis(20);
    let path = PathConfig {
        rate: Some(line),
        queue: PathConfig::default_queue(line, rtt),
        delay: rtt / 2,
        loss,
        ..PathConfig::default()
    };
    let mut world = World::new(&WorldConfig {
        forward: path.clone(),
        backward: path,
        seed: 1,
        controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
        memory_max: ByteCount::mebibytes(64),
        idle_timeout: Duration::from_secs(600),
    });
    let id = world.send(Side::A, Class::Bulk, ByteCount::gibibytes(1));
    world.run_for(Duration::from_secs(2));
    let before = world.progress(id).delivered.bytes();
    let mut silent = 0;
    for _ in 0..LOOKS {
        if is_forged {
            world.deny(Side::A);
        }
        world.run_for(Duration::from_millis(10));
        silent += u32::from(!world.endpoint(Side::A).is_up(0));
    }
    let after = world.progress(id).delivered.bytes();
    (after - before, f64::from(silent) / f64::from(LOOKS))
}

#[test]
fn forged_errors_do_not_stop_a_transfer() {
    for (line_kbit, loss) in [(600, 0.0), (1500, 0.0), (3000, 0.1), (20_000, 0.1)] {
        let line = BitRate::kbit(line_kbit);
        let (undisturbed, _) = delivered(line, loss, false);
        let (disturbed, silent) = delivered(line, loss, true);
        println!(
            "{line}, loss {loss}: {undisturbed} bytes, with errors {disturbed}, silent {silent}"
        );
        // Where reports get lost, a few in a row may be.
        assert!(silent <= 0.1 * loss, "{silent}");
        assert!(disturbed as f64 > 0.95 * undisturbed as f64);
    }
}
