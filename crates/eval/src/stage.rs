//! The set-up for the trials of a cell. It consists of two sites with the cell's path between them,
//! files in memory, servers at site B, and a pair of gateways.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context;
use units::ByteCount;
use wansim::PathConfig;

use super::{
    cell::{Cell, FileProtocol, TrialDirection, WorkKind},
    installed,
    server::RunningServer,
    sftp_server::{self, SSH_PORT, SftpServer},
};
use crate::gateways::{ADMIN_ANYWHERE, GatewayPlan, Gateways};
use bench_kit::{content::Content, machine::ProcessTime, scratch};
use emulator::{Site, Wan, WanConfig};
use probe::peer::ProbePeer;

/// The sites of one cell with their processes. Drop ends the processes.
#[derive(Debug)]
pub(crate) struct Stage {
    // Fields drop in this order, so the processes end before the sites.
    gateways: Gateways,
    server: Option<RunningServer>,
    /// SFTP server, in cells with this protocol.
    sftp_server: Option<SftpServer>,
    /// Server that answers transactions, in cells that measure transactions.
    _peer: Option<ProbePeer>,
    pub(crate) wan: Wan,
    pub(crate) content: Content,
    folder: PathBuf,
    program: PathBuf,
    /// Address of the FTP server at site B.
    pub(crate) server_address: SocketAddr,
    /// Address of the near gateway's listener at site A. The listener forwards to the FTP server.
    pub(crate) front_listener: SocketAddr,
    /// Address of the server for transactions at site B.
    pub(crate) peer_address: SocketAddr,
    /// Address of the near gateway's listener at site A. The listener forwards to the server for
    /// transactions.
    pub(crate) peer_listener: SocketAddr,
    /// Address of the near gateway's FTP listener for movers at site A. A mover names the server at
    /// log-in.
    pub(crate) mover_listener: SocketAddr,
}

/// Values of all counters at one time.
#[derive(Debug, Clone)]
pub(crate) struct CounterReading {
    cpu: BTreeMap<String, Duration>,
    wire_bytes: [u64; 2],
    pub(crate) delivered_bytes: [u64; 2],
    report: emulator::WanReport,
}

/// Limit of the kernel's TCP buffers. It exceeds the bandwidth-delay product of every path of a
/// plan.
const TCP_BUFFER: ByteCount = ByteCount::mebibytes(512);

const FTP_PORT: u16 = 21;
const PEER_PORT: u16 = 4811;
const LINK_PORT: u16 = 4810;
const MOVER_LISTENER_PORT: u16 = 2121;

impl Stage {
    pub(crate) fn set_up(cell: &Cell, program: &Path, seed: u64) -> anyhow::Result<Self> {
        let mut config = WanConfig {
            paths: cell.path.configs(),
            radio: cell.path.radio(),
            seed,
            ..WanConfig::default()
        };
        for site in &mut config.sites {
            site.name = format!("eval-{}-{}", std::process::id(), site.name);
        }
        let wan = Wan::up(config)?;
        wan.prepare_tcp(TCP_BUFFER)?;
        if let Some(window) = cell.work.window_bytes {
            for site in Site::BOTH {
                wan.fix_tcp_window(site, ByteCount::new(window))?;
            }
        }
        let [a, b] = Site::BOTH.map(|site| wan.address(site));
        let folder = scratch::folder_in_memory("eval")?;
        fs::create_dir(folder.join("client"))?;
        fs::create_dir(folder.join("server"))?;
        let server_address = SocketAddr::from((b, FTP_PORT));
        let server =
            RunningServer::start(&wan, &folder.join("server"), server_address, &cell.work)?;
        let with_sftp =
            cell.work.protocol == FileProtocol::Sftp && sftp_server::missing().is_none();
        let sftp_server = with_sftp
            .then(|| {
                let addresses = [a, b].map(|site| SocketAddr::from((site, SSH_PORT)));
                SftpServer::start(&wan, &folder.join("ssh"), &folder.join("server"), addresses)
            })
            .transpose()?;
        let front_listener = SocketAddr::from((a, FTP_PORT));
        let [peer_listener, peer_address] = [a, b].map(|site| SocketAddr::from((site, PEER_PORT)));
        let peer = (cell.work.job == WorkKind::Transactions)
            .then(|| wan.enter(Site::B, || ProbePeer::start(peer_address)))
            .transpose()?
            .transpose()?;
        let mover_listener = SocketAddr::from((a, MOVER_LISTENER_PORT));
        let knows_mover = cell.work.threads.is_some();
        let mut listeners = format!(
            "[[ftp]]\nlisten = \"{front_listener}\"\ntarget = \"{server_address}\"\n\n\
             [[forward]]\nlisten = \"{peer_listener}\"\ntarget = \"{peer_address}\"\n"
        );
        if knows_mover {
            listeners +=
                &format!("\n[[ftp]]\nlisten = \"{mover_listener}\"\nclients = [\"{a}/32\"]\n");
        }
        let mut allow = vec![server_address.to_string(), peer_address.to_string()];
        let mut far_sections = String::new();
        if let Some(server) = &sftp_server {
            listeners += &format!("\n{}", server.near_section());
            far_sections = server.far_section();
            allow.push(server.address.to_string());
        }
        let plan = GatewayPlan {
            listen_a: SocketAddr::from((a, LINK_PORT)),
            listen_b: SocketAddr::from((b, LINK_PORT)),
            endpoint_b: SocketAddr::from((b, LINK_PORT)),
            listeners,
            far_sections,
            allow,
            serves: Vec::new(),
            admin: ADMIN_ANYWHERE,
            knows_mover,
        };
        let gateways = Gateways::start(&plan, |site| Ok(wan.command(site, program)?))?;
        let mut stage = Self {
            gateways,
            server: Some(server),
            sftp_server,
            _peer: peer,
            wan,
            content: Content::generate(),
            folder,
            program: program.to_owned(),
            server_address,
            front_listener,
            peer_address,
            peer_listener,
            mover_listener,
        };
        stage.prepare(cell)?;
        stage.await_gateways()?;
        Ok(stage)
    }

    /// Creates the files that clients download from the server.
    fn prepare(&self, cell: &Cell) -> anyhow::Result<()> {
        let size = ByteCount::new(cell.work.size_bytes);
        if cell.work.threads.is_some() {
            self.prepare_folder(cell, size)?;
        } else if cell.work.job == WorkKind::Files && cell.work.direction == TrialDirection::Down {
            for number in 0..cell.work.files {
                let path = self.server_file(&name(TrialDirection::Down, number));
                let written = self.content.write(&path, size);
                written.with_context(|| path.display().to_string())?;
            }
        }
        let warm_up = self.server_file(WARM_UP);
        Ok(self.content.write(&warm_up, warm_up_size(cell))?)
    }

    /// Creates the folder that movers fetch. All files have the same content: they are hard links
    /// to the first file.
    fn prepare_folder(&self, cell: &Cell, size: ByteCount) -> anyhow::Result<()> {
        let folder = self.server_file(MOVER_FOLDER);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let first = folder.join(name(TrialDirection::Down, 0));
        let written = self.content.write(&first, size);
        written.with_context(|| first.display().to_string())?;
        for number in 1..cell.work.files {
            let path = folder.join(name(TrialDirection::Down, number));
            let linked = fs::hard_link(&first, &path);
            linked.with_context(|| path.display().to_string())?;
        }
        // The account of the SFTP server must be able to read the files, even if the umask is
        // strict.
        for path in [&self.folder, &self.server_folder(), &folder] {
            fs::set_permissions(path, Permissions::from_mode(0o755))?;
        }
        fs::set_permissions(&first, Permissions::from_mode(0o644))?;
        Ok(())
    }

    fn await_gateways(&mut self) -> anyhow::Result<()> {
        let (wan, listener) = (&self.wan, self.front_listener);
        self.gateways.wait_until(|| {
            let connected = wan.enter(Site::A, || TcpStream::connect(listener))?;
            Ok(connected.is_ok())
        })
    }

    pub(crate) fn server_file(&self, name: &str) -> PathBuf {
        self.folder.join("server").join(name)
    }

    pub(crate) fn client_file(&self, name: &str) -> PathBuf {
        self.folder.join("client").join(name)
    }

    pub(crate) fn server_folder(&self) -> PathBuf {
        self.folder.join("server")
    }

    /// Returns the path of a cell's file at the sender. Creates the file if it is for an upload.
    pub(crate) fn source(&self, name: &str, cell: &Cell) -> anyhow::Result<PathBuf> {
        if cell.work.direction == TrialDirection::Down {
            return Ok(self.server_file(name));
        }
        let path = self.client_file(name);
        if !path.exists() {
            self.content
                .write(&path, ByteCount::new(cell.work.size_bytes))?;
        }
        Ok(path)
    }

    pub(crate) fn address(&self, site: Site) -> Ipv4Addr {
        self.wan.address(site)
    }

    /// Returns a command that runs an example program at a site. The program is next to the
    /// `longhaul` program. Returns `None` if the example was not built.
    pub(crate) fn example(&self, site: Site, name: &str) -> anyhow::Result<Option<Command>> {
        let folder = self.program.parent().unwrap_or(Path::new("."));
        let path = folder.join("examples").join(name);
        let command = path.exists().then(|| self.wan.command(site, path));
        Ok(command.transpose()?)
    }

    /// Returns a command that runs the `longhaul` program at a site.
    pub(crate) fn longhaul(&self, site: Site) -> anyhow::Result<Command> {
        Ok(self.wan.command(site, &self.program)?)
    }

    /// Returns the SFTP server, in cells with this protocol.
    pub(crate) fn sftp_server(&self) -> Option<&SftpServer> {
        self.sftp_server.as_ref()
    }

    /// Returns the far gateway as `KEY@ENDPOINT`, and the key file of a mover. A mover with an
    /// embedded near gateway needs both values.
    pub(crate) fn far_gateway(&self) -> (String, PathBuf) {
        let key = self.gateways.public_key(Site::B);
        let endpoint = SocketAddr::from((self.address(Site::B), LINK_PORT));
        (format!("{key}@{endpoint}"), self.gateways.mover_key())
    }

    /// Returns a command that runs `program` at a site. Returns `None` if the program is not
    /// installed.
    pub(crate) fn command(&self, site: Site, program: &str) -> anyhow::Result<Option<Command>> {
        let program = installed::find(program);
        let command = program.map(|program| self.wan.command(site, program));
        Ok(command.transpose()?)
    }

    /// Returns whether a process at a site listens at a TCP or UDP port.
    pub(crate) fn is_served(&self, site: Site, port: u16) -> anyhow::Result<bool> {
        let port = format!(":{port:04X}");
        Ok(self.wan.enter(site, || {
            ["tcp", "tcp6", "udp", "udp6"].iter().any(|protocol| {
                let path = format!("/proc/thread-self/net/{protocol}");
                let sockets = fs::read_to_string(path).unwrap_or_default();
                // The fields are a number, the local address and the remote address
                // (proc_pid_net(5)). A listening socket has no remote address.
                sockets.lines().skip(1).any(|line| {
                    let mut fields = line.split_whitespace().skip(1);
                    fields.next().is_some_and(|own| own.ends_with(&port))
                        && fields.next().is_some_and(|other| other.ends_with(":0000"))
                })
            })
        })?)
    }

    /// Runs the function `work` at a site, in a new thread.
    pub(crate) fn at<T: Send + 'static>(
        &self,
        site: Site,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<JoinHandle<std::io::Result<T>>> {
        Ok(self.wan.spawn_thread_in(site, work)?)
    }

    /// Begins or ends an outage of the cell's path.
    pub(crate) fn set_outage(&self, cell: &Cell, outage: bool) {
        let configs = cell.path.configs();
        for (direction, config) in emulator::Direction::BOTH.into_iter().zip(configs) {
            self.wan.set(direction, PathConfig { outage, ..config });
        }
    }

    /// Returns the last lines of the gateways' logs, for error messages.
    pub(crate) fn last_words(&self) -> String {
        self.gateways.last_words()
    }

    pub(crate) fn read(&self) -> anyhow::Result<CounterReading> {
        let report = self.wan.report();
        let [near, far] = self.gateways.cpu_time()?;
        let own = ProcessTime::own()?.saturating_sub(report.thread.cpu_time);
        let of_direction = |count: fn(&wansim::Counters) -> u64| {
            [0, 1].map(|index: usize| count(&report.directions[index].counters))
        };
        Ok(CounterReading {
            cpu: BTreeMap::from([
                ("near gateway".to_owned(), near.all),
                ("far gateway".to_owned(), far.all),
                ("emulator".to_owned(), report.thread.cpu_time),
                ("client and server".to_owned(), own),
            ]),
            wire_bytes: of_direction(|counters| counters.sent_bytes),
            delivered_bytes: of_direction(|counters| counters.delivered_bytes),
            report,
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.server.take());
        drop(self.sftp_server.take());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl CounterReading {
    /// Returns the processor seconds of each process since `earlier`. Excludes processes that used
    /// no measurable time.
    pub(crate) fn cpu_seconds_since(&self, earlier: &Self) -> BTreeMap<String, f64> {
        let used = self.cpu.iter().map(|(process, time)| {
            let before = earlier.cpu.get(process).copied().unwrap_or_default();
            (process.clone(), time.saturating_sub(before).as_secs_f64())
        });
        used.filter(|(_, seconds)| *seconds > 0.0).collect()
    }

    pub(crate) fn wire_bytes_since(&self, earlier: &Self) -> [u64; 2] {
        [0, 1].map(|index: usize| self.wire_bytes[index] - earlier.wire_bytes[index])
    }

    pub(crate) fn is_distorted_since(&self, earlier: &Self) -> bool {
        self.report.distorted_since(&earlier.report)
    }
}

/// Returns the name of a trial's file.
pub(crate) fn name(direction: TrialDirection, number: u32) -> String {
    format!("{direction}-{number}.bin")
}

/// Returns the size of the file that warms up the link: four bandwidth-delay products.
pub(crate) fn warm_up_size(cell: &Cell) -> ByteCount {
    let transfer = cell.transfer();
    let product = transfer.rate.bytes_in(transfer.rtt).bytes();
    ByteCount::new((4 * product).clamp(WARM_UP_MIN_BYTES, WARM_UP_MAX_BYTES))
}

pub(crate) const WARM_UP: &str = "warm-up.bin";
/// Name of the server's folder that contains only the files for movers.
pub(crate) const MOVER_FOLDER: &str = "film";

const WARM_UP_MIN_BYTES: u64 = 2_000_000;
const WARM_UP_MAX_BYTES: u64 = 600_000_000;
