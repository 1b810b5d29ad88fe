#![no_main]
fuzz_targets::target!(fuzz_targets::mover_http);
