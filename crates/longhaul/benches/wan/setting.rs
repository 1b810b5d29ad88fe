//! The environment of a trial: two sites with an emulated WAN between them, a gateway at each site,
//! a sender and a receiver.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::Context;
use bench_kit::machine::ProcessTime;
use emulator::{Direction, Site, Wan, WanConfig, WanReport};
use eval::{
    bulk::{BulkEnd, BulkSender, ByteSink},
    gateways::{GatewayPlan, Gateways},
};
use nix::sys::signal::Signal;
use serde_json::Value;
use units::ByteCount;
use wansim::PathConfig;

/// Two sites with their gateways, and a receiver. When this value is dropped, all processes end.
pub struct Setting {
    // Fields are dropped in this order, so the gateways end before their sites.
    gateways: Gateways,
    sink: ByteSink,
    listener: SocketAddr,
    wan: Wan,
}

impl Setting {
    /// Creates two sites and new gateways. `paths` are the path from A to B and the path from B to
    /// A.
    pub fn new(paths: [PathConfig; 2], seed: u64) -> anyhow::Result<Self> {
        let mut config = WanConfig {
            paths,
            seed,
            ..WanConfig::default()
        };
        for site in &mut config.sites {
            site.name = format!("bench-{}-{}", std::process::id(), site.name);
        }
        let wan = Wan::up(config)?;
        wan.prepare_tcp(TCP_BUFFER)?;
        let sink = ByteSink::start(&wan, Site::B, 6200)?;
        let [a, b] = Site::BOTH.map(|site| wan.address(site));
        let listener = SocketAddr::from((a, 6201));
        let target = sink.address();
        let plan = GatewayPlan {
            listen_a: SocketAddr::from((a, 4810)),
            listen_b: SocketAddr::from((b, 4810)),
            endpoint_b: SocketAddr::from((b, 4810)),
            listeners: format!("[[forward]]\nlisten = \"{listener}\"\ntarget = \"{target}\"\n"),
            far_sections: String::new(),
            allow: vec![target.to_string()],
            serves: Vec::new(),
            admin: ADMIN,
            knows_mover: false,
        };
        let gateways = Gateways::start(&plan, |site| Ok(wan.command(site, program())?))?;
        let mut setting = Self {
            gateways,
            sink,
            listener,
            wan,
        };
        setting.wait_for_listener()?;
        Ok(setting)
    }

    /// Ends both gateways in the same way as a service manager. Then starts new processes with the
    /// same files.
    pub fn restart_gateways(&mut self) -> anyhow::Result<()> {
        for site in Site::BOTH {
            self.gateways.stop(site, Signal::SIGTERM)?;
        }
        for site in Site::BOTH {
            let command = self.wan.command(site, program())?;
            self.gateways.launch(site, command)?;
        }
        self.wait_for_listener()
    }

    fn wait_for_listener(&mut self) -> anyhow::Result<()> {
        let Self {
            gateways,
            wan,
            listener,
            ..
        } = self;
        gateways.wait_until(|| Ok(wan.enter(Site::A, || TcpStream::connect(*listener).is_ok())?))
    }

    /// Waits until the link is connected. Then waits for the additional time [`SETTLE`].
    ///
    /// # Errors
    /// If the link is not connected after a minute.
    pub fn settle(&self) -> anyhow::Result<()> {
        for _ in 0..LINK_TRIES {
            if self.is_up()? {
                thread::sleep(SETTLE);
                return Ok(());
            }
            thread::sleep(LINK_CHECK_INTERVAL);
        }
        anyhow::bail!("the link is not up; {}", self.said())
    }

    fn is_up(&self) -> anyhow::Result<bool> {
        let admin = ADMIN.to_string();
        let mut command = self.wan.command(Site::A, program())?;
        let answer = command
            .args(["status", "--json", "--admin", &admin])
            .output()
            .context("asking the gateway")?;
        let status: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        Ok(status["peers"][0]["state"] == "up")
    }

    /// Creates a transfer through the gateways. It connects to a listener of the near gateway.
    pub fn bulk(&self, size: ByteCount, limit: Duration) -> BulkSender {
        BulkSender {
            limit,
            ..BulkSender::new(self.listener, size)
        }
    }

    /// Creates a transfer that bypasses the gateways.
    pub fn direct_bulk(&self, size: ByteCount, limit: Duration) -> BulkSender {
        BulkSender {
            limit,
            ..BulkSender::new(self.sink.address(), size)
        }
    }

    /// Runs a transfer from site A, and waits until it has ended.
    pub fn send(&self, bulk: &BulkSender) -> anyhow::Result<BulkEnd> {
        self.wan.enter(Site::A, || bulk.send())?
    }

    /// Runs a transfer of `size` bytes. Returns its duration in seconds. The duration starts with
    /// the connection and ends when the echo of the last bytes arrives.
    ///
    /// If `limit` aborts the transfer, the duration is extrapolated from the rate so far.
    ///
    /// # Errors
    /// If the transfer fails.
    pub fn transfer_s(&self, size: ByteCount, limit: Duration) -> anyhow::Result<f64> {
        let before = self.received();
        let ended = self.send(&self.bulk(size, limit))?;
        let arrived = self.received().bytes() - before.bytes();
        let share = if ended.is_complete {
            1.0
        } else {
            arrived as f64 / size.bytes() as f64
        };
        Ok(ended.elapsed.as_secs_f64() / share)
    }

    /// Starts a transfer from site A in a separate thread.
    pub fn begin(
        &self,
        bulk: BulkSender,
    ) -> anyhow::Result<thread::JoinHandle<std::io::Result<anyhow::Result<BulkEnd>>>> {
        Ok(self.wan.spawn_thread_in(Site::A, move || bulk.send())?)
    }

    /// Changes the emulated paths while traffic flows.
    pub fn set_paths(&self, [forward, backward]: [PathConfig; 2]) {
        self.wan.set(Direction::AToB, forward);
        self.wan.set(Direction::BToA, backward);
    }

    /// Selects a congestion control for the kernel's TCP at both sites. Returns false if the kernel
    /// lacks it.
    pub fn set_congestion_control(&mut self, name: &str) -> bool {
        let mut set = |site| self.wan.set_congestion_control(site, name).is_ok();
        Site::BOTH.into_iter().all(&mut set)
    }

    /// Returns the number of bytes that the receiver has received so far.
    pub fn received(&self) -> ByteCount {
        self.sink.received()
    }

    pub fn report(&self) -> WanReport {
        self.wan.report()
    }

    /// Returns the processor time of the sending and of the receiving gateway.
    pub fn cpu_time(&self) -> anyhow::Result<[ProcessTime; 2]> {
        self.gateways.cpu_time()
    }

    /// Returns the last lines of the gateways' logs. Adds the counts of packets that the emulator
    /// lost or delayed by mistake.
    pub fn said(&self) -> String {
        let loads = self.wan.report().directions.map(|way| way.load);
        format!("{}\n{loads:?}", self.gateways.last_words())
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_longhaul"))
}

/// Idle time after the connection of a new link. In this time, the last packets of the handshake
/// arrive.
pub const SETTLE: Duration = Duration::from_secs(2);

/// Size of the kernel's TCP buffers: four times the bandwidth-delay product of the bench's longest
/// path.
const TCP_BUFFER: ByteCount = ByteCount::mebibytes(512);
const LINK_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of checks within a minute. With 64 % loss in each direction, a handshake needs many
/// attempts.
const LINK_TRIES: usize = 600;
/// Admin address of both gateways. Each gateway runs in the network of its own site.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4812);
