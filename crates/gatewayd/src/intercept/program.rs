//! Execution of the programs that change the kernel's configuration: `nft` of nftables and `ip` of
//! iproute2.

use std::{
    env,
    ffi::OsStr,
    io::{self, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
};

/// Error: interception could not be installed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterceptError {
    /// A program is not installed.
    #[error(
        "transparent = true needs the program {program}: install the package {package} (Debian's name)"
    )]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// The Debian package that has the program.
        package: &'static str,
    },
    /// The user lacks the capability `CAP_NET_ADMIN`.
    #[error("transparent = true needs CAP_NET_ADMIN: {program} reports {message:?}")]
    Forbidden {
        /// Name of the program.
        program: &'static str,
        /// The error message of the program.
        message: String,
    },
    /// The kernel lacks a feature that interception needs.
    #[error(
        "the kernel lacks what transparent = true needs (CONFIG_NFT_TPROXY, CONFIG_NFT_SOCKET, \
         CONFIG_NFT_FIB_INET, CONFIG_IP_MULTIPLE_TABLES): {program} reports {message:?}"
    )]
    Unsupported {
        /// Name of the program.
        program: &'static str,
        /// The error message of the program.
        message: String,
    },
    /// A program failed with any other message.
    #[error("{program} failed: {message:?}")]
    Failed {
        /// Name of the program.
        program: &'static str,
        /// The error message of the program.
        message: String,
    },
    /// A program could not be started.
    #[error("{program} cannot be run")]
    Run {
        /// Name of the program.
        program: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A gateway still runs. It would install the removed rules again.
    #[error("a gateway listens on {0}: stop it, and it removes its interception itself")]
    Running(std::net::SocketAddr),
}

/// Passes a script to `nft`, which executes all of the script or nothing.
pub(super) fn nft(script: &str) -> Result<(), InterceptError> {
    run("nft", "nftables", &["-f", "-"], script).map(drop)
}

/// Runs `ip` for IPv4 or IPv6.
pub(super) fn ip(ipv4: bool, arguments: &str) -> Result<(), InterceptError> {
    ip_output(ipv4, arguments).map(drop)
}

/// Runs `ip` for IPv4 or IPv6, and returns its output.
pub(super) fn ip_output(ipv4: bool, arguments: &str) -> Result<String, InterceptError> {
    let family = if ipv4 { "-4" } else { "-6" };
    let arguments: Vec<_> = [family]
        .into_iter()
        .chain(arguments.split_whitespace())
        .collect();
    run("ip", "iproute2", &arguments, "")
}

fn run(
    program: &'static str,
    package: &'static str,
    arguments: &[&str],
    input: &str,
) -> Result<String, InterceptError> {
    let path = env::var_os("PATH");
    let found = find(program, path.as_deref());
    let found = found.ok_or(InterceptError::Missing { program, package })?;
    let failed = |source| InterceptError::Run { program, source };
    let mut child = Command::new(found)
        .args(arguments)
        // The code compares the program's messages, so they must be in English.
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading has found a mistake, and reports it.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.lines().next().unwrap_or("nothing").to_owned();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    Err(if says(&["not permitted", "Permission denied"]) {
        InterceptError::Forbidden { program, message }
    } else if says(&["not supported", "No such file or directory"]) {
        InterceptError::Unsupported { program, message }
    } else {
        InterceptError::Failed { program, message }
    })
}

/// Returns the path of a program. Also searches the folders of system programs, which the PATH of a
/// user may lack.
fn find(program: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    env::split_paths(path.unwrap_or_default())
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
