//! Laboratory: the commands that test the gateways, and that production builds leave out.
//!
//! They contain an FTP server, an emulator with captures, and plots. The cargo feature `laboratory`
//! includes them.

use std::path::PathBuf;

/// Reads the name of a file for a plot or a page. A production build refuses it, since it draws
/// none.
pub(crate) fn drawn_file(text: &str) -> Result<PathBuf, String> {
    if cfg!(feature = "laboratory") {
        Ok(text.into())
    } else {
        Err(format!("this build draws no plots; {CURE}"))
    }
}

/// Returns a production build's error for a missing command.
#[cfg(any(test, not(feature = "laboratory")))]
fn refusal(command: &str) -> String {
    format!("this build has no `{command}`; {CURE}")
}

/// Way to obtain the parts that a production build lacks.
const CURE: &str = "install the package longhaul-lab, or build with `cargo build --release`";

#[cfg(not(feature = "laboratory"))]
mod missing_command {
    use std::{env, ffi::OsString, os::unix::process::CommandExt as _, process::Command};

    use anyhow::Context as _;

    use crate::exit::misuse;

    /// Subcommands of the laboratory. A production build has only their names.
    #[derive(clap::Subcommand)]
    pub(crate) enum MissingCommand {
        /// Compare plain FTP with Longhaul over an emulated WAN (package longhaul-lab)
        #[command(disable_help_flag = true)]
        Demo(RawArgs),
        /// Join two network namespaces by an emulated WAN (package longhaul-lab)
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
        /// Executes the laboratory's own program, which is installed beside this one. Returns the
        /// error, mostly that it is not installed, with exit code 2.
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

    /// Program of the package longhaul-lab.
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
