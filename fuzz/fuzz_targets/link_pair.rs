#![no_main]
fuzz_targets::target!(fuzz_targets::link_pair);
