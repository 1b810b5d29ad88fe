//! Transfer of bytes over one stream of the link, with the link's driver.

use std::{net::UdpSocket, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use link::{Identity, Link, LinkConfig, PeerConfig, PeerId, Policy, StreamClass};
use units::ByteCount;

use crate::{MoverTask, UsageMeter, say_listening};

pub fn send(job: &MoverTask) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let link = start(job, 0)?;
        let (mut send, _recv) = link.open(PeerId(0), StreamClass::Bulk).await?;
        let block = Bytes::from_static(&BLOCK);
        let write = async |send: &mut link::SendStream, size: ByteCount| {
            let mut left = size.bytes() as usize;
            while left > 0 {
                let step = left.min(block.len());
                send.write(block.slice(..step)).await?;
                left -= step;
            }
            anyhow::Ok(())
        };
        write(&mut send, job.warm_up).await?;
        let meter = UsageMeter::start()?;
        write(&mut send, job.size).await?;
        send.finish();
        send.closed().await?;
        meter.end(job.size.bytes())
    })
}

pub fn receive(job: &MoverTask) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let link = start(job, 1)?;
        say_listening();
        let mut incoming = link.accept().await.context("no stream came")?;
        let mut warm_up = job.warm_up.bytes() as usize;
        while warm_up > 0 {
            let data = incoming.recv.read().await?.context("it ended early")?;
            warm_up = warm_up.saturating_sub(data.len());
        }
        let meter = UsageMeter::start()?;
        while incoming.recv.read().await?.is_some() {}
        meter.end(job.size.bytes())?;
        // The sender waits for the acknowledgement that all bytes were read.
        incoming.send.finish();
        link.shutdown(Duration::from_secs(2)).await;
        Ok(())
    })
}

/// Starts the link of one site. The link of the first site connects to the second site.
fn start(job: &MoverTask, side: usize) -> anyhow::Result<Link> {
    let key = |side: usize| Identity::from_seed([1 + side as u8; 32]);
    let other = 1 - side;
    let config = LinkConfig {
        identity: key(side),
        peers: vec![PeerConfig {
            name: format!("site-{other}"),
            public_keys: vec![key(other).public_key()],
            endpoint: (side == 0).then(|| job.addresses[other].to_string()),
            rate_max: None,
            is_guest: false,
        }],
        policy: Policy::Fair,
        rate_max: Some(job.rate),
        memory_max: ByteCount::gibibytes(1),
        idle_timeout: Duration::from_secs(30),
        memory_file: None,
    };
    Ok(Link::start(UdpSocket::bind(job.addresses[side])?, config)?)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_all().build()?)
}

/// Bytes that a gateway reads from a socket with one call.
static BLOCK: [u8; 64 * 1024] = [7; 64 * 1024];
