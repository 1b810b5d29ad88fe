#![no_main]
fuzz_targets::target!(fuzz_targets::optimiser_pair);
