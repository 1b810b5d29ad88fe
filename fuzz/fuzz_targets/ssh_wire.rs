//! Entry point of the fuzz target. The target itself is the module of the same name in the crate
//! `fuzz_targets`.

#![no_main]
fuzz_targets::target!(fuzz_targets::ssh_wire);
