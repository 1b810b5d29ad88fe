//! `longhaul wan`: an emulated WAN between two network namespaces, run by a process in the
//! background.

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
    Client, Description, Direction, DownResult, EmulatorPaths, Site, WanConfig,
    change::{self, PathChange},
    daemon,
    script::Script,
};
use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, Jitter, PathConfig, Reordering, profile::Profile};

use crate::{
    exit::{misuse, wrong_use},
    output::{self, Format},
};

/// Connect two network namespaces by an emulated WAN, for any program
///
/// The two namespaces are called sites. All packets between the sites pass through the emulator.
/// The emulator limits, delays, loses and changes the packets according to its settings.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Use the emulated WAN with this name
    #[arg(
        long,
        alias = "wan",
        global = true,
        default_value = "wan",
        value_name = "NAME"
    )]
    name: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create the two sites and the WAN between them, and return when the WAN is ready
    ///
    /// The emulator stays in the background until `longhaul wan down`. Sites of root are visible to
    /// `ip netns`. Sites of any other user are in a user namespace, and `longhaul wan exec` enters
    /// them.
    #[command(after_help = EXAMPLES)]
    Up(Box<Up>),
    /// Change settings of the WAN while traffic flows
    ///
    /// Settings without an option do not change.
    #[command(after_help = EXAMPLES)]
    Set(Box<Set>),
    /// Change settings of the WAN at the times in a script file, while traffic flows
    ///
    /// The command prints each step when the step takes effect.
    #[command(after_help = SCRIPT)]
    Script {
        /// TOML file with the steps
        file: PathBuf,
    },
    /// Show the settings, the effects on packets, and whether the machine is fast enough
    Show {
        #[command(flatten)]
        format: Format,
    },
    /// Run a command in a site, and return the exit code of the command
    #[command(after_help = "\
Example:
  longhaul wan exec site-a -- curl ftp://10.77.0.2/file --output /dev/null")]
    Exec {
        /// Name of the site
        site: String,
        /// Command to run, with its arguments
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Measure each impairment, and the emulator's own capacity
    ///
    /// The command creates separate sites, and takes about a minute.
    Calibrate(calibrate::Calibrate),
    /// Write the packets in both directions at a site's WAN interface to a pcap file
    ///
    /// The capture ends at Ctrl-C, or at the limit of --packets or --for.
    Capture(capture::Capture),
    /// End the emulator and remove the sites, including sites that a crashed emulator has left
    Down,
    /// List the profiles with the sources of their figures
    Profiles {
        #[command(flatten)]
        format: Format,
    },
    /// Run the emulator in the background (internal command)
    #[command(hide = true)]
    Daemon,
}

#[derive(clap::Args)]
struct Up {
    /// Direction to which the settings apply
    #[arg(default_value = "both")]
    direction: DirectionArg,
    /// Give the first site this name
    #[arg(long, default_value = "site-a", value_name = "NAME")]
    name_a: String,
    /// Give the second site this name
    #[arg(long, default_value = "site-b", value_name = "NAME")]
    name_b: String,
    /// Give the first site this IPv4 address
    #[arg(long, default_value = "10.77.0.1", value_name = "ADDRESS")]
    address_a: Ipv4Addr,
    /// Give the second site this IPv4 address, in the same /24
    #[arg(long, default_value = "10.77.0.2", value_name = "ADDRESS")]
    address_b: Ipv4Addr,
    /// Give the first site this IPv6 address
    #[arg(long, default_value = "fd77::1", value_name = "ADDRESS")]
    ipv6_a: Ipv6Addr,
    /// Give the second site this IPv6 address, in the same /64
    #[arg(long, default_value = "fd77::2", value_name = "ADDRESS")]
    ipv6_b: Ipv6Addr,
    /// Give the sites no IPv6 addresses
    #[arg(long)]
    no_ipv6: bool,
    /// Set the MTU of the sites' WAN interfaces, in bytes
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    interface_mtu: u32,
    /// Disable segmentation offload on the sites' WAN interfaces
    ///
    /// Without offload the sites send single packets, and use several times as much processor time.
    #[arg(long)]
    no_offload: bool,
    /// Seed of the random impairments
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    #[command(flatten)]
    path: PathArgs,
}

#[derive(clap::Args)]
struct Set {
    /// Direction to which the settings apply
    #[arg(default_value = "both")]
    direction: DirectionArg,
    #[command(flatten)]
    path: PathArgs,
    /// Set the WAN interface of the sending site down (on), as if its cable were unplugged, or up
    /// again (off)
    #[arg(long, value_name = "on|off")]
    interface_down: Option<Switch>,
}

/// Treatment of the packets of a direction.
#[derive(clap::Args)]
struct PathArgs {
    /// Use the settings of this profile, which other options can change; see `longhaul wan
    /// profiles`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Set the rate of the bottleneck, Ethernet framing included: '1 Gbit/s', or 'unlimited'
    #[arg(long, value_parser = change::parse_rate, value_name = "RATE")]
    rate: Option<OptionalRate>,
    /// Set the round-trip time, divided equally between the directions: 200ms
    #[arg(long, value_parser = change::parse_delay, value_name = "TIME", conflicts_with = "delay")]
    rtt: Option<Duration>,
    /// Set the one-way delay: 100ms
    #[arg(long, value_parser = change::parse_delay, value_name = "TIME")]
    delay: Option<Duration>,
    /// Set the maximum queue of the bottleneck: '12.5 MB' [default of a new WAN: half of rate x
    /// RTT, but at least 300 kB]
    #[arg(long, value_name = "SIZE")]
    queue: Option<ByteCount>,
    /// Vary the delay at random by at most this time, up or down: 5ms, or 5ms/in-order without
    /// reordering
    #[arg(long, value_parser = change::parse_jitter, value_name = "TIME")]
    jitter: Option<Jitter>,
    /// Lose this share of the packets at random: 0.1%
    #[arg(long, value_parser = change::parse_share, value_name = "SHARE")]
    loss: Option<f64>,
    /// Lose this share of the packets in bursts of this mean number of packets: 1%/10, or 'off'
    #[arg(long, value_parser = change::parse_bursts, value_name = "SHARE/LENGTH")]
    burst_loss: Option<OptionalBursts>,
    /// Flip one bit in this share of the packets: 0.01%
    #[arg(long, value_parser = change::parse_share, value_name = "SHARE")]
    corrupt: Option<f64>,
    /// Reorder this share of the packets. These packets skip the delay ('1%', or '1%/50%' with
    /// correlation), or arrive later by a time ('1%/late 5ms')
    #[arg(long, value_parser = change::parse_reordering, value_name = "SHARE")]
    reorder: Option<Reordering>,
    /// Duplicate this share of the packets: 0.1%
    #[arg(long, value_parser = change::parse_share, value_name = "SHARE")]
    duplicate: Option<f64>,
    /// Lose all packets from now on (on), or deliver packets again (off)
    #[arg(long, value_name = "on|off")]
    outage: Option<Switch>,
    /// Drop IP packets longer than this number of bytes, without notice to the sender
    #[arg(long, value_name = "BYTES")]
    mtu: Option<usize>,
}

// Clap interprets the outermost `Option` of a field as "may be absent".
type OptionalRate = Option<BitRate>;
type OptionalBursts = Option<GilbertElliott>;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum DirectionArg {
    AToB,
    BToA,
    Both,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Runs the selected subcommand of `longhaul wan`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Action::Daemon = args.action {
        // The error is not printed, because the process that started the daemon has already
        // received it.
        return Ok(if daemon::run().is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    if let Action::Profiles { format } = args.action {
        return show::profiles(format).map(|()| ExitCode::SUCCESS);
    }
    if let Action::Calibrate(calibrate) = &args.action {
        return calibrate.run();
    }
    let place = match EmulatorPaths::of(&args.name) {
        Err(error @ emulator::WanError::Invalid(_)) => return Err(wrong_use(error)),
        place => place?,
    };
    let client = Client::new(place);
    match args.action {
        Action::Up(up) => start(&client, up.config().map_err(wrong_use)?, &args.name)?,
        Action::Set(set) => set.apply(&client)?,
        Action::Script { file } => {
            let script = Script::read(&file).map_err(wrong_use)?;
            script.run(|step| {
                client.change(&step.change, &step.directions)?;
                output::print(&format!("{step}\n"))
            })?;
        }
        Action::Show { format } => show::show(&client, format)?,
        Action::Exec { site, command } => return exec(&client, &site, &command),
        Action::Capture(capture) => capture.run(&client, site(&client, &capture.site)?)?,
        Action::Down => {
            if client.down()? == DownResult::Remains {
                eprintln!("longhaul: removed the namespaces of an emulator that had died");
            }
        }
        Action::Calibrate(_) | Action::Profiles { .. } | Action::Daemon => {
            unreachable!("handled above")
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start(client: &Client, config: WanConfig, name: &str) -> anyhow::Result<()> {
    let program = env::current_exe().context("finding this program")?;
    let mut command = process::Command::new(program);
    command.args(["wan", "daemon", "--name", name]);
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
            config.radio.is_none() || self.direction == DirectionArg::Both,
            "both directions share a radio medium; leave {} out",
            self.direction.name()
        );
        config.validate()?;
        Ok(config)
    }
}

impl Set {
    fn apply(&self, client: &Client) -> anyhow::Result<()> {
        if let Some(profile) = self.path.profile().map_err(wrong_use)?
            && profile.radio != client.describe()?.config.radio
        {
            let name = profile.name;
            return Err(misuse(format!(
                "{name} has another medium than this WAN; only `up` chooses the medium"
            )));
        }
        let report = client.report()?;
        let before = report.directions.map(|direction| direction.config);
        let mut paths = before.clone();
        let changed = self.path.change(&mut paths, self.direction);
        changed.map_err(wrong_use)?;
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
        Ok(())
    }
}

impl PathArgs {
    fn profile(&self) -> anyhow::Result<Option<Profile>> {
        let named = |name: &String| {
            Profile::named(name).with_context(|| {
                let known: Vec<_> = Profile::all().iter().map(|profile| profile.name).collect();
                format!(
                    "there is no profile {name}; the profiles are {}",
                    known.join(", ")
                )
            })
        };
        self.profile.as_ref().map(named).transpose()
    }

    fn change(&self, paths: &mut [PathConfig; 2], direction: DirectionArg) -> anyhow::Result<()> {
        let directions = direction.directions();
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
            self.rtt.is_none() || direction == DirectionArg::Both,
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

impl DirectionArg {
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
    let site = site(client, name)?;
    let mut program = process::Command::new(&command[0]);
    program.args(&command[1..]);
    match client.exec(site, program)? {}
}

/// Returns the site with this name. If there is no such site, returns an error with exit code 2.
fn site(client: &Client, name: &str) -> anyhow::Result<Site> {
    let Description { config, .. } = client.describe()?;
    let names = config.sites.each_ref().map(|site| site.name.as_str());
    let found = names.iter().position(|known| *known == name);
    let missing = || {
        let names = names.join(" and ");
        misuse(format!("no site is called {name}; there are {names}"))
    };
    found.map(|index| Site::BOTH[index]).ok_or_else(missing)
}

const EXAMPLES: &str = "\
Examples:
  longhaul wan up --rate '1 Gbit/s' --rtt 200ms --loss 0.1%
  longhaul wan exec site-b -- vsftpd /etc/vsftpd.conf
  longhaul wan exec site-a -- curl ftp://10.77.0.2/file --output /dev/null
  longhaul wan set a-to-b --loss 1% --burst-loss 1%/10
  longhaul wan set --outage on
  longhaul wan capture site-b --out b.pcap --for 10s
  longhaul wan show
  longhaul wan down";

const SCRIPT: &str = "\
Example of a file:
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

Times are relative to the start of the command. Further settings are rtt, delay, queue, jitter,
burst_loss, corrupt, reorder, duplicate and mtu. Their values are written as in `longhaul wan set`.

Exit codes: 0 all steps took effect; 1 a step failed; 2 wrong use or an invalid file.";
