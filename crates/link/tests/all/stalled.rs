//! Tests with stalled or slow readers, together with a normal transfer and a dialogue, in virtual
//! time.
//!
//! Each test measures the rate of the normal transfer, the response time of the dialogue, and the
//! memory of both sites. `cargo xtask siege stalled` runs all kinds and numbers of readers, and
//! these tests run one case of each.

use std::time::Duration;

use link::{
    StreamClass,
    sim::{SimSite, SimTransferId, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const RTT: Duration = Duration::from_millis(200);
const LINE_MBIT: u64 = 300;
/// Timeout for a transfer. It is longer than any transfer in these tests.
const LIMIT: Duration = Duration::from_secs(600);
/// Size of the normal transfer: twenty seconds, or a hundred round trips, at the rate of the line.
const HEALTHY: ByteCount = ByteCount::new(750_000_000);
/// Size of the normal transfer in the siege: forty seconds. Its window grows slowly while little
/// memory is free. The required share of the siege includes this time.
const HEALTHY_IN_SIEGE: ByteCount = ByteCount::new(1_500_000_000);

/// Behaviour of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderKind {
    /// The reader never reads.
    Stalled,
    /// Buffers between the link and the reader absorb half a megabyte, and the reader never reads.
    Swallowing,
    /// The reader reads 1 kB/s.
    Slow,
    /// The reader reads this many megabytes as fast as they arrive, and then stalls.
    Paused(u64),
}

/// Start times of the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartOrder {
    Together,
    /// Each reader starts after the previous reader has stalled.
    InTurn,
}

/// Side that opens a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opener {
    Sender,
    Receiver,
}

/// Normal transfer, and its duration without other readers.
#[derive(Debug, Clone, Copy)]
struct HealthyTransfer {
    size: ByteCount,
    alone: Duration,
}

impl HealthyTransfer {
    /// Measures the duration without other readers.
    fn measure(opener: Opener, size: ByteCount) -> Self {
        let alone = figures(ReaderKind::Stalled, StartOrder::Together, opener, 0, size).transfer;
        Self { size, alone }
    }
}

#[derive(Debug)]
struct Figures {
    /// Duration of the normal transfer.
    transfer: Duration,
    /// Time from sending a message of 500 bytes until the sender receives the confirmation that it
    /// was read.
    dialogue: Duration,
    /// Buffer memory of the site with the larger buffers.
    memory: ByteCount,
}

fn begin(world: &mut SimWorld, opener: Opener, size: ByteCount) -> SimTransferId {
    match opener {
        Opener::Sender => world.send(SimSite::A, StreamClass::Bulk, size),
        Opener::Receiver => world.request(SimSite::A, StreamClass::Bulk, size),
    }
}

fn figures(
    kind: ReaderKind,
    arrival: StartOrder,
    opener: Opener,
    readers: usize,
    healthy: ByteCount,
) -> Figures {
    let path = PathConfig::line(BitRate::mbit(LINE_MBIT), RTT);
    let mut world = SimWorld::new(&WorldConfig::symmetric(path, 1));
    let mut paused = Vec::new();
    for _ in 0..readers {
        let size = match kind {
            ReaderKind::Paused(megabytes) => ByteCount::megabytes(megabytes + 500),
            _ => ByteCount::megabytes(20),
        };
        let id = begin(&mut world, opener, size);
        match kind {
            ReaderKind::Stalled => world.leave_unread(id),
            ReaderKind::Swallowing => {
                world.set_reading_rate(id, BitRate::kbit(0));
                world.swallow(id, ByteCount::new(500_000));
            }
            ReaderKind::Slow => world.set_reading_rate(id, BitRate::kbit(8)),
            ReaderKind::Paused(megabytes) => {
                let read = ByteCount::megabytes(megabytes);
                world.set_reading_rate(id, BitRate::kbit(0));
                world.swallow(id, read);
                paused.push((id, read));
                if arrival == StartOrder::InTurn {
                    run_until_paused(&mut world, &paused);
                }
            }
        }
    }
    run_until_paused(&mut world, &paused);
    world.run_for(Duration::from_secs(60));
    let healthy = begin(&mut world, opener, healthy);
    world.run_for(Duration::from_secs(3));
    let message = world.send(SimSite::A, StreamClass::Control, ByteCount::new(500));
    let dialogue = world.run_to_end(message, LIMIT);
    let transfer = world.run_to_end(healthy, LIMIT);
    let memory =
        [SimSite::A, SimSite::B].map(|side| world.endpoint(side).footprint().buffered_bytes);
    if let Some((id, _)) = paused.first() {
        world.set_reading_rate(*id, BitRate::mbit(LINE_MBIT));
        assert!(world.run_to_end(*id, LIMIT).is_some(), "it goes on");
    }
    Figures {
        transfer: transfer.unwrap_or(LIMIT),
        dialogue: dialogue.unwrap_or(LIMIT),
        memory: ByteCount::new(memory[0].max(memory[1])),
    }
}

/// Runs until each reader has read its bytes and stalls.
fn run_until_paused(world: &mut SimWorld, readers: &[(SimTransferId, ByteCount)]) {
    let have_paused = world.run_until(100 * LIMIT, |world| {
        let mut progress = readers.iter().map(|(id, read)| (world.progress(*id), read));
        progress.all(|(progress, read)| progress.delivered >= *read)
    });
    assert!(have_paused, "each reader takes its part");
}

/// Measures a normal transfer and a dialogue together with `readers` readers, and prints the
/// results. Fails if the results do not meet the requirements.
fn assert_harmless(
    kind: ReaderKind,
    arrival: StartOrder,
    opener: Opener,
    readers: usize,
    healthy: HealthyTransfer,
) {
    let it = figures(kind, arrival, opener, readers, healthy.size);
    let mut share = healthy.alone.as_secs_f64() / it.transfer.as_secs_f64();
    if kind == ReaderKind::Slow {
        // The readers use a part of the line.
        share /= 1.0 - readers as f64 * 8e3 / (LINE_MBIT as f64 * 1e6);
    }
    let round_trips = it.dialogue.as_secs_f64() / RTT.as_secs_f64();
    let mib = it.memory.bytes() >> 20;
    println!(
        "{readers:5} {kind:?} readers, {arrival:?}, {opener:?} opens: share {share:.2}, dialogue {round_trips:.2} round trips, {mib} MiB"
    );
    assert!(
        share >= 0.8,
        "{kind:?} {arrival:?} {opener:?} {readers}: {it:?}"
    );
    assert!(round_trips <= 2.0, "{kind:?} {opener:?} {readers}: {it:?}");
    assert!(mib <= 1024, "{kind:?} {opener:?} {readers}: {it:?}");
}

#[test]
fn stalled_readers_leave_a_healthy_transfer_its_share() {
    for opener in [Opener::Sender, Opener::Receiver] {
        let healthy = HealthyTransfer::measure(opener, HEALTHY);
        for (kind, readers) in [(ReaderKind::Stalled, 150), (ReaderKind::Swallowing, 150)] {
            assert_harmless(kind, StartOrder::Together, opener, readers, healthy);
        }
    }
}

#[test]
fn readers_that_stall_late_leave_a_healthy_transfer_its_share() {
    for (opener, kind) in [
        (Opener::Sender, ReaderKind::Paused(100)),
        (Opener::Receiver, ReaderKind::Paused(60)),
    ] {
        let healthy = HealthyTransfer::measure(opener, HEALTHY);
        assert_harmless(kind, StartOrder::InTurn, opener, 20, healthy);
    }
}

/// After any behaviour of a reader, bytes must arrive once the reader reads again.
#[test]
fn credit_comes_back_however_often_a_reader_stalls() {
    for seed in 1..=6 {
        let rtt = Duration::from_millis(100 * seed);
        let path = PathConfig {
            loss: 0.05,
            ..PathConfig::line(BitRate::mbit(50), rtt)
        };
        let mut world = SimWorld::new(&WorldConfig::symmetric(path, seed));
        let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20));
        let mut state = seed;
        while world.progress(id).arrived.is_none() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // From 8 kbit/s to 64 Mbit/s.
            let rate = BitRate::kbit(8 << (state >> 60).min(13));
            world.set_reading_rate(id, rate);
            world.run_for(Duration::from_millis(50 + (state >> 40) % 3000));
            let before = world.progress(id);
            world.set_reading_rate(id, BitRate::mbit(10_000));
            world.run_for(4 * rtt + Duration::from_millis(500));
            let after = world.progress(id);
            assert!(
                after.arrived.is_some() || after.delivered > before.delivered,
                "seed {seed}: nothing comes at {:?}",
                world.now()
            );
        }
    }
}

#[test]
#[ignore = "takes minutes: `cargo xtask siege stalled`"]
fn any_number_of_readers_of_any_kind_leaves_a_healthy_transfer_its_share() {
    for opener in [Opener::Sender, Opener::Receiver] {
        let healthy = HealthyTransfer::measure(opener, HEALTHY_IN_SIEGE);
        println!("alone, {opener:?} opens: {:?}", healthy.alone);
        for kind in [
            ReaderKind::Stalled,
            ReaderKind::Swallowing,
            ReaderKind::Slow,
        ] {
            for readers in [1, 5, 20, 60, 150, 500, 2000] {
                assert_harmless(kind, StartOrder::Together, opener, readers, healthy);
            }
        }
        for (kind, arrival, readers) in [
            (ReaderKind::Paused(200), StartOrder::InTurn, 1),
            (ReaderKind::Paused(1000), StartOrder::InTurn, 1),
            (ReaderKind::Paused(200), StartOrder::InTurn, 20),
            (ReaderKind::Paused(1000), StartOrder::InTurn, 20),
            (ReaderKind::Paused(2), StartOrder::InTurn, 150),
            (ReaderKind::Paused(200), StartOrder::Together, 20),
            (ReaderKind::Paused(1000), StartOrder::Together, 20),
            (ReaderKind::Paused(200), StartOrder::Together, 150),
            (ReaderKind::Paused(50), StartOrder::Together, 500),
        ] {
            assert_harmless(kind, arrival, opener, readers, healthy);
        }
    }
}
