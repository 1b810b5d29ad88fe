//! Tests with ICMP errors, in virtual time. Anyone can forge such errors, so they have no effect
//! while the peer responds. If the peer is gone, such an error shortens the time until the link
//! detects the loss.

use std::time::Duration;

use link::{
    StreamClass,
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

/// Number of checks in one run, 10 ms apart.
const LOOKS: u32 = 1000;

/// Returns the bytes that arrive in 10 s, and the fraction of this time in which the peer counts as
/// silent. `is_forged` adds a forged ICMP error every 10 ms.
fn delivered(line: BitRate, loss: f64, is_forged: bool) -> (u64, f64) {
    let path = PathConfig {
        loss,
        ..PathConfig::line(line, Duration::from_millis(20))
    };
    let mut world = SimWorld::new(&WorldConfig::symmetric(path, 1));
    let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::gibibytes(1));
    world.run_for(Duration::from_secs(2));
    let before = world.progress(id).delivered.bytes();
    let mut silent = 0;
    for _ in 0..LOOKS {
        if is_forged {
            world.deny(SimSite::A);
        }
        world.run_for(Duration::from_millis(10));
        silent += u32::from(!world.endpoint(SimSite::A).is_up(0));
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
        // If the path loses packets, several reports in a row may be lost.
        assert!(silent <= 0.1 * loss, "{silent}");
        assert!(disturbed as f64 > 0.95 * undisturbed as f64);
    }
}

/// Returns the time in which an idle link detects that its peer is gone. Returns `None` if the link
/// has not detected this after five seconds. `is_told` adds an ICMP error.
fn found_out(rtt: Duration, is_told: bool) -> Option<Duration> {
    let path = PathConfig::line(BitRate::mbit(100), rtt);
    let mut world = SimWorld::new(&WorldConfig::symmetric(path, 1));
    world.run_for(Duration::from_secs(2));
    world.set_stopped(SimSite::B, true);
    if is_told {
        world.deny(SimSite::A);
    }
    let died = world.now();
    let is_found_out = world.run_until(Duration::from_secs(5), |world| {
        !world.endpoint(SimSite::A).is_up(0)
    });
    is_found_out.then(|| world.now() - died)
}

#[test]
fn an_error_and_no_answer_tell_that_the_peer_is_dead() {
    for rtt in [20, 200].map(Duration::from_millis) {
        let took = found_out(rtt, true).expect("nobody answers");
        assert!(
            took <= rtt + Duration::from_millis(110),
            "{rtt:?}: {took:?}"
        );
        let alone = found_out(rtt, false);
        assert!(
            alone.is_none_or(|alone| alone > 2 * took),
            "{rtt:?}: {alone:?}"
        );
    }
}
