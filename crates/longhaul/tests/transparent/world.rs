//! Three machines: a client, a router with the near gateway, and the server's site with the far
//! gateway.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use emulator::Site;
use eval::gateways::{GatewayPlan, Gateways};
use nix::sys::signal::Signal;

use crate::{
    ftp::{self, Client},
    machine::{Machine, path},
};

/// IPv4 and IPv6 address of the client. The next constants are the addresses of the server and of
/// the router's WAN interface.
pub(crate) const CLIENT: [&str; 2] = ["10.99.0.2", "fd99::2"];
pub(crate) const SERVER: [&str; 2] = ["10.99.2.5", "fd99:2::5"];
/// Name of the nftables table of the near gateway's listener. The next constant is the mark of the
/// listener's packets.
pub(crate) const TABLE: &str = "longhaul_2125";
pub(crate) const MARK: &str = "0x4c48084d";
/// Content of the server's file. It is larger than one packet.
pub(crate) const CONTENT: &[u8] = &[b'7'; 300_000];

pub(crate) struct World {
    pub(crate) client: Machine,
    pub(crate) router: Machine,
    pub(crate) site: Machine,
    gateways: Gateways,
}

impl World {
    /// Creates all machines, but starts no gateways.
    pub(crate) fn new() -> Self {
        let (client, router, site) = (Machine::new(), Machine::new(), Machine::new());
        Machine::join([
            (&client, "lan0", &["10.99.0.2/24", "fd99::2/64"]),
            (&router, "lan0", &["10.99.0.1/24", "fd99::1/64"]),
        ]);
        Machine::join([
            (&router, "wan0", &["10.99.1.1/24", "fd99:1::1/64"]),
            (&site, "wan0", &["10.99.1.2/24", "fd99:1::2/64"]),
        ]);
        router.forward();
        for address in SERVER {
            // An address that the kernel still checks for duplicates cannot be bound.
            let nodad = if address.contains(':') { "nodad" } else { "" };
            site.ip(&format!("address add {address} dev lo {nodad}"));
            site.start(move || ftp::serve(address, CONTENT));
        }
        client.ip("route add default via 10.99.0.1");
        client.ip("-6 route add default via fd99::1");
        router.ip("route add 10.99.2.0/24 via 10.99.1.2");
        router.ip("-6 route add fd99:2::/64 via fd99:1::2");
        site.ip("route add default via 10.99.1.1");
        site.ip("-6 route add default via fd99:1::1");
        let world = Self {
            client,
            router,
            site,
            gateways: Gateways::prepare(&plan()).expect("a temporary folder"),
        };
        // The first IPv6 packets wait for addresses that are still being checked.
        for family in 0..2 {
            let (_, accelerated) = world.connect(family).expect("the network works");
            assert!(!accelerated);
        }
        world
    }

    /// Creates all machines and starts both gateways. Returns when interception is active.
    pub(crate) fn up() -> Self {
        let mut world = Self::new();
        world.start(FAR);
        world.start(NEAR);
        world.wait_for_interception();
        world
    }

    fn machine(&self, site: Site) -> &Machine {
        match site {
            NEAR => &self.router,
            FAR => &self.site,
        }
    }

    /// Returns the command that runs the gateway of a site.
    pub(crate) fn gateway(&self, site: Site) -> Command {
        let mut command = self.machine(site).command(PROGRAM);
        command.args(self.gateways.arguments(site));
        command
    }

    pub(crate) fn start(&mut self, site: Site) {
        let mut command = self.machine(site).command(PROGRAM);
        command.env("RUST_LOG", "warn");
        self.gateways.launch(site, command).expect("the program");
        self.wait("a gateway that is up", || self.status(site).is_some());
    }

    pub(crate) fn signal(&self, site: Site, signal: Signal) {
        self.gateways.signal(site, signal).expect("it runs");
    }

    /// Sends a signal to a gateway, and waits until the gateway has ended.
    pub(crate) fn stop(&mut self, site: Site, signal: Signal) {
        self.gateways.stop(site, signal).expect("it runs");
    }

    pub(crate) fn status(&self, site: Site) -> Option<serde_json::Value> {
        let output = self
            .machine(site)
            .command(PROGRAM)
            .args(["status", "--json"])
            .output()
            .expect("the program");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Connects to the server. Returns the connection, and whether it passes through the gateways.
    pub(crate) fn connect(&self, family: usize) -> io::Result<(Client, bool)> {
        let server: IpAddr = SERVER[family].parse().expect("an address");
        let client = self
            .client
            .enter(|| Client::connect(SocketAddr::new(server, 21)))?;
        let is_direct = client.greeting == format!("220 client {}", CLIENT[family]);
        // The far gateway is on the server's machine.
        let is_accelerated = client.greeting == format!("220 client {}", SERVER[family]);
        assert!(is_direct || is_accelerated, "{}", client.greeting);
        Ok((client, is_accelerated))
    }

    pub(crate) fn wait_for_interception(&self) {
        self.wait("interception", || {
            self.connect(0).is_ok_and(|(_, accelerated)| accelerated)
        });
    }

    pub(crate) fn wait(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !condition() {
            assert!(Instant::now() < deadline, "no {what} within {TIMEOUT:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the number of nftables tables and the number of routing rules that the near gateway
    /// has installed.
    pub(crate) fn installed(&self) -> [usize; 2] {
        let count = |command: &str, word: &str| {
            let output = self.router.shell(command);
            output.lines().filter(|line| line.contains(word)).count()
        };
        [
            count("nft list tables", TABLE),
            count("ip rule; ip -6 rule", MARK),
        ]
    }
}

/// Returns the plan of a near gateway that intercepts the client's connections to the server's
/// network.
fn plan() -> GatewayPlan {
    let address = |text: &str| text.parse().expect("an address");
    GatewayPlan {
        listen_a: address("0.0.0.0:4810"),
        listen_b: address("0.0.0.0:4810"),
        endpoint_b: address("10.99.1.2:4810"),
        serves: ["10.99.2.0/24", "fd99:2::/64"].map(str::to_owned).into(),
        listeners: "[[ftp]]\nlisten = \"[::]:2125\"\ntransparent = true\n\
                clients = [\"10.99.0.0/24\", \"fd99::/64\"]\n"
            .to_owned(),
        far_sections: String::new(),
        allow: ["10.99.2.0/24:21", "[fd99:2::/64]:21"]
            .map(str::to_owned)
            .into(),
        admin: address("127.0.0.1:9810"),
        knows_mover: false,
    }
}

/// Site of the near gateway, which runs on the router.
pub(crate) const NEAR: Site = Site::A;
pub(crate) const FAR: Site = Site::B;

/// Whether a program is installed.
pub(crate) fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.env("PATH", path()).arg("-V");
    command.stdout(Stdio::null()).status().is_ok()
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");
const TIMEOUT: Duration = Duration::from_secs(15);
