//! Movers as users run them: one program fetches all files of a cell from the server.
//!
//! The measured time extends from the start of the program to its exit. It includes connections,
//! log-ins and listings.

use std::{env, fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context;
use bench_kit::scratch;
use emulator::Site;
use units::ByteCount;

use super::{
    TrialFailure, TrialResult,
    arrived::{compare, stored_below},
    command_lines::{self, FetchOrder, SftpAccess},
    process::{at, run_limited},
};
use crate::{
    cell::{Cell, FileProtocol, TrialDirection},
    sftp_server::{ACCOUNT, SftpServer},
    side::Side,
    stage::{self, MOVER_FOLDER, Stage},
};

/// Fetches the server's folder of files with the mover `side`.
pub(super) fn fetch(
    side: Side,
    stage: &Stage,
    cell: &Cell,
    limit: Duration,
) -> Result<TrialResult, TrialFailure> {
    let work = cell.work;
    let place = MoverFolder::new()?;
    let names = (0..work.files).map(|number| stage::name(TrialDirection::Down, number));
    let names: Vec<String> = names.collect();
    let order = FetchOrder {
        server: server_address(side, stage, work.protocol)?,
        folder: &match work.protocol {
            FileProtocol::Ftp => MOVER_FOLDER.to_owned(),
            FileProtocol::Sftp => stage.server_file(MOVER_FOLDER).display().to_string(),
        },
        names: &names,
        into: &place.destination(),
        threads: work.threads.context("a mover without threads")?,
    };
    let arguments = match work.protocol {
        FileProtocol::Ftp => {
            let route = route_arguments(side, stage, stage.mover_listener);
            order.ftp_arguments(side, &route)
        }
        FileProtocol::Sftp => {
            let server = sftp_server(stage)?;
            let access = SftpAccess {
                user: ACCOUNT,
                key: &server.key(),
                known_hosts: &server.known_hosts(),
            };
            let route = route_arguments(side, stage, server.listener);
            order.sftp_arguments(side, &access, &route)
        }
    };
    let mut command = match command_lines::program(side) {
        Some(program) => at(stage, Site::A, program)?,
        None => stage.longhaul(Site::A)?,
    };
    command.args(arguments);
    // In this environment, the mover reads neither this machine's settings nor files of an earlier
    // trial.
    command.env_clear().env("HOME", place.home());
    command.env("PATH", env::var_os("PATH").unwrap_or_default());
    let ended = run_limited(command, limit)?;
    if !ended.is_over {
        let stored = stored_below(&place.destination());
        return Ok(TrialResult::cut_off(
            stored.min(work.bytes().bytes()),
            ended.time,
        ));
    }
    if let Err(error) = ended.succeeded() {
        let is_behind_gateways = side.uses_gateways() || side == Side::MoverPeer;
        let error = match is_behind_gateways {
            true => error.context(stage.last_words()),
            false => error,
        };
        return Err(error.into());
    }
    let expected = stage.content.hash(ByteCount::new(work.size_bytes));
    for name in &names {
        compare(&place.destination().join(name), expected)?;
    }
    Ok(TrialResult::complete(cell, ended.time))
}

/// Returns the address to which a mover connects. If the mover names the server to its gateway,
/// returns the address of the server.
fn server_address(side: Side, stage: &Stage, protocol: FileProtocol) -> anyhow::Result<SocketAddr> {
    Ok(match (protocol, side) {
        (FileProtocol::Ftp, _) => stage.server_address,
        (FileProtocol::Sftp, Side::MoverGateway) => sftp_server(stage)?.address,
        (FileProtocol::Sftp, side) if side.uses_gateways() => sftp_server(stage)?.listener,
        (FileProtocol::Sftp, _) => sftp_server(stage)?.address,
    })
}

fn sftp_server(stage: &Stage) -> anyhow::Result<&SftpServer> {
    stage.sftp_server().context("a cell without an SFTP server")
}

/// Returns the arguments with which `longhaul copy` reaches the server. `listener` is the near
/// gateway's listener for the protocol of the server.
fn route_arguments(side: Side, stage: &Stage, listener: SocketAddr) -> Vec<String> {
    match side {
        Side::MoverGateway => vec!["--gateway".to_owned(), listener.to_string()],
        Side::MoverPeer => {
            let (peer, key) = stage.far_gateway();
            let key = key.display().to_string();
            vec!["--peer".to_owned(), peer, "--key".to_owned(), key]
        }
        _ => Vec::new(),
    }
}

/// Temporary folder for one run of a mover. Drop removes the folder.
struct MoverFolder(PathBuf);

impl MoverFolder {
    fn new() -> anyhow::Result<Self> {
        let place = Self(scratch::folder_in_memory("mover")?);
        for folder in [place.home(), place.destination()] {
            fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        }
        Ok(place)
    }

    /// Returns the mover's home folder, for its settings and state.
    fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// Returns the destination folder of the files.
    fn destination(&self) -> PathBuf {
        self.0.join("arrived")
    }
}

impl Drop for MoverFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
