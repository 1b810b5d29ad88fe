//! `longhaul status`: the peers and transfers of a running gateway.

use anyhow::Context as _;
use relay::status::GatewaySnapshot;

use serde_json::{Map, Value};

use crate::{
    admin::{self, Answer},
    output::Format,
    places,
};

/// Show the present activity of a running gateway
///
/// The command reads `/status.json` over the gateway's admin socket, or from its admin address. The
/// admin address hides the names of users, files and clients. The command shows the state of each
/// peer, and the rate of each transfer. It also shows the limit of that rate: the client, the WAN
/// or the server.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  longhaul status
  longhaul status --config site-a.toml
  longhaul status --admin 127.0.0.1:9811 --json

Exit codes: 0 done; 1 no gateway answers; 2 wrong use.")]
pub(crate) struct Args {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    gateway: places::Gateway,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (at, answer) = admin::ask_any(&args.gateway.places(), "/status.json")?;
    let Answer { code, body } = answer;
    anyhow::ensure!(code == 200, "the answer has the status {code}");
    let other = || {
        format!(
            "the program at {at} is no gateway of this version (restart the gateway, or use the \
     longhaul of its version)"
        )
    };
    let snapshot: GatewaySnapshot = serde_json::from_str(&body).with_context(other)?;
    // JSON contains all fields of the gateway, including fields that are unknown to this program.
    let fields: Map<String, Value> = serde_json::from_str(&body).with_context(other)?;
    args.format.print(&fields, |_| snapshot.to_string())
}

#[cfg(test)]
mod tests {
    use relay::status::GatewaySnapshot;

    #[test]
    fn the_first_line_has_the_commit_of_the_build_if_the_gateway_reports_it() {
        let text = include_str!("top/snapshot.json");
        let mut snapshot: GatewaySnapshot = serde_json::from_str(text).expect("a snapshot");
        let first = |snapshot: &GatewaySnapshot| {
            let shown = snapshot.to_string();
            shown.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(first(&snapshot), "gateway 0.1.0 on 0.0.0.0:4810");
        snapshot.build = "0.1.0 (6f578b3273)".to_owned();
        assert_eq!(
            first(&snapshot),
            "gateway 0.1.0 (6f578b3273) on 0.0.0.0:4810"
        );
    }

    #[test]
    fn transfers_without_names_name_the_command_that_shows_names() {
        let text = include_str!("top/snapshot.json");
        let mut snapshot: GatewaySnapshot = serde_json::from_str(text).expect("a snapshot");
        let heading = "finished, the newest first (names: sudo longhaul status):\n";
        assert!(!snapshot.to_string().contains(heading));
        for record in &mut snapshot.finished {
            (record.user, record.path) = (String::new(), String::new());
        }
        let shown = snapshot.to_string();
        let (_, finished) = shown.split_once(heading).expect("a heading");
        assert!(!finished.contains("\"\""), "{finished}");
        let words = format!(" {} via ", snapshot.finished[0].verb);
        assert!(finished.contains(&words), "{finished}");
    }

    #[test]
    fn the_last_transfers_are_shown_and_the_others_are_counted() {
        let text = include_str!("top/snapshot.json");
        let mut snapshot: GatewaySnapshot = serde_json::from_str(text).expect("a snapshot");
        let one = snapshot
            .finished
            .first()
            .expect("a transfer has ended")
            .clone();
        snapshot.finished = vec![one; 35];
        let shown = snapshot.to_string();
        let (_, finished) = shown
            .split_once("finished, the newest first:\n")
            .expect("a heading");
        assert_eq!(finished.lines().count(), 11, "{finished}");
        assert!(finished.ends_with("  and 25 more: longhaul status --json, or the transfer log\n"));
    }
}
