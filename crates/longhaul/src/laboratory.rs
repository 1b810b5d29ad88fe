//! Commands that test and demonstrate gateways. A production build does not contain these commands.
//!
//! The commands contain an FTP server, an emulator that captures packets, and plots. The cargo
//! feature `laboratory` includes them.

use std::path::PathBuf;

/// Parses the file name for a plot or a page. A production build returns an error, because it
/// cannot draw plots.
pub(crate) fn drawn_file(text: &str) -> Result<PathBuf, String> {
    if cfg!(feature = "laboratory") {
        Ok(text.into())
    } else {
        Err(format!("this build draws no plots; {CURE}"))
    }
}

/// Returns the error text for a command that a production build does not contain.
#[cfg(any(test, not(feature = "laboratory")))]
fn refusal(command: &str) -> String {
    format!("this build has no `{command}`; {CURE}")
}

/// Hint for users: how to install or build the missing commands.
const CURE: &str = "install the package longhaul-lab, or build with `cargo build --release`";

#[cfg(not(feature = "laboratory"))]
mod missing_command {
    use std::{env, ffi::OsString, os::unix::process::CommandExt as _, process::Command};

    use anyhow::Context as _;

    use crate::exit::misuse;

    /// Commands of the laboratory in a production build. Each command runs the separate program, or
    /// reports that it is missing.
    #[derive(clap::Subcommand)]
    pub(crate) enum MissingCommand {
        /// Compare plain FTP with Longhaul over an emulated WAN (package longhaul-lab)
        #[command(disable_help_flag = true)]
        Demo(RawArgs),
        /// Connect two network namespaces by an emulated WAN (package longhaul-lab)
        #[command(disable_help_flag = true)]
        Wan(RawArgs),
        /// Run an evaluation plan (package longhaul-lab)
        #[command(disable_help_flag = true)]
        Eval(RawArgs),
    }

    #[derive(clap::Args)]
    pub(crate) struct RawArgs {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<OsString>,
    }

    impl MissingCommand {
        /// Replaces this process with the program `longhaul-lab` from the same folder. If the
        /// program cannot be started, returns the error with exit code 2. The usual reason is that
        /// the package is not installed.
        pub(crate) fn call(&self) -> anyhow::Error {
            let (name, RawArgs { arguments }) = match self {
                Self::Demo(rest) => ("demo", rest),
                Self::Wan(rest) => ("wan", rest),
                Self::Eval(rest) => ("eval", rest),
            };
            let beside = env::current_exe().map(|own| own.with_file_name(PROGRAM));
            match beside {
                Ok(program) if program.exists() => {
                    // Logging options before the command belong to this program.
                    let failed = Command::new(&program).arg(name).args(arguments).exec();
                    Err::<(), _>(failed)
                        .with_context(|| format!("{} cannot be run", program.display()))
                        .expect_err("it has failed")
                }
                _ => misuse(super::refusal(name)),
            }
        }
    }

    /// Name of the program in the package longhaul-lab.
    const PROGRAM: &str = "longhaul-lab";
}

#[cfg(not(feature = "laboratory"))]
pub(crate) use missing_command::MissingCommand;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_production_build_says_where_the_rest_is() {
        let text = refusal("wan");
        assert!(
            text.contains("no `wan`") && text.contains("package longhaul-lab"),
            "{text}"
        );
        let file = drawn_file("plot.svg");
        assert_eq!(file.is_ok(), cfg!(feature = "laboratory"), "{file:?}");
    }
}
