//! Tests of the cap on the total sending rate to all peers.

use super::*;
use units::BitRate;

/// Cap on the total sending rate of A.
const RATE_MAX: BitRate = BitRate::kbit(100);

#[test]
fn probes_of_a_new_path_stay_within_a_shared_cap() {
    let mut sites = SitePair::new();
    sites.a.set_rate_max(Some(RATE_MAX), &[None]);
    let mut probes_bytes = 0;
    let time = Duration::from_secs(2);
    let step = Duration::from_millis(2);
    for _ in 0..time.as_millis() / step.as_millis() {
        sites.pass(step);
        for datagram in sites.sent_by_a() {
            // The path does not carry MTU probes.
            if datagram.len() > 1300 {
                probes_bytes += datagram.len();
            } else {
                sites.hand_b(&datagram, at_a());
            }
        }
        for datagram in sites.sent_by_b() {
            sites.hand_a(&datagram);
        }
    }
    assert!(sites.a.is_up(0) && probes_bytes > 10_000, "A probes");
    let allowed = RATE_MAX.as_bytes_per_s() * time.as_secs_f64();
    let overrun = probes_bytes as f64 / allowed;
    assert!(overrun < 1.1, "{overrun:.2} times what the cap allows");
}
