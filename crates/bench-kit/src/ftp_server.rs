//! An FTP server that runs inside the calling program.

use std::{future::Future, net::SocketAddr, path::PathBuf};

use anyhow::Context;
use libunftp::{ServerBuilder, options::ActivePassiveMode};
use unftp_sbe_fs::Filesystem;

/// Serves the files of `folder` at `address` until `stop` resolves. The server runs in the network
/// namespace of the calling thread.
pub fn serve(
    folder: PathBuf,
    address: SocketAddr,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let server = ServerBuilder::new(Box::new(move || {
        Filesystem::new(folder.clone()).expect("the folder exists while it is served")
    }))
    .greeting("Longhaul demonstration")
    .passive_ports(30_000..=49_999)
    .active_passive_mode(ActivePassiveMode::ActiveAndPassive)
    .build()
    .context("the embedded FTP server")?;
    runtime.block_on(async {
        tokio::select! {
            ended = server.listen(address.to_string()) => ended.context("the embedded FTP server"),
            () = stop => Ok(()),
        }
    })
}
