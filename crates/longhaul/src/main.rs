//! The binary of the `longhaul` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul::run()
}
