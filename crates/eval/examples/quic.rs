//! A program that moves bytes to or from a server with a QUIC library, on one stream. The library
//! has its default settings. Evaluations compare this program with others.
//!
//! `quic serve ADDRESS:PORT CERTIFICATE` writes its certificate to a file. `quic get|put
//! ADDRESS:PORT BYTES CERTIFICATE` trusts this certificate, and exits when the receiver has all
//! bytes. The receiver prints its number of received bytes at intervals. The client prints the
//! seconds from its request to the end.
#![allow(clippy::disallowed_methods, reason = "a program over real sockets")]

use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use quinn::{
    ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig, TransportConfig,
    VarInt,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

const NAME: &str = "quic.example";

/// Text before the seconds that the whole transfer took.
const SECONDS: &str = "seconds: ";

const TELL_EVERY: Duration = Duration::from_millis(20);

/// Window of the connection and of each stream. On a long path, a smaller window could be smaller
/// than the congestion window, and would then limit the rate.
const WINDOW_BYTES: u32 = 512 << 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address, certificate] => serve(address.parse()?, certificate.as_ref()).await,
        [what @ ("get" | "put"), address, bytes, certificate] => {
            let is_get = what == "get";
            request(
                is_get,
                address.parse()?,
                bytes.parse()?,
                certificate.as_ref(),
            )
            .await
        }
        _ => bail!(
            "quic serve ADDRESS:PORT CERTIFICATE, or quic get|put ADDRESS:PORT BYTES CERTIFICATE"
        ),
    }
}

async fn serve(address: SocketAddr, certificate: &Path) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key)?;
    config.transport_config(transport());
    // The certificate must exist before the server accepts connections.
    std::fs::write(certificate, made.cert.der())?;
    let endpoint = Endpoint::server(config, address)?;
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        tokio::spawn(async move {
            if let Err(error) = answer(&connection).await {
                eprintln!("quic: {error:#}");
            }
        });
    }
    Ok(())
}

async fn answer(connection: &Connection) -> anyhow::Result<()> {
    let (mut send, mut recv) = connection.accept_bi().await?;
    let mut request = [0; 9];
    recv.read_exact(&mut request).await?;
    let bytes = u64::from_be_bytes(request[1..].try_into()?);
    if request[0] == 1 {
        give(&mut send, bytes).await?;
    } else {
        take(&mut recv, bytes).await?;
        send.write_all(b"!").await?;
        send.finish()?;
    }
    connection.closed().await;
    Ok(())
}

async fn request(
    is_get: bool,
    address: SocketAddr,
    bytes: u64,
    certificate: &Path,
) -> anyhow::Result<()> {
    let certificate = std::fs::read(certificate).context("no server has begun")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport());
    let mut endpoint = Endpoint::client((std::net::Ipv4Addr::UNSPECIFIED, 0).into())?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(address, NAME)?.await?;
    let begun = Instant::now();
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&[u8::from(is_get)]).await?;
    send.write_all(&bytes.to_be_bytes()).await?;
    if is_get {
        take(&mut recv, bytes).await?;
    } else {
        give(&mut send, bytes).await?;
        recv.read_exact(&mut [0]).await?;
    }
    println!("{SECONDS}{}", begun.elapsed().as_secs_f64());
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn give(send: &mut SendStream, bytes: u64) -> anyhow::Result<()> {
    let block = vec![7; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(block.len() as u64);
        send.write_all(&block[..count as usize]).await?;
        left -= count;
    }
    Ok(send.finish()?)
}

async fn take(recv: &mut RecvStream, bytes: u64) -> anyhow::Result<()> {
    let (mut taken, mut told) = (0, Instant::now());
    while taken < bytes {
        let chunk = recv.read_chunk(1 << 20, true).await?;
        let chunk = chunk.context("the stream ended early")?;
        taken += chunk.bytes.len() as u64;
        if told.elapsed() > TELL_EVERY {
            println!("{taken}");
            told = Instant::now();
        }
    }
    ensure!(taken == bytes, "{taken} bytes came instead of {bytes}");
    Ok(())
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into());
    Arc::new(transport)
}
