//! Fuzz target of the module of this name in `fuzz_targets`.

#![no_main]
fuzz_targets::target!(fuzz_targets::gateway_invites);
