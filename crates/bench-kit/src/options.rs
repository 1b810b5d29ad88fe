//! The options of benches, read by clap.
//!
//! Each bench derives `clap::Parser` for a struct with its options, and names itself by `bin_name`, so that
//! its help begins with the command that people type.

use clap::Parser;

/// Reads the options of this program. Prints the help and exits with 0 where it is asked for; prints what is
/// wrong and exits with 2 where the arguments are.
pub fn read<T: Parser>() -> T {
    T::parse_from(program().chain(given()))
}

/// The arguments that were given to this program, without the `--bench` that cargo passes to every bench.
pub fn given() -> impl Iterator<Item = String> {
    std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
}

fn program() -> impl Iterator<Item = String> {
    std::env::args().take(1)
}
