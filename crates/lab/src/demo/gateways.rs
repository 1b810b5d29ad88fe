//! A pair of gateways, started as a user would start them: keys, two files, two processes.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use link::Identity;

use super::{server::scratch_folder, sites::Sites};
use crate::wan::Site;

/// Two running gateways; ended when dropped.
#[derive(Debug)]
pub(super) struct Gateways {
    folder: PathBuf,
    children: Vec<Child>,
    front_door: SocketAddr,
}

impl Gateways {
    /// Writes keys and configuration and starts both. `server` is what the front door leads to.
    pub(super) fn start(program: &Path, sites: &Sites, server: SocketAddr) -> anyhow::Result<Self> {
        let folder = scratch_folder("gateways")?;
        let front_door = sites.front_door()?;
        let mut gateways = Self {
            folder,
            children: Vec::new(),
            front_door,
        };
        let keys = [Identity::generate(), Identity::generate()];
        let (listen_b, endpoint_b) = sites.gateway_b();
        for (index, key) in keys.iter().enumerate() {
            key.write_new(&gateways.folder.join(format!("{}.key", NAMES[index])))?;
        }
        let (key_a, key_b) = (keys[0].public_key(), keys[1].public_key());
        let any = if listen_b.ip().is_loopback() {
            "127.0.0.1:0"
        } else {
            "0.0.0.0:4810"
        };
        gateways.write(
            0,
            &format!(
                "[identity]\nkey_file = \"site-a.key\"\n\n[link]\nlisten = \"{any}\"\n\n\
                 [[peer]]\nname = \"site-b\"\npublic_key = \"{key_b}\"\n\
                 endpoint = \"{endpoint_b}\"\n\n[[ftp]]\nlisten = \"{front_door}\"\n\
                 target = \"{server}\"\nmode = \"strict\"\n\n{ADMIN}"
            ),
        )?;
        gateways.write(
            1,
            &format!(
                "[identity]\nkey_file = \"site-b.key\"\n\n[link]\nlisten = \"{listen_b}\"\n\n\
                 [[peer]]\nname = \"site-a\"\npublic_key = \"{key_a}\"\n\n\
                 [far]\nallow = [\"{server}\"]\n\n{ADMIN}"
            ),
        )?;
        for (index, site) in [Site::B, Site::A].into_iter().enumerate() {
            gateways.spawn(sites.command(site, program)?, 1 - index)?;
        }
        gateways.wait_until_ready(sites)?;
        Ok(gateways)
    }

    /// Where clients connect.
    pub(super) fn front_door(&self) -> SocketAddr {
        self.front_door
    }

    /// The last lines of both logs, for error messages.
    pub(super) fn last_words(&self) -> String {
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

    fn wait_until_ready(&mut self, sites: &Sites) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let address = self.front_door;
        while Instant::now() < deadline {
            for child in &mut self.children {
                let status = child.try_wait()?;
                ensure!(
                    status.is_none(),
                    "a gateway has ended; {}",
                    self.last_words()
                );
            }
            let connected = sites.run_client(move || std::net::TcpStream::connect(address))?;
            if connected.is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!(
            "the gateways are not ready after 10 s; {}",
            self.last_words()
        )
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

const NAMES: [&str; 2] = ["site-a", "site-b"];
/// Any free port: nobody asks.
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";
