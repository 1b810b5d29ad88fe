#![no_main]
fuzz_targets::target!(fuzz_targets::ftp_sessions);
