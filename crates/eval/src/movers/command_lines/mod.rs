//! Command lines of movers. Each program fetches the files of a cell from a server with a number of
//! threads.
//!
//! All other options of a program keep their defaults.

mod ftp;
mod sftp;

use std::{net::SocketAddr, path::Path};

use crate::side::Side;

pub(super) use sftp::SftpAccess;

/// Files to fetch, and their destination.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchOrder<'a> {
    /// Address of the server.
    pub(super) server: SocketAddr,
    /// Server folder that contains the files.
    pub(super) folder: &'a str,
    /// Names of all files in the folder, at least one.
    pub(super) names: &'a [String],
    /// Local destination folder, which is empty at first.
    pub(super) into: &'a Path,
    /// Maximum number of files that move concurrently. For a single file, the value is the number
    /// of connections, if the program supports several.
    pub(super) threads: u32,
}

/// Returns the name of the program that runs as `side`. Returns `None` for `longhaul`, and for
/// sides that are not movers.
pub(super) const fn program(side: Side) -> Option<&'static str> {
    match side {
        Side::Lftp | Side::LftpGateway => Some("lftp"),
        Side::Rclone | Side::RcloneGateway => Some("rclone"),
        Side::Sftp | Side::SftpGateway => Some("sftp"),
        Side::Rsync | Side::RsyncGateway => Some("rsync"),
        Side::Aria2 => Some("aria2c"),
        Side::Wget => Some("wget"),
        Side::Curl => Some("curl"),
        _ => None,
    }
}

impl FetchOrder<'_> {
    /// Returns the name of the only file. Returns `None` if there are several files.
    fn single(&self) -> Option<&str> {
        match self.names {
            [name] => Some(name),
            _ => None,
        }
    }

    /// Returns the path of the only file at the server, or of the folder if there are several
    /// files.
    fn path(&self) -> String {
        match self.single() {
            Some(name) => format!("{}/{name}", self.folder),
            None => self.folder.to_owned(),
        }
    }

    /// Returns the command with which lftp fetches the files after it has opened the server.
    fn lftp_work(&self) -> String {
        let (folder, into, threads) = (self.folder, self.into.display(), self.threads);
        match self.single() {
            Some(name) => format!("pget -n {threads} {folder}/{name} -o {into}/{name}"),
            None => format!("mirror --parallel={threads} {folder} {into}"),
        }
    }
}

fn texts<const N: usize>(all: [&str; N]) -> Vec<String> {
    all.map(str::to_owned).into()
}

/// Settings of lftp. lftp must not allocate space in advance, because the evaluation counts stored
/// bytes as arrived.
const LFTP_SETTINGS: &str = "set pget:save-status never; set file:use-fallocate no";
