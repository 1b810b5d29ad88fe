//! Options that select the NATS server and the pool of a fleet's jobs.

use std::{env, os::unix::ffi::OsStringExt, path::PathBuf};

use anyhow::Context as _;
use fleet::queue::{NatsServer, PoolQueue, QueueError};
use mover::credentials::Credentials;
use nix::unistd::gethostname;

use crate::exit;

/// Flags of all subcommands of `longhaul jobs`.
#[derive(clap::Args)]
pub(super) struct PoolArgs {
    /// URL of the NATS server: nats://[USER@]HOST[:PORT] or tls://; for a cluster, several URLs
    /// with commas
    #[arg(
        long,
        env = "LONGHAUL_NATS",
        default_value = "nats://127.0.0.1:4222",
        value_name = "URL"
    )]
    nats: String,
    /// Read the password or token for NATS from the first line of this file
    #[arg(long, value_name = "FILE")]
    nats_password_file: Option<PathBuf>,
    /// Trust the certificate authorities in this file for NATS, in addition to the system's
    /// authorities
    #[arg(long, value_name = "PEM")]
    nats_ca: Option<PathBuf>,
    /// Use the pool with this name; workers process only the jobs of their pool
    #[arg(long, default_value = "default", value_name = "NAME")]
    pool: String,
}

/// Flags of subcommands that make a pool.
#[derive(Clone, Copy, clap::Args)]
pub(super) struct ReplicaArgs {
    /// Keep this number of copies of the queue on the servers of a NATS cluster. The option has an
    /// effect only when the first job or worker creates the pool
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    nats_replicas: u8,
}

impl PoolArgs {
    /// Connects to an existing pool. Returns an error if the pool does not exist.
    pub(super) async fn open(&self) -> anyhow::Result<PoolQueue> {
        self.connect(None).await
    }

    /// Connects to a pool. If the pool does not exist, creates it with this number of replicas.
    pub(super) async fn open_or_make(&self, replicas: ReplicaArgs) -> anyhow::Result<PoolQueue> {
        self.connect(Some(usize::from(replicas.nats_replicas)))
            .await
    }

    async fn connect(&self, replicas: Option<usize>) -> anyhow::Result<PoolQueue> {
        let server = NatsServer {
            url: self.nats.clone(),
            password: self.password()?,
            authorities: self.nats_ca.clone(),
            name: format!("longhaul {}", process_name()),
        };
        server.check().map_err(exit::wrong_use)?;
        match PoolQueue::open(&server, &self.pool, replicas).await {
            Err(error @ QueueError::Pool(_)) => Err(exit::wrong_use(error)),
            opened => Ok(opened?),
        }
    }

    fn password(&self) -> anyhow::Result<Option<String>> {
        let password = if let Some(file) = &self.nats_password_file {
            let mut read = Credentials::default();
            read.read_password(file).map_err(exit::wrong_use)?;
            read.password.map(|it| it.0)
        } else {
            env::var_os("LONGHAUL_NATS_PASSWORD").map(OsStringExt::into_vec)
        };
        let password = password.map(String::from_utf8).transpose();
        password.context("the password for NATS is no UTF-8")
    }
}

/// Returns a name that identifies this process: the host name and the process ID.
pub(super) fn process_name() -> String {
    let host = gethostname().unwrap_or_default();
    let host = host.to_string_lossy().into_owned();
    let host = host.split('.').next().unwrap_or_default();
    format!("{host}-{}", std::process::id())
}
