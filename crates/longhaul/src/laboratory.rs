//! The part of the program that proves the gateways and that production leaves out: an FTP server, an
//! emulator with captures, plots. The cargo feature `laboratory` puts it in.

use std::path::PathBuf;

/// Reads the name of a file for a plot or a page: a production build draws none.
pub(crate) fn drawn_file(text: &str) -> Result<PathBuf, String> {
    if cfg!(feature = "laboratory") {
        Ok(text.into())
    } else {
        Err(format!("this build draws no plots; {CURE}"))
    }
}

/// How to get what a production build has not.
const CURE: &str = "install the package longhaul-lab, or build with `cargo build --release`";

#[cfg(not(feature = "laboratory"))]
mod absent {
    use std::{ffi::OsString, process::ExitCode};

    /// Subcommands of the laboratory, as a production build knows them: by name.
    #[derive(clap::Subcommand)]
    pub(crate) enum Absent {
        /// Compare plain FTP and Longhaul over an emulated WAN (package longhaul-lab)
        #[command(disable_help_flag = true)]
        Demo(Anything),
        /// Join two network namespaces by an emulated WAN (package longhaul-lab)
        #[command(disable_help_flag = true)]
        Wan(Anything),
        /// Run an evaluation plan (package longhaul-lab)
        #[command(disable_help_flag = true)]
        Eval(Anything),
    }

    #[derive(clap::Args)]
    pub(crate) struct Anything {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        _arguments: Vec<OsString>,
    }

    impl Absent {
        /// Says what to install.
        pub(crate) fn explain(&self) -> ExitCode {
            let name = match self {
                Self::Demo(_) => "demo",
                Self::Wan(_) => "wan",
                Self::Eval(_) => "eval",
            };
            eprintln!("longhaul: this build has no `{name}`; {}", super::CURE);
            ExitCode::from(2)
        }
    }
}

#[cfg(not(feature = "laboratory"))]
pub(crate) use absent::Absent;
