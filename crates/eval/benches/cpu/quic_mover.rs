//! Transfer of bytes with a QUIC library, on four streams of one connection.
//!
//! The library uses the same cipher, packet size and socket buffers as the link. The windows of the
//! library exceed the bandwidth-delay product of the path.

use std::{
    any::Any,
    cell::{Cell, OnceCell},
    net::UdpSocket,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use aws_lc_rs::signature::Ed25519KeyPair;
use nix::sys::socket::{setsockopt, sockopt};
use quinn::{
    Endpoint, EndpointConfig, SendStream, TokioRuntime, TransportConfig, VarInt,
    congestion::{Controller, ControllerFactory},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, aws_lc_rs as rustls_aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

use units::ByteCount;

use crate::{DATAGRAM_BYTES, MoverTask, UsageMeter, say_listening};

pub fn send(job: &MoverTask) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let mut roots = RootCertStore::empty();
        roots.add(certificate()?.0)?;
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"bench".to_vec()];
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(transport(job));
        let endpoint = endpoint(job, 0, None)?;
        let connection = endpoint
            .connect_with(config, job.addresses[1], NAME)?
            .await?;
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(connection.open_uni().await?);
        }
        write(job, job.warm_up, &mut streams).await?;
        let meter = UsageMeter::start()?;
        write(job, job.size, &mut streams).await?;
        for stream in &mut streams {
            stream.finish()?;
        }
        for stream in &mut streams {
            stream.stopped().await?;
        }
        meter.end(job.size.bytes())?;
        connection.close(VarInt::from_u32(0), b"");
        endpoint.wait_idle().await;
        Ok(())
    })
}

pub fn receive(job: &MoverTask) -> anyhow::Result<()> {
    tokio::task::LocalSet::new().block_on(&runtime()?, async {
        let (certificate, key) = certificate()?;
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        tls.alpn_protocols = vec![b"bench".to_vec()];
        let crypto = QuicServerConfig::try_from(tls)?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport(job));
        let endpoint = endpoint(job, 1, Some(config))?;
        say_listening();
        let connection = endpoint.accept().await.context("nobody came")?.await?;
        let mut readers = Vec::new();
        let warm_up = job.warm_up.bytes();
        let (total, meter) = (Rc::new(Cell::new(0)), Rc::new(OnceCell::new()));
        for _ in 0..STREAMS {
            let mut stream = connection.accept_uni().await?;
            let (total, meter) = (total.clone(), meter.clone());
            readers.push(tokio::task::spawn_local(async move {
                while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
                    if total.get() >= warm_up && meter.get().is_none() {
                        let _ = meter.set(UsageMeter::start()?);
                    }
                    total.set(total.get() + chunk.bytes.len() as u64);
                }
                anyhow::Ok(())
            }));
        }
        for reader in readers {
            reader.await??;
        }
        meter.get().context("nothing came")?.end(job.size.bytes())?;
        connection.closed().await;
        Ok(())
    })
}

/// Writes `size` bytes to the streams in turn, as fast as the rate allows.
async fn write(job: &MoverTask, size: ByteCount, streams: &mut [SendStream]) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut sent = 0;
    while sent < size.bytes() {
        if job.rate.bytes_in(began.elapsed()).bytes() < sent {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let step = (size.bytes() - sent).min(BLOCK.len() as u64);
        let turn = (sent / BLOCK.len() as u64) as usize % STREAMS;
        streams[turn].write_all(&BLOCK[..step as usize]).await?;
        sent += step;
    }
    Ok(())
}

fn endpoint(
    job: &MoverTask,
    side: usize,
    config: Option<quinn::ServerConfig>,
) -> anyhow::Result<Endpoint> {
    let socket = UdpSocket::bind(job.addresses[side])?;
    // For ordinary users, the kernel limits the buffer to the system's maximum.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES);
    let _ = setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES);
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(
        EndpointConfig::default(),
        config,
        socket,
        runtime,
    )?)
}

fn transport(job: &MoverTask) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(DATAGRAM_BYTES as u16)
        .min_mtu(DATAGRAM_BYTES as u16)
        .mtu_discovery_config(None)
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(STREAMS as u32 * WINDOW_BYTES))
        .send_window(STREAMS as u64 * u64::from(WINDOW_BYTES));
    if job.rtt > Duration::ZERO {
        // With the library's own controllers, random loss would make the transfer slow. The bench
        // measures the cost of fast transfers.
        transport.congestion_controller_factory(Arc::new(FixedWindow {
            window_bytes: job.rate.bytes_in(job.rtt).bytes(),
        }));
    }
    Arc::new(transport)
}

/// A congestion controller that ignores loss. Its window is the bandwidth-delay product at the
/// configured rate, and the library paces the packets.
#[derive(Debug, Clone)]
struct FixedWindow {
    window_bytes: u64,
}

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Self::clone(&self))
    }
}

impl Controller for FixedWindow {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        self.window_bytes
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window_bytes
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Returns a crypto provider with only the cipher that the link uses on processors with AES.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![rustls_aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..rustls_aws_lc_rs::default_provider()
    })
}

/// Returns the same certificate and key at both sites. The key is therefore no secret.
fn certificate() -> anyhow::Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32])?.to_pkcs8v1()?;
    let key = PrivatePkcs8KeyDer::from(key.as_ref().to_vec());
    let pair = rcgen::KeyPair::try_from(&key)?;
    let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&pair)?;
    Ok((certificate.into(), key.into()))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_all().build()?)
}

const STREAMS: usize = 4;
const NAME: &str = "bench";
const WINDOW_BYTES: u32 = 16 << 20;
const BUFFER_BYTES: usize = 4 << 20;
static BLOCK: [u8; 64 * 1024] = [7; 64 * 1024];
