//! Instructions of a packet, at the sender and at the receiver, counted by Callgrind.
//!
//! A count does not depend on other work of the machine, so it can be guarded. A run fails when a
//! count exceeds its bound, which is 5 % above the count at the time when the bound was set. `cargo
//! xtask bench instructions` provides Valgrind and gungraun's runner, and prints the counts by
//! packet. The counted code is the turns of [`SteadyTransfer`]: everything except the kernel.
//!
//! Valgrind supports AVX2 and nothing newer. On a newer processor, encryption takes fewer
//! instructions than counted here.
#![allow(missing_docs, reason = "gungraun's macros make public items")]

use gungraun::{
    Callgrind, EntryPoint, EventKind, LibraryBenchmarkConfig, library_benchmark,
    library_benchmark_group, main,
};
use link::sim::SteadyTransfer;

/// Packets sent in each benchmark.
const PACKETS: u64 = 10_000;

fn nothing() -> u64 {
    0
}

/// Returns a transfer in its steady state that loses `per_mille` of a thousand packets.
fn losing(per_mille: u64) -> SteadyTransfer {
    SteadyTransfer::new(per_mille, nothing)
}

/// Counts the instructions of all calls of one function. `bound` is the most that a packet may
/// take.
fn counting(function: &str, bound: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::with_args(["--cache-sim=no"]);
    callgrind
        .entry_point(EntryPoint::Custom(format!("*::{function}*")))
        .hard_limits([(EventKind::Ir, bound * PACKETS)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark(config = counting("sender_turn", 8_200))]
#[bench::clean(args = (0), setup = losing)]
#[bench::losing_one_percent(args = (10), setup = losing)]
fn sender(mut steady: SteadyTransfer) -> SteadyTransfer {
    steady.run(PACKETS);
    steady
}

#[library_benchmark(config = counting("receiver_turn", 8_300))]
#[bench::clean(args = (0), setup = losing)]
#[bench::losing_one_percent(args = (10), setup = losing)]
fn receiver(mut steady: SteadyTransfer) -> SteadyTransfer {
    steady.run(PACKETS);
    steady
}

library_benchmark_group!(name = packets, benchmarks = [sender, receiver]);
main!(library_benchmark_groups = packets);
