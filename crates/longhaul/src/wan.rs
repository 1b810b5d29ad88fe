//! `longhaul wan`: an emulated WAN between two network namespaces, kept up in the background.

mod calibrate;
mod capture;
mod show;

use std::{
    env,
    ffi::OsString,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    process::{self, ExitCode},
    time::Duration,
};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use emulator::{
    Client, Description, Direction, Place, Removed, Site, WanConfig,
    change::{self, PathChange},
    daemon,
    script::Script,
};
use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, Jitter, PathConfig, Reordering, profile::Profile};

use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the emulated WAN, if there are several
    #[arg(long, global = true, default_value = "wan", value_name = "NAME")]
    wan: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Makes the two sites and the WAN between them; returns when both are ready
    ///
    /// The emulator stays in the background until `longhaul wan down`. As root the sites are visible
    /// to `ip netns`; any other user gets them in a user namespace, and enters by `longhaul wan exec`.
    #[command(after_help = EXAMPLES)]
    Up(Box<Up>),
    /// Changes the WAN while traffic flows; what is not named stays as it is
    #[command(after_help = EXAMPLES)]
    Set(Box<Set>),
    /// Changes the WAN at the times that a file names, while traffic flows
    #[command(after_help = SCRIPT)]
    Script {
        /// The file; see the example below
        file: PathBuf,
    },
    /// Shows the settings, what happened to packets, and whether the machine keeps up
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Runs a command inside a site and passes on its exit status
    Exec {
        /// Name of the site
        site: String,
        /// The command and its arguments
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Measures each impairment with the kernel's packets, and what the emulator itself carries
    ///
    /// Needs nothing that runs already. Takes about a minute; exits with 1 if anything is out of bounds.
    Calibrate(calibrate::Calibrate),
    /// Writes the packets at a site's WAN interface to a pcap file, both directions
    Capture(capture::Capture),
    /// Ends the emulator and removes the sites, also what a dead emulator left
    Down,
    /// Lists the profiles with the sources of their figures
    Profiles,
    /// The process in the background
    #[command(hide = true)]
    Daemon,
}

#[derive(clap::Args)]
struct Up {
    /// Directions that the settings concern
    #[arg(default_value = "both")]
    direction: Which,
    /// Name of the first site
    #[arg(long, default_value = "site-a", value_name = "NAME")]
    name_a: String,
    /// Name of the second site
    #[arg(long, default_value = "site-b", value_name = "NAME")]
    name_b: String,
    /// IPv4 address of the first site
    #[arg(long, default_value = "10.77.0.1", value_name = "ADDRESS")]
    address_a: Ipv4Addr,
    /// IPv4 address of the second site, in the same /24
    #[arg(long, default_value = "10.77.0.2", value_name = "ADDRESS")]
    address_b: Ipv4Addr,
    /// IPv6 address of the first site
    #[arg(long, default_value = "fd77::1", value_name = "ADDRESS")]
    ipv6_a: Ipv6Addr,
    /// IPv6 address of the second site, in the same /64
    #[arg(long, default_value = "fd77::2", value_name = "ADDRESS")]
    ipv6_b: Ipv6Addr,
    /// Leave IPv6 out
    #[arg(long)]
    no_ipv6: bool,
    /// MTU of the sites' interfaces to the WAN
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    interface_mtu: u32,
    /// Let the sites hand over single packets only, as through a network card without segmentation
    /// offload; costs several times the processor time
    #[arg(long)]
    no_offload: bool,
    /// Seed of the impairments
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    #[command(flatten)]
    path: PathArgs,
}

#[derive(clap::Args)]
struct Set {
    /// Directions that the settings concern
    #[arg(default_value = "both")]
    direction: Which,
    #[command(flatten)]
    path: PathArgs,
    /// Take the WAN interface of the sending site down, as when its cable is pulled, or up again
    #[arg(long, value_name = "on|off")]
    interface_down: Option<Switch>,
}

/// What a direction does to packets.
#[derive(clap::Args)]
struct PathArgs {
    /// Start from a profile; see `longhaul wan profiles`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Rate of the bottleneck, Ethernet overhead included: '1 Gbit/s', or 'unlimited'
    #[arg(long, value_parser = change::parse_rate, value_name = "RATE")]
    rate: Option<MaybeRate>,
    /// Round-trip time, split evenly between the directions: 200ms
    #[arg(long, value_parser = change::parse_delay, value_name = "TIME", conflicts_with = "delay")]
    rtt: Option<Duration>,
    /// One-way delay: 100ms
    #[arg(long, value_parser = change::parse_delay, value_name = "TIME")]
    delay: Option<Duration>,
    /// Queue of the bottleneck: '12.5 MB' [default: half of rate x RTT, at least 300 kB]
    #[arg(long, value_name = "SIZE")]
    queue: Option<ByteCount>,
    /// Spread of the delay, to either side: 5ms, or 5ms/in-order so that no packet overtakes
    #[arg(long, value_parser = change::parse_jitter, value_name = "TIME")]
    jitter: Option<Jitter>,
    /// Packets lost at random: 0.1%
    #[arg(long, value_parser = change::parse_share, value_name = "SHARE")]
    loss: Option<f64>,
    /// Packets lost in bursts, and the mean length of a burst: 1%/10, or off
    #[arg(long, value_parser = change::parse_bursts, value_name = "SHARE/LENGTH")]
    burst_loss: Option<MaybeBursts>,
    /// Packets with one bit flipped: 0.01%
    #[arg(long, value_parser = change::parse_share, value_name = "SHARE")]
    corrupt: Option<f64>,
    /// Packets that skip the delay: 1%, with correlation 1%/50%, or late instead: '1%/late 5ms'
    #[arg(long, value_parser = change::parse_reordering, value_name = "SHARE")]
    reorder: Option<Reordering>,
    /// Packets that arrive twice: 0.1%
    #[arg(long, value_parser = change::parse_share, value_name = "SHARE")]
    duplicate: Option<f64>,
    /// Lose everything, or stop doing so
    #[arg(long, value_name = "on|off")]
    outage: Option<Switch>,
    /// Longest IP packet that passes; longer ones vanish without a notice
    #[arg(long, value_name = "BYTES")]
    mtu: Option<usize>,
}

// Clap takes the outermost `Option` of a field as "may be absent".
type MaybeRate = Option<BitRate>;
type MaybeBursts = Option<GilbertElliott>;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Which {
    AToB,
    BToA,
    Both,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Runs the subcommand.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Action::Daemon = args.action {
        // Whoever started it has been told what went wrong.
        return Ok(if daemon::run().is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    if let Action::Profiles = args.action {
        show_profiles();
        return Ok(ExitCode::SUCCESS);
    }
    if let Action::Calibrate(calibrate) = &args.action {
        return calibrate.run();
    }
    let place = match Place::of(&args.wan) {
        Err(error @ emulator::WanError::Invalid(_)) => return Ok(wrong_use(&error.into())),
        place => place?,
    };
    let client = Client::new(place);
    match args.action {
        Action::Up(up) => match up.config() {
            Ok(config) => start(&client, config, &args.wan)?,
            Err(error) => return Ok(wrong_use(&error)),
        },
        Action::Set(set) => return set.apply(&client),
        Action::Script { file } => match Script::read(&file) {
            Ok(script) => script.run(|step| {
                client.change(&step.change, &step.directions)?;
                output::print(&format!("{step}\n"))
            })?,
            Err(error) => return Ok(wrong_use(&error.into())),
        },
        Action::Show { json } => show::show(&client, json)?,
        Action::Exec { site, command } => return exec(&client, &site, &command),
        Action::Capture(capture) => match site(&client, &capture.site)? {
            Ok(site) => capture.run(&client, site)?,
            Err(error) => return Ok(wrong_use(&error)),
        },
        Action::Down => {
            if client.down()? == Removed::Remains {
                eprintln!("longhaul: removed what an emulator that had died left");
            }
        }
        Action::Calibrate(_) | Action::Profiles | Action::Daemon => {
            unreachable!("handled above")
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn wrong_use(error: &anyhow::Error) -> ExitCode {
    eprintln!("longhaul: {error:#}");
    ExitCode::from(2)
}

fn start(client: &Client, config: WanConfig, name: &str) -> anyhow::Result<()> {
    let program = env::current_exe().context("finding this program")?;
    let mut command = process::Command::new(program);
    command.args(["wan", "daemon", "--wan", name]);
    client.up(config, command)?;
    Ok(())
}

impl Up {
    fn config(&self) -> anyhow::Result<WanConfig> {
        let mut config = WanConfig {
            seed: self.seed,
            interface_mtu: self.interface_mtu,
            offload: !self.no_offload,
            ..WanConfig::default()
        };
        let [a, b] = &mut config.sites;
        (a.name, b.name) = (self.name_a.clone(), self.name_b.clone());
        (a.ipv4, b.ipv4) = (self.address_a, self.address_b);
        (a.ipv6, b.ipv6) = (Some(self.ipv6_a), Some(self.ipv6_b));
        if self.no_ipv6 {
            (a.ipv6, b.ipv6) = (None, None);
        }
        self.path.change(&mut config.paths, self.direction)?;
        config.radio = self.path.profile()?.and_then(|profile| profile.radio);
        anyhow::ensure!(
            config.radio.is_none() || self.direction == Which::Both,
            "both directions share a radio medium; leave {} out",
            self.direction.name()
        );
        config.validate()?;
        Ok(config)
    }
}

impl Set {
    fn apply(&self, client: &Client) -> anyhow::Result<ExitCode> {
        let chosen = match self.path.profile() {
            Ok(profile) => profile.map(|profile| (profile.name, profile.radio)),
            Err(error) => return Ok(wrong_use(&error)),
        };
        if let Some((name, radio)) = chosen
            && radio != client.describe()?.config.radio
        {
            let error = anyhow::anyhow!(
                "{name} has another medium than this WAN, and that is chosen by `up`"
            );
            return Ok(wrong_use(&error));
        }
        let report = client.report()?;
        let before = report.directions.map(|direction| direction.config);
        let mut paths = before.clone();
        if let Err(error) = self.path.change(&mut paths, self.direction) {
            return Ok(wrong_use(&error));
        }
        for (index, direction) in Direction::BOTH.into_iter().enumerate() {
            if paths[index] != before[index] {
                client.set(direction, paths[index].clone())?;
            }
            if let Some(down) = self.interface_down
                && self.direction.directions().contains(&direction)
            {
                client.set_interface_up(direction.from(), down == Switch::Off)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl PathArgs {
    fn profile(&self) -> anyhow::Result<Option<Profile>> {
        let named = |name: &String| {
            Profile::named(name).with_context(|| {
                let known: Vec<_> = Profile::all().iter().map(|profile| profile.name).collect();
                format!(
                    "no profile is called {name}; known are {}",
                    known.join(", ")
                )
            })
        };
        self.profile.as_ref().map(named).transpose()
    }

    fn change(&self, paths: &mut [PathConfig; 2], which: Which) -> anyhow::Result<()> {
        let directions = which.directions();
        if let Some(profile) = self.profile()? {
            for direction in directions {
                let [forward, backward] = &mut *paths;
                match direction {
                    Direction::AToB => *forward = profile.forward.clone(),
                    Direction::BToA => *backward = profile.backward.clone(),
                }
            }
        }
        anyhow::ensure!(
            self.rtt.is_none() || which == Which::Both,
            "--rtt concerns both directions; --delay is for one"
        );
        let change = PathChange {
            rate: self.rate,
            rtt: self.rtt,
            delay: self.delay,
            queue: self.queue,
            jitter: self.jitter,
            loss: self.loss,
            bursts: self.burst_loss,
            corruption: self.corrupt,
            reordering: self.reorder,
            duplication: self.duplicate,
            outage: self.outage.map(|outage| outage == Switch::On),
            mtu: self.mtu,
        };
        change.apply(paths, directions);
        Ok(())
    }
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Self::AToB => "a-to-b",
            Self::BToA => "b-to-a",
            Self::Both => "both",
        }
    }

    fn directions(self) -> &'static [Direction] {
        match self {
            Self::AToB => &[Direction::AToB],
            Self::BToA => &[Direction::BToA],
            Self::Both => &Direction::BOTH,
        }
    }
}

fn exec(client: &Client, name: &str, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let site = match site(client, name)? {
        Ok(site) => site,
        Err(error) => return Ok(wrong_use(&error)),
    };
    let mut program = process::Command::new(&command[0]);
    program.args(&command[1..]);
    match client.exec(site, program)? {}
}

/// The site called `name`; the inner error is wrong use.
fn site(client: &Client, name: &str) -> anyhow::Result<anyhow::Result<Site>> {
    let Description { config, .. } = client.describe()?;
    let names = config.sites.each_ref().map(|site| site.name.as_str());
    let found = names.iter().position(|known| *known == name);
    Ok(found.map(|index| Site::BOTH[index]).with_context(|| {
        format!(
            "no site is called {name}; there are {}",
            names.join(" and ")
        )
    }))
}

fn show_profiles() {
    for profile in Profile::all() {
        println!(
            "{}: {}\n    source: {}",
            profile.name, profile.summary, profile.source
        );
    }
}

const EXAMPLES: &str = "Examples:
  longhaul wan up --rate '1 Gbit/s' --rtt 200ms --loss 0.1%
  longhaul wan exec site-b -- vsftpd /etc/vsftpd.conf
  longhaul wan exec site-a -- curl ftp://10.77.0.2/file --output /dev/null
  longhaul wan set a-to-b --loss 1% --burst-loss 1%/10
  longhaul wan set --outage on
  longhaul wan capture site-b --out b.pcap --for 10s
  longhaul wan show
  longhaul wan down";

const SCRIPT: &str = "Example:
  [[step]]
  at = \"2 s\"
  outage = \"on\"

  [[step]]
  at = \"2500ms\"
  outage = \"off\"

  [[step]]
  at = \"10 s\"
  direction = \"a-to-b\"
  rate = \"50 Mbit/s\"
  loss = \"0.5%\"

Times count from the start. Further settings: rtt, delay, queue, jitter, burst_loss, corrupt, reorder,
duplicate, mtu; all written as for `longhaul wan set`.";
