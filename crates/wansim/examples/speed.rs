//! Prints the processor time of the model per packet. A packet is sent, queued at the bottleneck,
//! kept in flight, and received.
//!
//! `cargo run --release -p longhaul-wansim --example speed`
#![allow(clippy::disallowed_methods, reason = "measures in real time")]

use std::time::{Duration, Instant};

use units::{BitRate, ByteCount};
use wansim::{Jitter, Packet, Path, PathConfig};

/// A packet of the same size in memory as the emulator's packets. It describes a packet without its
/// bytes.
#[derive(Clone)]
struct Descriptor {
    ip_bytes: usize,
    _rest: [u64; 7],
}

impl Packet for Descriptor {
    fn ip_bytes(&self) -> usize {
        self.ip_bytes
    }
    fn flip_bit(&mut self, _bit: usize) {}
}

fn main() {
    let clean = PathConfig {
        rate: Some(BitRate::gbit(1)),
        queue: ByteCount::megabytes(12),
        delay: Duration::from_millis(100),
        ..PathConfig::default()
    };
    let lossy = PathConfig {
        loss: 0.001,
        corruption: 0.0001,
        duplication: 0.0001,
        ..clean.clone()
    };
    let jitter = Jitter {
        spread: Duration::from_millis(1),
        in_order: false,
    };
    let jittered = PathConfig {
        jitter,
        ..lossy.clone()
    };
    for (name, config) in [
        ("clean", clean),
        ("lossy", lossy),
        ("lossy and jittered", jittered),
    ] {
        println!("{name}: {:.0} ns per packet", measure(config));
    }
}

/// Measures the steady state at 1 Gbit/s. About 8,000 packets are in flight, and each round sends
/// one packet and receives one packet.
fn measure(config: PathConfig) -> f64 {
    const PACKETS: u32 = 2_000_000;
    let gap = Duration::from_nanos(12_304);
    let origin = Instant::now();
    let mut path = Path::new(config, 1);
    let mut delivered = 0u32;
    for number in 0..PACKETS {
        let now = origin + gap * number;
        path.send(
            Descriptor {
                ip_bytes: 1500,
                _rest: [0; 7],
            },
            now,
        );
        while path.next_arrival().is_some_and(|at| at <= now) && path.poll(now).is_some() {
            delivered += 1;
        }
    }
    assert!(
        delivered > PACKETS * 9 / 10,
        "the bench measures packets that pass"
    );
    origin.elapsed().as_nanos() as f64 / f64::from(PACKETS)
}
