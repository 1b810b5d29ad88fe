//! Options of benches, parsed by clap.
//!
//! Each bench derives `clap::Parser` for a struct with its options. The attribute `bin_name` names
//! the command that people type, and the help begins with it.

use clap::Parser;

/// Parses the options of this program. Prints the help and exits with 0 on request. Prints the
/// error and exits with 2 if the arguments are wrong.
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
