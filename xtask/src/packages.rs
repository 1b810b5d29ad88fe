//! Debian packages with programs that tests call.

use std::{env, process::Command};

use anyhow::Result;
use nix::unistd::geteuid;

use crate::{Failure, shell::succeeds};

/// A program, and the Debian package that contains it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    program: &'static str,
    package: &'static str,
}

const fn need(program: &'static str, package: &'static str) -> Need {
    Need { program, package }
}

/// Programs that `cargo xtask test` needs, including the C compiler for the cryptography library.
pub(crate) const TEST: &[Need] = &[
    need("cc", "gcc"),
    need("bash", "bash"),
    need("git", "git"),
    need("chrt", "util-linux"),
    need("setpriv", "util-linux"),
    need("unshare", "util-linux"),
    need("nft", "nftables"),
    need("ip", "iproute2"),
    need("chromium", "chromium"),
    need("openssl", "openssl"),
    need("nats-server", "nats-server"),
    need("vsftpd", "vsftpd"),
    need("ssh", "openssh-client"),
    need("sshd", "openssh-server"),
    need("rsync", "rsync"),
    need("lftp", "lftp"),
    need("sshfs", "sshfs"),
];

/// Programs that `cargo xtask eval` needs: the compared movers, and a browser that opens the
/// report.
pub(crate) const EVAL: &[Need] = &[
    need("cc", "gcc"),
    need("chromium", "chromium"),
    need("iperf3", "iperf3"),
    need("lftp", "lftp"),
    need("uftp", "uftp"),
    need("atftp", "atftp"),
    need("atftpd", "atftpd"),
    need("vsftpd", "vsftpd"),
    need("rclone", "rclone"),
    need("aria2c", "aria2"),
    need("wget", "wget"),
    need("curl", "curl"),
    need("sftp", "openssh-client"),
    need("sshd", "openssh-server"),
    need("rsync", "rsync"),
];

/// Programs that the tests in `conformance/` and the measuring scripts in `benches/` need.
pub(crate) const CONFORMANCE: &[Need] = &[
    need("python3", "python3"),
    need("py.test-3", "python3-pytest"),
    need("pip3", "python3-pip"),
    need("ip", "iproute2"),
    need("nft", "nftables"),
    need("vsftpd", "vsftpd"),
    need("curl", "curl"),
    need("iperf3", "iperf3"),
    need("lftp", "lftp"),
    need("rsync", "rsync"),
    need("rclone", "rclone"),
    need("ssh", "openssh-client"),
    need("sshd", "openssh-server"),
    need("sshfs", "sshfs"),
    need("fusermount3", "fuse3"),
    need("psftp", "putty-tools"),
    need("dropbear", "dropbear-bin"),
    need("git", "git"),
    need("zstd", "zstd"),
    need("nc.openbsd", "netcat-openbsd"),
    need("mkfs.ext4", "e2fsprogs"),
    need("wget", "wget"),
    need("ncftpput", "ncftp"),
    need("gftp-text", "gftp-text"),
    need("tnftp", "tnftp"),
    need("inetutils-ftp", "inetutils-ftp"),
    need("filezilla", "filezilla"),
    need("Xvfb", "xvfb"),
    need("xdotool", "xdotool"),
    need("import", "imagemagick"),
    need("openssl", "openssl"),
    need("systemctl", "systemd"),
    need("nsenter", "util-linux"),
    need("nats-server", "nats-server"),
    need("prometheus", "prometheus"),
    need("promtool", "prometheus"),
    need("chromium", "chromium"),
    need("faketime", "faketime"),
    need("debootstrap", "debootstrap"),
    need("dpkg-deb", "dpkg"),
    need("lintian", "lintian"),
];

/// Compilers that the fuzz targets need.
pub(crate) const FUZZ: &[Need] = &[need("cc", "gcc"), need("c++", "g++")];

/// Programs that the bench of instructions needs.
pub(crate) const INSTRUCTIONS: &[Need] = &[need("cc", "gcc"), need("valgrind", "valgrind")];

/// Ensures that the needed programs are installed. Installs missing programs if the user is root.
/// Otherwise prints the command that installs them.
pub(crate) fn provide(needs: &[Need]) -> Result<Result<(), Failure>> {
    let mut packages = missing(needs);
    if packages.is_empty() {
        return Ok(Ok(()));
    }
    packages.dedup();
    if !geteuid().is_root() {
        eprintln!(
            "missing packages; as root: apt-get install --yes {}",
            packages.join(" ")
        );
        return Ok(Err(Failure::Missing));
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        succeeds(&mut command)
    };
    let install = [
        &["install", "--yes", "--no-install-recommends"],
        &packages[..],
    ]
    .concat();
    // A new machine has no package lists, and an old machine has outdated lists.
    let installed = apt(&["update"])? && apt(&install)?;
    let left = missing(needs);
    if !installed || !left.is_empty() {
        eprintln!("could not be installed: {}", left.join(" "));
        return Ok(Err(Failure::Missing));
    }
    Ok(Ok(()))
}

/// Prints the needed packages, and the packages that are not installed yet.
pub(crate) fn announce(needs: &[Need]) {
    let mut packages: Vec<_> = needs.iter().map(|need| need.package).collect();
    packages.dedup();
    println!("needs the Debian packages {}", packages.join(", "));
    let mut absent = missing(needs);
    absent.dedup();
    match absent.as_slice() {
        [] => println!("all are installed"),
        absent if geteuid().is_root() => println!("will install {}", absent.join(", ")),
        absent => println!("missing: {}", absent.join(", ")),
    }
}

fn missing(needs: &[Need]) -> Vec<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Daemons are in folders that the PATH of an ordinary user may lack.
    let folders: Vec<_> = env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let absent = |need: &&Need| !folders.iter().any(|f| f.join(need.program).exists());
    needs
        .iter()
        .filter(absent)
        .map(|need| need.package)
        .collect()
}
