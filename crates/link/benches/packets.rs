//! Number of instructions per packet at the sender and at the receiver, counted by Callgrind.
//!
//! The count does not depend on other processes of the machine, so the bench can enforce a limit. A
//! run fails if a count exceeds its limit. Each limit is 5 % above the count that was measured when
//! the limit was set.
//!
//! `cargo xtask bench instructions` provides Valgrind and gungraun's runner, and prints the counts
//! per packet. The count covers each turn of [`SteadyTransfer`]: all code except the kernel's code.
//!
//! Valgrind supports no instructions newer than AVX2. On a newer processor, encryption needs fewer
//! instructions than counted here.
#![allow(missing_docs, reason = "gungraun's macros make public items")]

use gungraun::{
    Callgrind, EntryPoint, EventKind, LibraryBenchmarkConfig, library_benchmark,
    library_benchmark_group, main,
};
use link::sim::SteadyTransfer;

/// Number of packets sent in each benchmark.
const PACKETS: u64 = 10_000;

fn nothing() -> u64 {
    0
}

/// Returns a transfer in its steady state. The path loses `per_mille` of a thousand packets.
fn losing(per_mille: u64) -> SteadyTransfer {
    SteadyTransfer::new(per_mille, nothing)
}

/// Returns a configuration that counts the instructions in all calls of one function. `bound` is
/// the maximum number of instructions per packet.
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
