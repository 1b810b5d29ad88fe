//! A pair of gateways with two key files, two configuration files and two processes, like a user's
//! installation.
//!
//! A [`GatewayPlan`] describes both gateways. The caller provides the command for each process, and
//! so chooses the network namespace of each gateway.

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bench_kit::{machine::ProcessTime, scratch};
use emulator::Site;
use link::Identity;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Two gateways, each of which may be running or stopped. Drop ends the running gateways.
#[derive(Debug)]
pub struct Gateways {
    folder: PathBuf,
    /// Gateway processes, indexed by site. `None` for a gateway that does not run.
    children: [Option<Child>; 2],
    /// Public keys of the gateways, indexed by site.
    public_keys: [String; 2],
}

/// Settings of a pair of gateways. Gateway A is the near gateway, gateway B the far gateway.
#[derive(Debug, Clone)]
pub struct GatewayPlan {
    /// UDP address of gateway A's link.
    pub listen_a: SocketAddr,
    /// UDP address of gateway B's link.
    pub listen_b: SocketAddr,
    /// UDP address to which gateway A sends. It is `listen_b`, or the address of a relay on the
    /// path.
    pub endpoint_b: SocketAddr,
    /// Patterns of the servers that gateway B serves. An empty list means every server.
    pub serves: Vec<String>,
    /// Additional sections of gateway A's configuration, for its listeners.
    pub listeners: String,
    /// Additional sections of gateway B's configuration.
    pub far_sections: String,
    /// Servers that gateway B may connect to: addresses or patterns, with ports.
    pub allow: Vec<String>,
    /// Address of the admin interface, used by both gateways.
    pub admin: SocketAddr,
    /// Whether gateway B has another peer: a mover with an embedded near gateway. The mover's key
    /// is in [`Gateways::mover_key`].
    pub knows_mover: bool,
}

impl GatewayPlan {
    /// Returns the configuration files of gateway A and gateway B. `mover` is the public key of a
    /// mover that is a peer of gateway B.
    fn files(&self, [key_a, key_b]: &[String; 2], mover: Option<&str>) -> [String; 2] {
        let list = |items: &[String]| {
            let quoted: Vec<_> = items.iter().map(|item| format!("{item:?}")).collect();
            quoted.join(", ")
        };
        let serves = if self.serves.is_empty() {
            String::new()
        } else {
            format!("serves = [{}]\n", list(&self.serves))
        };
        let file = |name: &str, listen: SocketAddr, peer: String, rest: String| {
            format!(
                "[identity]\nkey_file = \"{name}.key\"\n\n[link]\nlisten = \"{listen}\"\n\n\
                 [[peer]]\n{peer}\n{rest}\n[admin]\nlisten = \"{}\"\n",
                self.admin
            )
        };
        let peer_of_a = format!(
            "name = \"site-b\"\npublic_key = \"{key_b}\"\nendpoint = \"{}\"\n{serves}",
            self.endpoint_b
        );
        let mut peer_of_b = format!("name = \"site-a\"\npublic_key = \"{key_a}\"\n");
        if let Some(key) = mover {
            peer_of_b += &format!("\n[[peer]]\nname = \"{MOVER}\"\npublic_key = \"{key}\"\n");
        }
        let allow = list(&self.allow);
        let far = format!("[far]\nallow = [{allow}]\n\n{}", self.far_sections);
        [
            file(NAMES[0], self.listen_a, peer_of_a, self.listeners.clone()),
            file(NAMES[1], self.listen_b, peer_of_b, far),
        ]
    }
}

impl Gateways {
    /// Writes keys and configuration files, but starts no gateway.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn prepare(plan: &GatewayPlan) -> anyhow::Result<Self> {
        let mut gateways = Self {
            folder: scratch::folder("gateways")?,
            children: [None, None],
            public_keys: [String::new(), String::new()],
        };
        for site in Site::BOTH {
            gateways.public_keys[site as usize] = gateways.make_key(NAMES[site as usize])?;
        }
        let mover = plan.knows_mover.then(|| gateways.make_key(MOVER));
        let files = plan.files(&gateways.public_keys, mover.transpose()?.as_deref());
        for (site, text) in Site::BOTH.into_iter().zip(files) {
            let path = gateways.file(site);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(gateways)
    }

    /// Writes keys and configuration files, and starts both gateways. `command` returns the command
    /// that runs the `longhaul` program at a site.
    ///
    /// # Errors
    /// If a file cannot be written or a process cannot be started.
    pub fn start(
        plan: &GatewayPlan,
        command: impl Fn(Site) -> anyhow::Result<Command>,
    ) -> anyhow::Result<Self> {
        let mut gateways = Self::prepare(plan)?;
        for site in Site::BOTH {
            gateways.launch(site, command(site)?)?;
        }
        Ok(gateways)
    }

    /// Returns the path of a gateway's configuration file.
    pub fn file(&self, site: Site) -> PathBuf {
        self.folder.join(format!("{}.toml", NAMES[site as usize]))
    }

    /// Returns the public key of a site's gateway, as text.
    pub fn public_key(&self, site: Site) -> &str {
        &self.public_keys[site as usize]
    }

    /// Returns the key file of the mover that is a peer of gateway B.
    pub fn mover_key(&self) -> PathBuf {
        self.key_file(MOVER)
    }

    fn key_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    /// Writes a new key file, and returns the public key.
    fn make_key(&self, name: &str) -> anyhow::Result<String> {
        let identity = Identity::generate();
        identity.write_new(&self.key_file(name))?;
        Ok(identity.public_key().to_string())
    }

    /// Returns the arguments with which the `longhaul` program runs a site's gateway.
    pub fn arguments(&self, site: Site) -> [OsString; 3] {
        ["gateway".into(), "--config".into(), self.file(site).into()]
    }

    /// Starts a site's gateway with `command`. The output of the gateway goes to its log file.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn launch(&mut self, site: Site, mut command: Command) -> anyhow::Result<()> {
        let name = NAMES[site as usize];
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{name}.log")))?;
        let child = command
            .args(self.arguments(site))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting gateway {name}"))?;
        self.children[site as usize] = Some(child);
        Ok(())
    }

    /// Sends a signal to a site's gateway.
    ///
    /// # Errors
    /// If the gateway is not running.
    pub fn signal(&self, site: Site, signal: Signal) -> anyhow::Result<()> {
        let child = self.children[site as usize].as_ref();
        let child =
            child.with_context(|| format!("gateway {} does not run", NAMES[site as usize]))?;
        kill(Pid::from_raw(child.id() as i32), signal).context("sending a signal")
    }

    /// Ends a site's gateway with a signal, and waits until the process has exited.
    ///
    /// # Errors
    /// If the gateway is not running.
    pub fn stop(&mut self, site: Site, signal: Signal) -> anyhow::Result<()> {
        self.signal(site, signal)?;
        if let Some(mut child) = self.children[site as usize].take() {
            child.wait()?;
        }
        Ok(())
    }

    /// Waits until `is_ready` returns true, for at most 10 s.
    ///
    /// # Errors
    /// If a gateway exits, or `is_ready` is still false after 10 s. The message quotes the logs of
    /// the gateways.
    pub fn wait_until(
        &mut self,
        mut is_ready: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while Instant::now() < deadline {
            for child in self.children.iter_mut().flatten() {
                let status = child.try_wait()?;
                ensure!(
                    status.is_none(),
                    "a gateway has ended; {}",
                    self.last_words()
                );
            }
            if is_ready()? {
                return Ok(());
            }
            thread::sleep(READY_CHECK_INTERVAL);
        }
        bail!(
            "the gateways are not ready after {} s; {}",
            READY_TIMEOUT.as_secs(),
            self.last_words()
        )
    }

    /// Returns the processor time of both gateways, indexed by site. The time of the link's thread
    /// is a separate value.
    ///
    /// # Errors
    /// If a gateway is not running.
    pub fn cpu_time(&self) -> anyhow::Result<[ProcessTime; 2]> {
        let of = |site: Site| -> anyhow::Result<ProcessTime> {
            let child = self.children[site as usize].as_ref();
            let child = child.context("the gateway does not run")?;
            ProcessTime::of(child.id(), LINK_THREAD)
        };
        Ok([of(Site::A)?, of(Site::B)?])
    }

    /// Returns the last lines of both gateways' logs, for error messages.
    pub fn last_words(&self) -> String {
        let tail = |name: &&str| {
            let log = fs::read_to_string(self.folder.join(format!("{name}.log")));
            let log = log.unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(5).collect();
            let lines: Vec<_> = lines.into_iter().rev().collect();
            format!("gateway {name} said:\n{}", lines.join("\n"))
        };
        NAMES.iter().map(tail).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Timeout for both gateways to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const READY_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Name of the thread that drives a gateway's link.
const LINK_THREAD: &str = "longhaul-link";
const NAMES: [&str; 2] = ["site-a", "site-b"];
/// Name of the mover in the list of gateway B's peers.
const MOVER: &str = "mover";
/// An admin address with port 0, for trials that do not query the admin interface. The kernel
/// chooses a free port.
pub const ADMIN_ANYWHERE: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(
    std::net::Ipv4Addr::LOCALHOST,
    0,
));
