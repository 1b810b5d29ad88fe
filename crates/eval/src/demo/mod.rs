//! `longhaul demo`: transfers through gateways on one machine, without installation or
//! configuration.
//!
//! The demonstration has two sites with an emulated transatlantic path between them. One site has
//! an FTP server, the other an FTP client. The client moves the same file in both directions, first
//! directly with the kernel's congestion controls, then through a pair of gateways. The table at
//! the end shows all transfers.

mod files;
mod relay;
mod sites;
mod table;

use std::{net::TcpStream, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use units::ByteCount;
use wansim::profile::Profile;

pub use self::table::Demonstration;
use self::{
    sites::{CongestionControl, DemoSites},
    table::DemoRow,
};
use crate::gateways::{ADMIN_ANYWHERE, GatewayPlan, Gateways};
use crate::{
    ftp::TrialDirection,
    ftp::client::{self, ClientTransfer},
};
use emulator::{
    WanError,
    privilege::{self, Privilege},
};

/// Settings of the demonstration.
#[derive(Debug, Clone)]
pub struct DemoConfig {
    /// Path of the `longhaul` program, which runs as both gateways.
    pub program: PathBuf,
    /// Size of the measured file.
    pub size: ByteCount,
    /// Size of an unmeasured file. The client moves this file first, so that the link has measured
    /// the path.
    pub warm_up: ByteCount,
    /// Time limit of a plain transfer. The demonstration aborts a transfer that takes longer, and
    /// then shows the goodput until the abort.
    pub plain_limit: Duration,
    /// Whether to show the progress of each transfer.
    pub shows_progress: bool,
    /// Function that receives each event as a sentence.
    pub tell: fn(&str),
}

/// Time limit of a transfer through the gateways. A transfer that takes longer has failed.
const ACCELERATED_LIMIT: Duration = Duration::from_secs(60);

impl DemoConfig {
    /// Creates the standard demonstration: 100 MB after an unmeasured file of 20 MB, and a limit of
    /// 30 s for plain transfers.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            size: ByteCount::megabytes(100),
            warm_up: ByteCount::megabytes(20),
            plain_limit: Duration::from_secs(30),
            shows_progress: true,
            tell: |text| println!("{text}"),
        }
    }

    fn progress(&self, label: &str, direction: TrialDirection, size: ByteCount) -> ProgressBar {
        if !self.shows_progress {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(size.bytes());
        let template = "{prefix} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {elapsed}";
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        bar.set_style(style);
        bar.set_prefix(format!("{label}, {direction}:"));
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// Runs the demonstration and returns its result. Call this function before the process starts any
/// thread.
///
/// # Errors
/// If a transfer through the gateways fails, or the sites cannot be set up.
pub fn run(config: &DemoConfig) -> anyhow::Result<Demonstration> {
    let profile = Profile::transatlantic();
    let (mut sites, forbidden) = match privilege::acquire().and_then(|privilege| {
        let sites = DemoSites::in_namespaces(&profile)?;
        Ok((privilege, sites))
    }) {
        Ok((privilege, sites)) => {
            let place = match privilege {
                Privilege::Root => "network namespaces",
                Privilege::UserNamespace => "network namespaces inside a user namespace",
            };
            (config.tell)(&format!(
                "Two sites in {place}, joined by an emulated WAN: {}.",
                profile.summary
            ));
            (sites, None)
        }
        Err(error @ WanError::Forbidden { .. }) => {
            (config.tell)(&format!("{error}."));
            (config.tell)(&format!(
                "So the gateways meet over a relay on the loopback interface instead, which treats \
                 their datagrams\nlike the same path ({}). Plain FTP cannot be shown that way.",
                profile.summary
            ));
            (DemoSites::on_loopback(&profile)?, Some(error))
        }
        Err(error) => return Err(error.into()),
    };
    let files = files::DemoFiles::new(config)?;
    let mut rows = Vec::new();
    if forbidden.is_none() {
        for name in ["cubic", "bbr"] {
            plain(config, &mut sites, &files, name, &mut rows)?;
        }
    }
    let is_relayed = forbidden.is_some();
    accelerated(config, &sites, &files, is_relayed, &mut rows)?;
    Ok(Demonstration::new(
        rows,
        config.size,
        &profile.forward,
        sites.saturation().map(|load| load.to_string()),
    ))
}

/// Runs the transfers in both directions directly, over the kernel's TCP.
fn plain(
    config: &DemoConfig,
    sites: &mut DemoSites,
    files: &files::DemoFiles,
    name: &str,
    rows: &mut Vec<DemoRow>,
) -> anyhow::Result<()> {
    let label = format!("plain FTP, TCP {}", name.to_uppercase());
    match sites.set_congestion_control(name)? {
        CongestionControl::Set => {}
        CongestionControl::Missing { available } => {
            (config.tell)(&format!(
                "{label}: this kernel does not have it (it has: {available})"
            ));
            return Ok(());
        }
    }
    let server = sites.start_server(files)?;
    for direction in [TrialDirection::Down, TrialDirection::Up] {
        let bar = config.progress(&label, direction, config.size);
        let transfer = ClientTransfer {
            address: server,
            direction,
            name: files.measured_name(direction),
            size: config.size,
            limit: config.plain_limit,
        };
        let source = files.content().clone();
        let outcome = sites.run_client({
            let bar = bar.clone();
            move || client::run(&transfer, &source, |bytes| bar.set_position(bytes))
        })?;
        bar.finish_and_clear();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                (config.tell)(&format!("{label}, {direction}: failed: {error:#}"));
                continue;
            }
        };
        // An incomplete upload is measured by the bytes on the server's disk. Bytes in the client's
        // kernel may not have arrived.
        let bytes = match direction {
            TrialDirection::Up if !outcome.is_complete => files.uploaded_bytes()?,
            _ => outcome.bytes,
        };
        rows.push(DemoRow::new(
            &label,
            direction,
            bytes,
            outcome.elapsed,
            outcome.is_complete,
        ));
        (config.tell)(&rows[rows.len() - 1].to_string());
    }
    Ok(())
}

/// Runs the transfers in both directions through a pair of gateways.
fn accelerated(
    config: &DemoConfig,
    sites: &DemoSites,
    files: &files::DemoFiles,
    is_relayed: bool,
    rows: &mut Vec<DemoRow>,
) -> anyhow::Result<()> {
    let label = if is_relayed {
        "Longhaul (loopback relay)"
    } else {
        "Longhaul"
    };
    let server = sites.start_server(files)?;
    let (listen_b, endpoint_b) = sites.gateway_b();
    let front_listener = sites.front_listener()?;
    let plan = GatewayPlan {
        listen_a: sites.gateway_a(),
        listen_b,
        endpoint_b,
        listeners: format!(
            "[[ftp]]\nlisten = \"{front_listener}\"\ntarget = \"{server}\"\nmode = \"strict\"\n"
        ),
        far_sections: String::new(),
        allow: vec![server.to_string()],
        serves: Vec::new(),
        admin: ADMIN_ANYWHERE,
        knows_mover: false,
    };
    let mut gateways = Gateways::start(&plan, |site| sites.command(site, &config.program))?;
    gateways.wait_until(|| {
        Ok(sites
            .run_client(move || TcpStream::connect(front_listener))?
            .is_ok())
    })?;
    for direction in [TrialDirection::Down, TrialDirection::Up] {
        for (size, name, is_measured) in [
            (config.warm_up, files.warm_up_name(direction), false),
            (config.size, files.measured_name(direction), true),
        ] {
            let what = if is_measured {
                label.to_owned()
            } else {
                format!("{label}, warming up")
            };
            let bar = config.progress(&what, direction, size);
            let transfer = ClientTransfer {
                address: front_listener,
                direction,
                name,
                size,
                limit: ACCELERATED_LIMIT,
            };
            let source = files.content().clone();
            let outcome = sites.run_client({
                let bar = bar.clone();
                move || client::run(&transfer, &source, |bytes| bar.set_position(bytes))
            })?;
            bar.finish_and_clear();
            let outcome = outcome
                .with_context(|| format!("{what}, {direction}; {}", gateways.last_words()))?;
            ensure!(
                outcome.is_complete,
                "{what}, {direction}: only {} after {} s; {}",
                outcome.bytes,
                outcome.elapsed.as_secs(),
                gateways.last_words()
            );
            let arrived = match direction {
                TrialDirection::Down => outcome.hash,
                TrialDirection::Up => files.uploaded_hash(is_measured)?,
            };
            ensure!(
                arrived == files.content().hash(size),
                "{what}, {direction}: the hashes differ"
            );
            if is_measured {
                rows.push(DemoRow::new(
                    label,
                    direction,
                    outcome.bytes,
                    outcome.elapsed,
                    true,
                ));
                (config.tell)(&format!("{}, hashes equal", rows[rows.len() - 1]));
            }
        }
    }
    Ok(())
}
