//! Synthetic transfers with which tests show a busy dashboard. Released programs do not contain
//! this module.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{body::Bytes, extract::State, http::StatusCode};
use link::PeerId;
use optimiser::counts::CodingCounts;
use serde::Deserialize;
use tokio::time::sleep;
use units::BitRate;

use super::{Dashboard, controls::read, error::DashboardError};
use relay::{
    status::{KnownPath, Registry, TransferConclusion},
    transfer_log::{TransferDirection, TransferType},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestLoad {
    /// Number of open transfers to create. Each of them stays open for `seconds`.
    open: usize,
    seconds: u64,
    /// Number of finished transfers to create.
    finished: usize,
}

pub(super) async fn fill(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<StatusCode, DashboardError> {
    let load: TestLoad = read(&body)?;
    let running = dashboard.running();
    // This call opens a store, if stores are configured.
    let _ = running.relay.store(PeerId(0), "");
    let registry = running.relay.registry().clone();
    let path = KnownPath {
        rate: BitRate::gbit(1),
        rtt: Duration::from_millis(80),
        loss: 0.0005,
    };
    registry.record_path("site-b", path);
    for number in 0..load.finished {
        finish(&registry, number);
    }
    run(&registry, &load);
    Ok(StatusCode::NO_CONTENT)
}

fn run(registry: &Arc<Registry>, load: &TestLoad) {
    for number in 0..load.open {
        let client = format!("10.1.{}.{}:40000", number / 250, number % 250);
        let session = number as u64 + 1;
        let transfer = registry.transfer("ftp", true, session, "site-b", &client, "ftp.example:21");
        let folder = number % 30;
        transfer.set_requested_path(format!("/projects/day-{folder}/reel-{number:05}.mxf"));
        if number.is_multiple_of(2) {
            transfer.set_announced_size(4_000_000_000);
        }
        let seconds = load.seconds;
        let stopped = transfer.clone();
        let moving = async move {
            for _ in 0..seconds * 10 {
                let (_, from_link) = transfer.meters();
                from_link.start_link_wait();
                from_link.add_bytes(50_000 + number * 37);
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = moving => {}
                () = stopped.wait_for_stop() => {}
            }
        });
    }
}

fn finish(registry: &Arc<Registry>, number: usize) {
    let succeeded = !number.is_multiple_of(23);
    let client = format!("10.1.0.{}:40000", number % 250);
    let transfer = registry.transfer("ftp", true, 1, "site-b", &client, "ftp.example:21");
    let bytes = 200_000_000 + number * 37_000;
    transfer.meters().0.add_bytes(bytes);
    // Every third transfer is text, and every ninth is already stored at the peer.
    if number.is_multiple_of(3) {
        let shrink = if number.is_multiple_of(9) { 1_000 } else { 4 };
        let (bytes, coded_bytes) = (bytes as u64, (bytes / shrink) as u64);
        let saved = bytes - coded_bytes;
        let is_known = shrink > 4;
        transfer.coding_counters().add(&CodingCounts {
            bytes,
            coded_bytes,
            compression_saved_bytes: if is_known { 0 } else { saved },
            references_saved_bytes: if is_known { saved } else { 0 },
        });
    }
    // The rate is 800 Mbit/s.
    let took = Duration::from_secs_f64(bytes as f64 / 1e8);
    transfer.conclude(TransferConclusion {
        user: format!("user-{}", number % 7),
        listener: ([127, 0, 0, 1], 2121).into(),
        verb: "STOR".to_owned(),
        path: format!("/archive/2026/{:03}/part-{number:05}.bin", number / 100),
        direction: Some(TransferDirection::Upload),
        transfer_type: TransferType::Binary,
        reply_code: Some(if succeeded { 226 } else { 426 }),
        succeeded,
        client_tls: true,
        server_tls: false,
        commanded: Instant::now().checked_sub(took),
    });
}
