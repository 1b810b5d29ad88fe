#![no_main]
fuzz_targets::target!(fuzz_targets::gateway_invites);
