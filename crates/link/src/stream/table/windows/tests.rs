use proptest::prelude::*;

use super::*;
use crate::stream::{
    SLOT_SIZE, StreamClass,
    memory::{FLOOR_SHARE, streams_max},
    slab::SLAB_SLOTS,
    table::tests::{bulk, opened_by_peer, streams},
};

/// Grows one window to its limit, and then opens the maximum number of streams.
#[test]
fn least_windows_fit_the_memory_beside_a_window_that_has_grown() {
    for memory_max in [16 << 20, 64 << 20, 1 << 30] {
        let mut streams = streams(memory_max);
        let receiving = (memory_max - memory_max / FLOOR_SHARE) / SLOT_SIZE as u64;
        let hole = |_: &RecvHalf| {
            Some(WindowShortage::Hole {
                highest: u64::MAX / 8,
            })
        };
        let mut numbers = vec![opened_by_peer(&mut streams, 0)];
        while streams.widen(numbers[0], hole) {}
        while streams.peer_count < streams.stream_limit() {
            let count = streams.peer_count;
            numbers.push(opened_by_peer(&mut streams, count));
        }
        let by_peer = numbers.len() as u32;
        assert!(by_peer >= streams_max(memory_max) / 8, "{by_peer}");
        numbers.extend(std::iter::from_fn(|| streams.open(StreamClass::Bulk, 0.0)));
        assert!(numbers.len() as u32 - by_peer >= streams_max(memory_max) / 24);
        for number in &numbers {
            streams.widen(*number, hole);
        }
        let windows = numbers
            .iter()
            .map(|number| streams.get(*number).expect("it is open").recv.window());
        // The window uses only a part of its first slab and of its last slab.
        let slots = windows.map(|window| window + 2 * SLAB_SLOTS).sum::<u64>();
        assert!(slots <= receiving, "{slots} of {receiving} slots");
    }
}

/// Checks that ended streams and narrowed windows both free memory for new streams.
#[test]
fn a_peer_may_open_more_streams_once_a_window_that_has_grown_is_narrow_again() {
    let mut streams = streams(1 << 30);
    let first = opened_by_peer(&mut streams, 0);
    while streams.widen(first, |_| {
        Some(WindowShortage::Hole {
            highest: u64::MAX / 8,
        })
    }) {}
    while streams.peer_count < streams.stream_limit() {
        let count = streams.peer_count;
        opened_by_peer(&mut streams, count);
    }
    let limit = streams.stream_limit();
    let (stream, pool) = streams.get_with_pool(first).expect("it is open");
    let slots = stream.recv.promised();
    stream.recv.skip(slots, pool);
    assert!(stream.recv.set_end(slots, 0, 0));
    streams.narrow(first);
    assert!(streams.stream_limit() > limit);
}

/// Peer-opened stream, with the progress of its sender and of its reader.
struct PeerStream {
    number: u32,
    arrived: u64,
}

proptest! {
    /// Opens, reads, widens, narrows, stalls and ends streams at random. The peer's credit must
    /// always fit into the memory.
    #[test]
    fn credit_fits_the_memory_whatever_streams_do(
        memory_max in prop_oneof![Just(16_u64 << 20), Just(64 << 20), Just(1 << 30)],
        steps in prop::collection::vec((0_u8..8, any::<prop::sample::Index>(), 1_u64..100_000, 0.0_f64..0.3), 1..400),
    ) {
        let mut streams = streams(memory_max);
        let receiving = (memory_max - memory_max / FLOOR_SHARE) / SLOT_SIZE as u64;
        let mut open: Vec<PeerStream> = Vec::new();
        let (mut count, mut now_s, rtt_s) = (0, 0.0, 0.1);
        for (step, index, slots, pause_s) in steps {
            now_s += pause_s;
            if open.is_empty() || step == 0 && count + 1 < streams_max(memory_max) / 6 {
                let number = opened_by_peer(&mut streams, count);
                open.push(PeerStream { number, arrived: 0 });
                count += 1;
            }
            let at = index.index(open.len());
            let it = &mut open[at];
            let (stream, pool) = streams.get_with_pool(it.number).expect("it is open");
            if step == 1 {
                (stream.send_done, stream.recv_done) = (true, true);
                streams.remove_if_done(it.number);
                open.swap_remove(at);
            } else {
                // Only the window matters in this test, so the slots need no memory.
                let allowed = stream.recv.promised().min(slots);
                it.arrived += allowed;
                stream.recv.skip(allowed, pool);
                stream.recv.measure_need(now_s, rtt_s);
                let gap = WindowShortage::Hole { highest: it.arrived };
                let widened = match step {
                    2 => streams.widen(it.number, |_| Some(gap)),
                    _ => streams.widen(it.number, |recv| recv.shortage(now_s, rtt_s)),
                };
                if !widened {
                    streams.narrow(it.number);
                }
                let stream = streams.get(it.number).expect("it is open");
                if stream.recv.credit_due(now_s) {
                    stream.recv.take_credit();
                }
                prop_assert!(stream.recv.promised() >= 16 * 7 / 8, "{}", stream.recv.promised());
            }
            let mut credit = 0;
            for it in &open {
                let recv = &streams.get(it.number).expect("it is open").recv;
                prop_assert!(recv.promised() <= recv.window());
                credit += recv.window();
            }
            prop_assert!(credit <= receiving, "{credit} of {receiving} slots");
        }
    }
}

/// Runs `paused` readers, one after the other. Each reader reads 200 MB in steps of one round trip,
/// and then stalls. Returns the window of one more stream after its reader has also read 200 MB.
fn window_after_paused(paused: u32, by_peer: bool) -> u64 {
    // 300 Mbit/s over 200 ms.
    const SLOTS_PER_ROUND_TRIP: u64 = 5180;
    let mut streams = streams(1 << 30);
    let (mut now_s, rtt_s) = (0.0, 0.2);
    let mut window = 0;
    for count in 0..=paused {
        let number = match by_peer {
            true => opened_by_peer(&mut streams, count),
            false => bulk(&mut streams),
        };
        let mut read = 0;
        while read < 138_000 {
            let (stream, pool) = streams.get_with_pool(number).expect("it is open");
            let part = stream.recv.promised().min(SLOTS_PER_ROUND_TRIP) / 8 + 1;
            // The path delivers one window per round trip, in eight steps.
            now_s += rtt_s / 8.0;
            stream.recv.skip(part, pool);
            read += part;
            stream.recv.measure_need(now_s, rtt_s);
            if !streams.widen(number, |recv| recv.shortage(now_s, rtt_s)) {
                streams.narrow(number);
            }
            let stream = streams.get(number).expect("it is open");
            if stream.recv.credit_due(now_s) {
                stream.recv.take_credit();
            }
            window = stream.recv.window();
        }
    }
    window
}

#[test]
fn readers_that_stall_late_leave_windows_that_fill_the_path() {
    for (paused, by_peer) in [(20, true), (40, true), (20, false)] {
        let window = window_after_paused(paused, by_peer);
        assert!(window >= 5180, "{window} slots beside {paused}");
    }
}

/// Hundreds of readers fill the path before they stall, and together they hold all the memory that
/// the path needs. The memory for the next reader decreases with the number of stalled readers, but
/// never runs out.
#[test]
fn hundreds_of_readers_that_stall_late_leave_more_than_the_least_window() {
    for (paused, least) in [(60, 200), (150, 32)] {
        for by_peer in [true, false] {
            let window = window_after_paused(paused, by_peer);
            assert!(window >= least, "{window} slots beside {paused}");
        }
    }
}
