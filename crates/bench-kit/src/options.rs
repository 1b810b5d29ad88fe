//! Options of benches, parsed by clap.
//!
//! Each bench derives `clap::Parser` for a struct with its options. The attribute `bin_name`
//! contains the command that users type. The usage line of the help shows this command.

use clap::Parser;

/// Parses the options of this program. If the user requests help, prints the help and exits with 0.
/// If the arguments are wrong, prints the error and exits with 2.
pub fn read<T: Parser>() -> T {
    T::parse_from(program().chain(given()))
}

/// Returns the arguments of this program, without the `--bench` that cargo passes to every bench.
pub fn given() -> impl Iterator<Item = String> {
    std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
}

fn program() -> impl Iterator<Item = String> {
    std::env::args().take(1)
}
