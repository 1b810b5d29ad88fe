//! The FTP server at site B: the embedded server, or vsftpd.
//!
//! Cells that need fixed buffers or a full command set use vsftpd. Cells that compare movers by FTP
//! also use vsftpd, as a common server.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::sync::oneshot;
use units::ByteCount;

use super::{
    cell::{CellWork, FileProtocol, ServerBuffers, WorkKind},
    installed,
};
use bench_kit::ftp_server;
use emulator::{Site, Wan};

/// A running server. Drop ends the server.
#[derive(Debug)]
pub(super) enum RunningServer {
    Embedded {
        stop: Option<oneshot::Sender<()>>,
        thread: Option<JoinHandle<std::io::Result<anyhow::Result<()>>>>,
    },
    Vsftpd {
        child: Child,
        config: PathBuf,
    },
}

/// Returns the reason why this machine cannot run the cell, or `None` if this machine can run the
/// cell.
pub(super) fn missing(work: &CellWork) -> Option<String> {
    let needed = needs_vsftpd(work) && installed::find("vsftpd").is_none();
    needed.then(|| "vsftpd is not installed".to_owned())
}

/// Returns whether a cell needs vsftpd. The embedded server has no fixed buffers, and lacks
/// commands of the session script. Movers are measured with a widely used server.
fn needs_vsftpd(work: &CellWork) -> bool {
    let compares_movers = work.threads.is_some() && work.protocol == FileProtocol::Ftp;
    work.job == WorkKind::Sessions || work.server.is_some() || compares_movers
}

impl RunningServer {
    /// Starts a server for `folder`, and waits until it accepts connections.
    pub(super) fn start(
        wan: &Wan,
        folder: &Path,
        address: SocketAddr,
        work: &CellWork,
    ) -> anyhow::Result<Self> {
        // If vsftpd is missing, the cell's records are marked as not tried.
        let mut server = if needs_vsftpd(work) && missing(work).is_none() {
            Self::vsftpd(wan, folder, address, work.server)?
        } else {
            Self::embedded(wan, folder.to_owned(), address)?
        };
        let deadline = Instant::now() + TIMEOUT;
        while wan.enter(Site::B, || TcpStream::connect(address))?.is_err() {
            if server.has_ended() || Instant::now() > deadline {
                bail!("the FTP server does not answer at {address}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn embedded(wan: &Wan, folder: PathBuf, address: SocketAddr) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let work = move || ftp_server::serve(folder, address, stopped);
        Ok(Self::Embedded {
            stop: Some(stop),
            thread: Some(wan.spawn_thread_in(Site::B, work)?),
        })
    }

    fn vsftpd(
        wan: &Wan,
        folder: &Path,
        address: SocketAddr,
        buffers: Option<ServerBuffers>,
    ) -> anyhow::Result<Self> {
        let mut block = String::new();
        if let Some(buffers) = buffers {
            wan.fix_tcp_buffers(Site::B, ByteCount::new(buffers.socket_bytes))?;
            block = format!("trans_chunk_size={}\n", buffers.block_bytes);
        }
        let config = folder.with_extension("conf");
        let text = format!(
            "{VSFTPD}listen_address={}\nlisten_port={}\nanon_root={}\nrun_as_launching_user=YES\n\
             xferlog_enable=NO\n{block}",
            address.ip(),
            address.port(),
            folder.display(),
        );
        fs::write(&config, text).with_context(|| config.display().to_string())?;
        let program = installed::find("vsftpd").context("vsftpd is not installed")?;
        let mut command = wan.command(Site::B, program)?;
        command.arg(&config).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("vsftpd")?;
        Ok(Self::Vsftpd { child, config })
    }

    fn has_ended(&mut self) -> bool {
        match self {
            Self::Embedded { thread, .. } => thread.as_ref().is_none_or(JoinHandle::is_finished),
            Self::Vsftpd { child, .. } => !matches!(child.try_wait(), Ok(None)),
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // Either server may have ended by itself.
        match self {
            Self::Embedded { stop, thread } => {
                if let Some(stop) = stop.take() {
                    let _ = stop.send(());
                }
                if let Some(thread) = thread.take() {
                    let _ = thread.join();
                }
            }
            Self::Vsftpd { child, config } => {
                let _ = child.kill();
                let _ = child.wait();
                let _ = fs::remove_file(config);
            }
        }
    }
}

/// Settings of vsftpd. The conformance tests use the same file.
const VSFTPD: &str = include_str!("vsftpd.conf");

const TIMEOUT: Duration = Duration::from_secs(10);
