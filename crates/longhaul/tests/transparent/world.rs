//! A client, a router with the near gateway, and the site of the server with the far one.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    ftp::{self, Client},
    machine::{Machine, path},
};

/// Addresses of the client, the server, and the router towards the WAN.
pub(crate) const CLIENT: [&str; 2] = ["10.99.0.2", "fd99::2"];
pub(crate) const SERVER: [&str; 2] = ["10.99.2.5", "fd99:2::5"];
/// The table of the near gateway's door, and the mark of its packets.
pub(crate) const TABLE: &str = "longhaul_2125";
pub(crate) const MARK: &str = "0x4c48084d";
/// What the server has to give: more than one packet.
pub(crate) const CONTENT: &[u8] = &[b'7'; 300_000];

pub(crate) struct World {
    pub(crate) client: Machine,
    pub(crate) router: Machine,
    pub(crate) site: Machine,
    folder: PathBuf,
    gateways: [Option<Child>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Near,
    Far,
}

impl World {
    /// Everything but the gateways.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("longhaul-transparent-{}-{number}", process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
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
            // An address that the kernel still tries cannot be bound.
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
            folder,
            gateways: [None, None],
        };
        world.configure();
        // The first packets of IPv6 wait for addresses that are being tried.
        for family in 0..2 {
            let (_, accelerated) = world.connect(family).expect("the network works");
            assert!(!accelerated);
        }
        world
    }

    /// With both gateways up, and interception at work.
    pub(crate) fn up() -> Self {
        let mut world = Self::new();
        world.start(Side::Far);
        world.start(Side::Near);
        world.wait_for_interception();
        world
    }

    fn configure(&self) {
        let key = |name: &str| {
            let output = Command::new(PROGRAM)
                .arg("keygen")
                .arg(self.folder.join(name))
                .output();
            String::from_utf8(output.expect("run").stdout).expect("a key")
        };
        let (near, far) = (key("near.key"), key("far.key"));
        let near_text = format!(
            "[identity]\nkey_file = \"near.key\"\n[[peer]]\nname = \"far\"\npublic_key = \"{}\"\n\
             endpoint = \"10.99.1.2:4810\"\nserves = [\"10.99.2.0/24\", \"fd99:2::/64\"]\n\
             [[ftp]]\nlisten = \"[::]:2125\"\ntransparent = true\n\
             clients = [\"10.99.0.0/24\", \"fd99::/64\"]\n",
            far.trim()
        );
        let far_text = format!(
            "[identity]\nkey_file = \"far.key\"\n[[peer]]\nname = \"near\"\npublic_key = \"{}\"\n\
             [far]\nallow = [\"10.99.2.0/24:21\", \"[fd99:2::/64]:21\"]\n",
            near.trim()
        );
        fs::write(self.folder.join("near.toml"), near_text).expect("write");
        fs::write(self.folder.join("far.toml"), far_text).expect("write");
    }

    fn machine(&self, side: Side) -> &Machine {
        match side {
            Side::Near => &self.router,
            Side::Far => &self.site,
        }
    }

    /// The command `longhaul gateway` with the configuration of a side.
    pub(crate) fn gateway(&self, side: Side) -> Command {
        let file = match side {
            Side::Near => "near.toml",
            Side::Far => "far.toml",
        };
        let mut command = self.machine(side).command(PROGRAM);
        command
            .args(["gateway", "--config"])
            .arg(self.folder.join(file));
        command
    }

    pub(crate) fn start(&mut self, side: Side) {
        let child = self
            .gateway(side)
            .env("RUST_LOG", "warn")
            .spawn()
            .expect("the program");
        self.gateways[side as usize] = Some(child);
        self.wait("a gateway that is up", || self.status(side).is_some());
    }

    pub(crate) fn signal(&self, side: Side, signal: Signal) {
        let child = self.gateways[side as usize].as_ref().expect("it runs");
        kill(Pid::from_raw(child.id() as i32), signal).expect("it runs");
    }

    /// Ends a gateway by a signal and waits for its end.
    pub(crate) fn stop(&mut self, side: Side, signal: Signal) {
        self.signal(side, signal);
        let mut child = self.gateways[side as usize].take().expect("it runs");
        child.wait().expect("it ends");
    }

    pub(crate) fn status(&self, side: Side) -> Option<serde_json::Value> {
        let output = self
            .machine(side)
            .command(PROGRAM)
            .args(["status", "--json"])
            .output()
            .expect("the program");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// A new connection to the server, and whether it came by the gateways.
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
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the near gateway has in the kernel: tables of nftables, and rules of both families.
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

impl Drop for World {
    fn drop(&mut self) {
        for child in self.gateways.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether a program can be run; the tests need those of two packages.
pub(crate) fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.env("PATH", path()).arg("-V");
    command.stdout(Stdio::null()).status().is_ok()
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");
const PATIENCE: Duration = Duration::from_secs(15);
