//! Fuzz targets for parsers of bytes from outside. `cargo xtask fuzz` runs the targets with the
//! fuzzing engine, and the tests run the targets without the engine.
//!
//! Each module is one target. `run` accepts arbitrary bytes, and panics if it detects a fault.
//! `seeds` returns first inputs for the fuzzer, made by the code that creates such messages in
//! production. Targets with a sequence of events read the bytes as a [`Tape`] of instructions.
#![allow(
    clippy::disallowed_methods,
    reason = "any origin of time does: only differences count"
)]

mod ftp_answers;
pub mod ftp_lines;
pub mod ftp_listings;
pub mod ftp_sessions;
pub mod gateway_invites;
pub mod gateway_register;
pub mod gateway_wire;
pub mod link_datagrams;
pub mod link_frames;
pub mod link_pair;
pub mod mover_http;
pub mod mover_sftp;
pub mod optimiser_frames;
pub mod optimiser_pair;
pub mod optimiser_segments;
pub mod sftp_far;
pub mod sftp_near;
pub mod ssh_wire;
mod tape;

pub use tape::Tape;

/// Defines the main function of a fuzz target. If `$FUZZ_WRITE_SEEDS` names a folder, the function
/// writes the seeds into the folder and exits. Otherwise the function runs the inputs of the
/// fuzzing engine.
#[macro_export]
macro_rules! target {
    ($module:path) => {
        use $module as target;
        libfuzzer_sys::fuzz_target!(
            init: $crate::write_seeds_if_asked(&target::seeds),
            |data: &[u8]| target::run(data)
        );
    };
}

/// Writes the seeds and exits if `$FUZZ_WRITE_SEEDS` is set. The macro [`target!`] calls this
/// function.
pub fn write_seeds_if_asked(seeds: &dyn Fn() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os("FUZZ_WRITE_SEEDS") else {
        return;
    };
    for (number, seed) in seeds().iter().enumerate() {
        let path = std::path::Path::new(&folder).join(format!("seed-{number:03}"));
        std::fs::write(path, seed).expect("the folder can be written");
    }
    std::process::exit(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every seed, and then `count` variations of the seeds. The variations are the same on
    /// every machine.
    fn exercise(seeds: &[Vec<u8>], count: usize, run: fn(&[u8])) {
        assert!(!seeds.is_empty(), "there is something to start from");
        for seed in seeds {
            run(seed);
        }
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below.max(1)
        };
        for round in 0..count {
            let mut input = seeds[round % seeds.len()].clone();
            for _ in 0..=random(4) {
                let at = random(input.len());
                match random(5) {
                    0 if !input.is_empty() => input[at] ^= 1 << random(8),
                    1 if !input.is_empty() => input[at] = random(256) as u8,
                    2 => input.truncate(at),
                    3 => input.insert(at, random(256) as u8),
                    _ => {
                        let other = &seeds[random(seeds.len())];
                        input.extend_from_slice(&other[random(other.len())..]);
                    }
                }
            }
            run(&input);
        }
    }

    #[test]
    fn seeds_reach_what_they_are_meant_to() {
        assert_eq!(
            link_pair::play(&link_pair::seeds()[0]),
            1,
            "a stream arrives"
        );
        assert_eq!(
            link_pair::play(&link_pair::seeds()[1]),
            1,
            "in spite of everything"
        );
        for seed in &link_pair::seeds()[6..8] {
            let arrived = link_pair::play(seed);
            assert_eq!(arrived, 1, "also with a peer of the previous release");
        }
        for seed in &ftp_sessions::seeds()[..2] {
            assert_eq!(ftp_sessions::play(seed), 1, "a transfer succeeds");
        }
        for seed in &ftp_answers::seeds() {
            assert!(ftp_answers::play(seed) >= 14, "all is answered");
        }
    }

    #[test]
    fn seeds_of_sftp_sessions_reach_answers_and_read_ahead() {
        let answers: Vec<_> = sftp_near::seeds()
            .iter()
            .map(|seed| sftp_near::play(seed))
            .collect();
        assert_eq!(answers[..4], [6, 4, 5, 3], "each request has its answer");
        let ahead_bytes = sftp_far::play(&sftp_far::seeds()[0]);
        assert!(ahead_bytes > 500_000, "{ahead_bytes} bytes are read ahead");
    }

    #[test]
    fn variations_of_clients_of_sftp_are_answered_or_refused() {
        exercise(&sftp_near::seeds(), 20_000, sftp_near::run);
    }

    #[test]
    fn variations_of_servers_of_sftp_are_relayed_or_refused() {
        exercise(&sftp_far::seeds(), 5_000, sftp_far::run);
    }

    #[test]
    fn variations_of_ssh_messages_are_read_or_refused() {
        let seeds = ssh_wire::seeds();
        let messages: Vec<_> = seeds.iter().map(|seed| ssh_wire::play(seed)).collect();
        assert_eq!(messages, [8, 7, 10, 1, 0]);
        assert!(ssh::fuzzing::has_client_gcm(&ssh::fuzzing::greeting()));
        exercise(&seeds, 20_000, ssh_wire::run);
    }

    #[test]
    fn variations_of_frames_are_decoded_or_refused() {
        exercise(&link_frames::seeds(), 20_000, link_frames::run);
    }

    #[test]
    fn variations_of_datagrams_leave_an_endpoint_standing() {
        exercise(&link_datagrams::seeds(), 500, link_datagrams::run);
    }

    #[test]
    fn variations_of_a_connection_end_well() {
        exercise(&link_pair::seeds(), 300, link_pair::run);
    }

    #[test]
    fn variations_of_ftp_lines_are_read_or_refused() {
        exercise(&ftp_lines::seeds(), 20_000, ftp_lines::run);
    }

    #[test]
    fn variations_of_listings_are_entries_or_counted() {
        exercise(&ftp_listings::seeds(), 20_000, ftp_listings::run);
    }

    #[test]
    fn variations_of_answers_of_web_servers_are_read_or_refused() {
        exercise(&mover_http::seeds(), 1_000, mover_http::run);
    }

    #[test]
    fn variations_of_answers_of_sftp_servers_are_read_or_refused() {
        assert_eq!(mover_sftp::play(&mover_sftp::seeds()[0]), 3);
        exercise(&mover_sftp::seeds(), 20_000, mover_sftp::run);
    }

    #[test]
    fn variations_of_ftp_sessions_keep_their_promises() {
        exercise(
            &[ftp_answers::seeds(), ftp_sessions::seeds()].concat(),
            10_000,
            ftp_sessions::run,
        );
    }

    #[test]
    fn variations_of_gateway_messages_are_read_or_refused() {
        exercise(&gateway_wire::seeds(), 20_000, gateway_wire::run);
    }

    #[test]
    fn variations_of_invites_are_read_or_refused() {
        exercise(&gateway_invites::seeds(), 20_000, gateway_invites::run);
    }

    #[test]
    fn variations_of_registers_are_read_or_refused_and_keep_removed_peers_out() {
        exercise(&gateway_register::seeds(), 5_000, gateway_register::run);
    }

    #[test]
    fn seeds_of_streams_reach_references_lists_and_compression() {
        let played: Vec<_> = optimiser_pair::seeds()
            .iter()
            .map(|seed| optimiser_pair::play(seed))
            .collect();
        let saved = played[0].saved_bytes;
        assert!(saved > 50_000, "words shrink by {saved}");
        assert!(played[2].references > 1, "chunks are known");
        assert!(played[4].lists > 0, "lists are known");
        assert!(played[5].references > 0, "some chunks are forgotten");
    }

    #[test]
    fn variations_of_coded_streams_are_decoded_or_refused() {
        exercise(&optimiser_frames::seeds(), 300, optimiser_frames::run);
    }

    #[test]
    fn variations_of_streams_arrive_as_they_were() {
        exercise(&optimiser_pair::seeds(), 200, optimiser_pair::run);
    }

    #[test]
    fn variations_of_segments_are_read_without_harm() {
        exercise(&optimiser_segments::seeds(), 2_000, optimiser_segments::run);
    }
}
