//! Tests of the bottleneck that both gateways report in the status of a transfer.
#![allow(
    clippy::disallowed_methods,
    reason = "plays clients that send and read slowly"
)]

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use crate::common::World;

/// A client or server that transfers 4 KB every 50 ms, like `curl --limit-rate`, until this value
/// is dropped.
struct Slow(Arc<AtomicBool>);

impl Slow {
    fn sends(mut stream: TcpStream) -> Self {
        Self::repeats(move || stream.write_all(&[7; 4096]).is_ok())
    }

    fn reads(mut stream: TcpStream) -> Self {
        Self::repeats(move || matches!(stream.read(&mut [0; 4096]), Ok(1..)))
    }

    fn repeats(mut step: impl FnMut() -> bool + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        thread::spawn(move || {
            while !over.load(Relaxed) && step() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        Self(is_over)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends bytes as fast as the gateway reads them.
fn sends_fast(mut stream: TcpStream) {
    thread::spawn(move || while stream.write_all(&[7; 65_536]).is_ok() {});
}

fn reads_fast(mut stream: TcpStream) {
    let mut buffer = vec![0; 65_536];
    thread::spawn(move || while let Ok(1..) = stream.read(&mut buffer) {});
}

/// Waits until both gateways report `limit` as the bottleneck of the only transfer.
fn wait_for(world: &World, limit: &str) {
    for gateway in [&world.near, &world.far] {
        let status = gateway.wait_for(limit, |status| {
            status.transfers.iter().any(|it| it.limit == limit)
        });
        let text = status.to_string();
        assert!(text.contains(&format!("limited by {limit}")), "{text}");
    }
}

#[test]
fn both_gateways_name_a_client_that_sends_slowly() {
    let world = World::start();
    let (_client, _server, client_data, server_data) = world.uploading();
    reads_fast(server_data);
    let _slow = Slow::sends(client_data);
    wait_for(&world, "client");
}

#[test]
fn both_gateways_name_a_client_that_reads_slowly() {
    let world = World::start();
    let (_client, _server, client_data, server_data) = world.downloading();
    sends_fast(server_data);
    let _slow = Slow::reads(client_data);
    wait_for(&world, "client");
}

#[test]
fn both_gateways_name_a_server_that_sends_slowly() {
    let world = World::start();
    let (_client, _server, client_data, server_data) = world.downloading();
    reads_fast(client_data);
    let _slow = Slow::sends(server_data);
    wait_for(&world, "server");
}

#[test]
fn both_gateways_name_a_server_that_reads_slowly() {
    let world = World::start();
    let (_client, _server, client_data, server_data) = world.uploading();
    sends_fast(client_data);
    let _slow = Slow::reads(server_data);
    wait_for(&world, "server");
}

#[test]
fn both_gateways_name_a_slow_link() {
    let world = World::start_with("rate_max = \"1 Mbit/s\"\n", "");
    let (_client, _server, client_data, server_data) = world.uploading();
    sends_fast(client_data);
    reads_fast(server_data);
    wait_for(&world, "WAN");
}

/// The gateways exchange no messages about a forward. The far gateway therefore has no information
/// about the client.
#[test]
fn a_gateway_names_both_candidates_where_it_knows_one_side_alone() {
    let world = World::start();
    let client = TcpStream::connect(world.near.forwards[0]).expect("a listener");
    let (server, _) = world.server.accept().expect("the gateway connects");
    reads_fast(server);
    let _slow = Slow::sends(client);
    let is = |limit: &'static str| {
        move |status: &relay::status::GatewaySnapshot| {
            status.transfers.iter().any(|it| it.limit == limit)
        }
    };
    world.near.wait_for("the client", is("client"));
    world.far.wait_for("two candidates", is("WAN or client"));
}
