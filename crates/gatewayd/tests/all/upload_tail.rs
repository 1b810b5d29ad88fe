//! Tests of the upload tail: the time for which a slow server still reads after the client has sent
//! its last byte. Some clients wait at most 15 s for the final reply.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use socket2::SockRef;

use crate::common::{World, noise, passive, pattern};

/// Maximum upload tail. The gateways limit it to five seconds. One second is added for a busy
/// machine and for the small kernel buffers.
const TAIL_MAX: Duration = Duration::from_secs(6);
/// Reads at a constant rate until the end. Returns the time of the end, and the total number of
/// bytes after each read.
fn read_at(mut server: TcpStream, bytes_per_s: usize) -> (Instant, Vec<(Instant, usize)>) {
    let mut due = Instant::now();
    let mut log = Vec::new();
    let mut buffer = vec![0; bytes_per_s / 50];
    let mut total = 0;
    loop {
        let count = server.read(&mut buffer).expect("the upload is whole");
        let now = Instant::now();
        if count == 0 {
            return (now, log);
        }
        total += count;
        log.push((now, total));
        // The server does not catch up after a time without bytes.
        due = due.max(now - Duration::from_millis(200))
            + Duration::from_secs_f64(count as f64 / bytes_per_s as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Uploads `bytes` to a server that reads at this rate. Returns the time from the client's last
/// byte until the server has read everything. The client's and the server's kernel buffers have
/// only `own_buffer` bytes, because the gateways cannot control these buffers.
fn tail(kbit_per_s: usize, own_buffer: usize, bytes: &[u8]) -> Duration {
    tail_in(&World::start(), kbit_per_s, own_buffer, bytes)
}

fn tail_in(world: &World, kbit_per_s: usize, own_buffer: usize, bytes: &[u8]) -> Duration {
    let bytes_per_s = kbit_per_s * 125;
    let (mut client, mut server, mut client_data, server_data) = world.uploading();
    SockRef::from(&server_data)
        .set_recv_buffer_size(own_buffer)
        .expect("a socket option");
    SockRef::from(&client_data)
        .set_send_buffer_size(own_buffer)
        .expect("a socket option");
    let began = Instant::now();
    let reader = thread::spawn(move || read_at(server_data, bytes_per_s));
    client_data.write_all(bytes).expect("the gateway reads");
    client_data.shutdown(Shutdown::Write).expect("an end");
    let finished = Instant::now();
    let (ended, log) = reader.join().expect("read");
    let read = log.last().map_or(0, |(_, total)| *total);
    assert_eq!(read, bytes.len(), "the file must arrive whole");
    let before_end = log.iter().rev().find(|(at, _)| *at <= finished);
    let held = bytes.len() - before_end.map_or(0, |(_, total)| *total);
    let tail = ended.saturating_duration_since(finished);
    println!(
        "{kbit_per_s} kbit/s: {held} bytes and {tail:?} of {:?} after the client's end",
        ended - began
    );
    assert!(held > 0, "the client must be faster than the server");
    server.send("226 done");
    client.expect("226 done");
    tail
}

/// Uploads to a server that does not read. Returns the number of bytes that the gateways and small
/// kernel buffers accept.
fn taken_unread(wait: Option<&str>) -> usize {
    let world = World::start();
    let (mut client, mut server) = world.session();
    if let Some(wait) = wait {
        client.send(wait);
        client.expect("200 LONGHAUL WAIT");
    }
    let (mut client_data, server_data) = passive(&mut client, &mut server);
    for data in [&client_data, &server_data] {
        let socket = SockRef::from(data);
        socket.set_send_buffer_size(16 << 10).expect("an option");
        socket.set_recv_buffer_size(16 << 10).expect("an option");
    }
    client.send("STOR a");
    server.expect("STOR a");
    server.send("150 go");
    client.expect("150 go");
    let quiet = Some(Duration::from_secs(1));
    client_data.set_write_timeout(quiet).expect("an option");
    let bytes = pattern(64 << 10);
    let mut taken = 0;
    while let Ok(count) = client_data.write(&bytes) {
        taken += count;
    }
    taken
}

/// The gateways limit the bytes in flight to a server of unknown rate, because the server may be
/// slow. If the client has a longer timeout, the limit is higher.
#[test]
fn a_client_that_waits_longer_has_more_on_its_way_before_the_server_has_shown_its_pace() {
    let (usual, patient) = (
        taken_unread(None),
        taken_unread(Some("SITE LONGHAUL WAIT 90")),
    );
    // A server of 300 kB/s reads these bytes in five seconds.
    assert!(usual < 1_500_000, "{usual}");
    assert!(patient > usual + 1_500_000, "{patient}, {usual}");
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn a_server_of_one_mbit_has_an_upload_within_five_seconds_of_its_end() {
        let tail = tail(1_000, 16 * 1024, &pattern(125_000 * 15));
        assert!(tail < TAIL_MAX, "{tail:?}");
    }

    #[test]
    fn a_server_of_ten_mbit_has_an_upload_within_five_seconds_of_its_end() {
        let tail = tail(10_000, 64 * 1024, &pattern(1_250_000 * 10));
        assert!(tail < TAIL_MAX, "{tail:?}");
    }

    /// A disk image that ends with zeros. On the link, the zeros are compressed to few bytes, but
    /// the server needs seconds to read them.
    #[test]
    fn an_upload_that_ends_in_zeros_is_with_the_server_within_five_seconds_of_its_end() {
        let mut image = noise(1, 2_500_000 * 4);
        image.resize(2_500_000 * 16, 0);
        let tail = tail(20_000, 64 * 1024, &image);
        assert!(tail < TAIL_MAX, "{tail:?}");
    }

    /// While the path is the bottleneck, the gateways cannot measure how fast the server can read.
    #[test]
    fn so_it_is_behind_a_line_that_was_slower_than_the_server() {
        let world = World::start_with("rate_max = \"16 Mbit/s\"\n", "");
        let mut image = noise(1, 2_000_000 * 3);
        image.resize(2_000_000 * 3 + 2_500_000 * 12, 0);
        let tail = tail_in(&world, 20_000, 64 * 1024, &image);
        assert!(tail < TAIL_MAX, "{tail:?}");
    }
}
