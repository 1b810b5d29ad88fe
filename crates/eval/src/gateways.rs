//! A pair of gateways, started as a user would start them: keys, two files, two processes.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use link::Identity;

use bench_kit::{machine::ProcessTime, scratch};
use emulator::Site;

/// Two running gateways; ended when dropped.
#[derive(Debug)]
pub struct Gateways {
    folder: PathBuf,
    /// In the order of the sites.
    children: Vec<Child>,
}

/// How a pair is set up.
#[derive(Debug, Clone)]
pub struct GatewayPlan {
    /// Where gateway A's link listens.
    pub listen_a: SocketAddr,
    /// Where gateway B's link listens.
    pub listen_b: SocketAddr,
    /// Where gateway A finds gateway B.
    pub endpoint_b: SocketAddr,
    /// Further sections of gateway A's file: its doors.
    pub doors: String,
    /// What gateway B may dial.
    pub allow: Vec<SocketAddr>,
}

impl Gateways {
    /// Writes keys and configuration and starts both. `command` makes the command that runs the
    /// `longhaul` program at a site.
    ///
    /// # Errors
    /// If a file cannot be written or a process not started.
    pub fn start(
        plan: &GatewayPlan,
        command: impl Fn(Site) -> anyhow::Result<Command>,
    ) -> anyhow::Result<Self> {
        let folder = scratch::folder("gateways")?;
        let mut gateways = Self {
            folder,
            children: Vec::new(),
        };
        let keys = [Identity::generate(), Identity::generate()];
        for (index, key) in keys.iter().enumerate() {
            key.write_new(&gateways.folder.join(format!("{}.key", NAMES[index])))?;
        }
        let GatewayPlan {
            listen_a,
            listen_b,
            endpoint_b,
            doors,
            allow,
        } = plan;
        let (key_a, key_b) = (keys[0].public_key(), keys[1].public_key());
        let allow: Vec<_> = allow.iter().map(|target| format!("\"{target}\"")).collect();
        gateways.write(
            0,
            &format!(
                "[identity]\nkey_file = \"site-a.key\"\n\n[link]\nlisten = \"{listen_a}\"\n\n\
                 [[peer]]\nname = \"site-b\"\npublic_key = \"{key_b}\"\n\
                 endpoint = \"{endpoint_b}\"\n\n{doors}\n{ADMIN}"
            ),
        )?;
        gateways.write(
            1,
            &format!(
                "[identity]\nkey_file = \"site-b.key\"\n\n[link]\nlisten = \"{listen_b}\"\n\n\
                 [[peer]]\nname = \"site-a\"\npublic_key = \"{key_a}\"\n\n\
                 [far]\nallow = [{}]\n\n{ADMIN}",
                allow.join(", ")
            ),
        )?;
        for (index, site) in Site::BOTH.into_iter().enumerate() {
            gateways.spawn(command(site)?, index)?;
        }
        Ok(gateways)
    }

    /// Waits until `is_ready`, 10 s at most.
    ///
    /// # Errors
    /// If a gateway ends, or the time is over; the message has what the gateways said.
    pub fn wait_until(
        &mut self,
        mut is_ready: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            for child in &mut self.children {
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
            thread::sleep(Duration::from_millis(50));
        }
        bail!(
            "the gateways are not ready after 10 s; {}",
            self.last_words()
        )
    }

    /// Processor time that each gateway has used, its link's thread counted apart, in the order of the
    /// sites.
    ///
    /// # Errors
    /// If a gateway is gone.
    pub fn cpu_time(&self) -> anyhow::Result<[ProcessTime; 2]> {
        let of = |child: &Child| ProcessTime::of(child.id(), LINK_THREAD);
        Ok([of(&self.children[0])?, of(&self.children[1])?])
    }

    /// The last lines of both logs, for error messages.
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

    fn write(&self, index: usize, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(format!("{}.toml", NAMES[index]));
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    fn spawn(&mut self, mut command: Command, index: usize) -> anyhow::Result<()> {
        let name = NAMES[index];
        let log = fs::File::create(self.folder.join(format!("{name}.log")))?;
        let child = command
            .arg("gateway")
            .arg("--config")
            .arg(self.folder.join(format!("{name}.toml")))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting gateway {name}"))?;
        self.children.push(child);
        Ok(())
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The driver of a gateway's link.
const LINK_THREAD: &str = "longhaul-link";
const NAMES: [&str; 2] = ["site-a", "site-b"];
/// Any free port: nobody asks.
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";
