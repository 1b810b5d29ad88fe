//! Tests of coded streams. The link transfers fewer bytes than the files have, and the files arrive
//! unchanged.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    fs,
    io::{Read, Write},
    net::Shutdown,
    os::unix::fs::FileExt as _,
    os::unix::net::UnixStream,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use relay::{status::GatewaySnapshot, transfer_log::TransferRecord};
use socket2::SockRef;

use crate::common::{Gateway, TIMEOUT, World, noise, passive, read_all, text};

/// Uploads `bytes`. Returns the record of the transfer.
fn upload(world: &World, bytes: &[u8]) -> TransferRecord {
    let before = world.near.snapshot().ftp_succeeded.transfers;
    let (mut client, mut server, mut client_data, server_data) = world.uploading();
    let received = thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&server_data));
        client_data.write_all(bytes).expect("the gateway reads");
        client_data.shutdown(Shutdown::Write).expect("an end");
        reader.join().expect("no panic")
    });
    assert!(received == bytes, "other bytes");
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
    finished(world, before)
}

/// Downloads `bytes`. Returns the record of the transfer.
fn download(world: &World, bytes: &[u8]) -> TransferRecord {
    let before = world.near.snapshot().ftp_succeeded.transfers;
    let (mut client, mut server, client_data, mut server_data) = world.downloading();
    let received = thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&client_data));
        server_data.write_all(bytes).expect("the gateway reads");
        drop(server_data);
        reader.join().expect("no panic")
    });
    assert!(received == bytes, "other bytes");
    drop(client_data);
    server.send("226 done");
    client.expect("226 done");
    finished(world, before)
}

/// Waits until more than `before` transfers have finished. Returns the record of the last transfer.
fn finished(world: &World, before: u64) -> TransferRecord {
    let over = |s: &GatewaySnapshot| s.ftp_succeeded.transfers > before;
    world.near.wait_for("the record", over).finished[0].clone()
}

#[test]
fn text_shrinks_on_the_wan_in_both_directions() {
    let world = World::start();
    let bytes = text(6_000_000);
    for record in [upload(&world, &bytes), download(&world, &bytes)] {
        assert_eq!(record.bytes, bytes.len() as u64);
        assert!(record.wan_bytes < record.bytes / 4 * 3, "{record:?}");
        let saved = record.bytes - record.wan_bytes;
        let heads = saved.abs_diff(record.compression_saved_bytes);
        assert!(heads < 1_000, "{record:?}");
        assert!(record.coding_processor_s > 0.0);
    }
    for gateway in [&world.near, &world.far] {
        let totals = gateway.snapshot().optimiser;
        assert_eq!(totals.bytes, 2 * bytes.len() as u64);
        assert!(totals.wan_bytes < totals.bytes / 4 * 3, "{totals:?}");
        let metrics = gateway.http("/metrics");
        let line = format!("longhaul_optimiser_wan_bytes_total {}\n", totals.wan_bytes);
        assert!(metrics.contains(&line), "{metrics}");
    }
}

/// A fast server behind a slow path must not count as a slow server.
#[test]
fn text_shrinks_on_a_slow_line_and_what_is_known_is_referred_to() {
    let slow = "rate_max = \"4 Mbit/s\"\n";
    let world = World::start_with(slow, "");
    let record = upload(&world, &text(4_000_000));
    assert!(record.wan_bytes < record.bytes / 2, "{record:?}");
    let world = World::start_with(&format!("{slow}[store]\nfolder = \".\"\n"), "");
    let known = noise(7, 3_000_000);
    upload(&world, &known);
    // New content comes first.
    let fresh = [&text(500_000)[..], &known].concat();
    let record = upload(&world, &fresh);
    assert!(record.wan_bytes < record.bytes / 3, "{record:?}");
}

#[test]
fn what_cannot_be_compressed_takes_no_more_than_it_has() {
    let world = World::start();
    let bytes = noise(7, 3_000_000);
    for record in [upload(&world, &bytes), download(&world, &bytes)] {
        let heads = record.wan_bytes - record.bytes;
        assert!(heads < record.bytes / 1_000, "{record:?}");
    }
}

#[test]
fn a_pause_holds_nothing_back() {
    let world = World::start();
    let (_client, _server, mut client_data, mut server_data) = world.uploading();
    for word in ["half ", "a ", "file"] {
        client_data.write_all(word.as_bytes()).expect("room");
        let mut received = vec![0; word.len()];
        server_data.read_exact(&mut received).expect("it arrives");
        assert_eq!(received, word.as_bytes());
    }
}

#[test]
fn an_empty_file_is_one() {
    let world = World::start();
    assert_eq!(upload(&world, b"").bytes, 0);
    assert_eq!(download(&world, b"").bytes, 0);
}

#[test]
fn a_listener_can_leave_bytes_as_they_are() {
    let world = World::start_with("", "compress = \"off\"");
    let bytes = text(1_000_000);
    for record in [upload(&world, &bytes), download(&world, &bytes)] {
        assert_eq!((record.bytes, record.wan_bytes), (1_000_000, 1_000_000));
        assert_eq!(record.coding_processor_s, 0.0);
    }
    assert_eq!(world.far.snapshot().optimiser, Default::default());
}

#[test]
fn a_peer_may_have_nothing_compressed_that_goes_to_it() {
    let world = World::start();
    let outcome = world.far.reload_and_tell(|text| {
        text.replace("name = \"site-a\"", "name = \"site-a\"\ncompress = \"off\"")
    });
    assert_eq!(outcome.error, None);
    let bytes = text(3_000_000);
    let up = upload(&world, &bytes);
    assert!(up.wan_bytes < up.bytes / 4 * 3, "{up:?}");
    let down = download(&world, &bytes);
    assert!(down.wan_bytes >= down.bytes, "{down:?}");
}

#[test]
fn a_forward_compresses_if_it_is_to_and_answers_each_word() {
    let world = World::start();
    let outcome = world
        .near
        .reload_and_tell(|text| text.replace("[[forward]]", "[[forward]]\ncompress = \"auto\""));
    assert_eq!(outcome.error, None);
    let mut client = world.forward(0);
    let mut server = world.accept().stream;
    for turn in 0..20 {
        let word = format!("word {turn}");
        let mut received = vec![0; word.len()];
        client.write_all(word.as_bytes()).expect("room");
        server.read_exact(&mut received).expect("it arrives");
        server.write_all(&received).expect("room");
        client.read_exact(&mut received).expect("it arrives");
        assert_eq!(received, word.as_bytes());
    }
    let bytes = text(1_000_000);
    let received = thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&server));
        client.write_all(&bytes).expect("the gateway reads");
        client.shutdown(Shutdown::Write).expect("an end");
        reader.join().expect("no panic")
    });
    assert!(received == bytes, "other bytes");
    let totals = world.far.snapshot().optimiser;
    assert!(totals.wan_bytes < totals.bytes / 4 * 3, "{totals:?}");
}

/// Starts two gateways that both store chunks. `listener` contains further keys of the first
/// listener.
fn with_stores(listener: &str) -> World {
    World::start_with("\n[store]\nfolder = \".\"\n", listener)
}

/// Returns the folders of stores. Omits folders whose names do not start with `begin`.
fn stores(world: &World, begin: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(&world.folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let named = paths.filter(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        path.is_dir() && name.starts_with(begin)
    });
    named.collect()
}

#[test]
fn a_file_crosses_once_whoever_sends_it_and_wherever() {
    let world = with_stores("");
    let bytes = noise(7, 4_000_000);
    let first = upload(&world, &bytes);
    assert!(first.wan_bytes > first.bytes, "{first:?}");
    let again = upload(&world, &bytes);
    assert!(again.wan_bytes < again.bytes / 100, "{again:?}");
    assert!(
        again.deduplication_saved_bytes > again.bytes / 100 * 98,
        "{again:?}"
    );
    let back = download(&world, &bytes);
    assert!(back.wan_bytes < back.bytes / 100, "{back:?}");
    let mut shifted = b"7 bytes".to_vec();
    shifted.extend_from_slice(&bytes);
    let shifted = upload(&world, &shifted);
    assert!(shifted.wan_bytes < shifted.bytes / 20, "{shifted:?}");
}

#[test]
fn a_known_file_takes_less_than_a_thousandth() {
    let world = with_stores("");
    let bytes = noise(7, 12_000_000);
    upload(&world, &bytes);
    for record in [upload(&world, &bytes), download(&world, &bytes)] {
        assert!(record.wan_bytes < record.bytes / 2_000, "{record:?}");
        let saved = record.bytes - record.deduplication_saved_bytes;
        assert!(saved < record.bytes / 100, "{record:?}");
    }
}

#[test]
fn a_store_that_lost_everything_costs_time_and_no_byte() {
    let world = with_stores("");
    let bytes = noise(7, 4_000_000);
    upload(&world, &bytes);
    // The chunks must reach the disk before the test damages them there.
    let [far] = &stores(&world, "site%2Da")[..] else {
        panic!("the far gateway has one store");
    };
    let size = || {
        let entries = fs::read_dir(far).expect("a folder");
        let sizes = entries.map(|it| it.expect("an entry").metadata().expect("a file").len());
        sizes.sum::<u64>()
    };
    let deadline = Instant::now() + TIMEOUT;
    while size() < bytes.len() as u64 {
        assert!(Instant::now() < deadline, "{} bytes on the disk", size());
        thread::sleep(Duration::from_millis(10));
    }
    for entry in fs::read_dir(far).expect("a folder") {
        let path = entry.expect("an entry").path();
        let length = path.metadata().expect("a file").len();
        if length > 100_000 {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .expect("a file");
            file.write_all_at(&vec![0xa5; length as usize], 0)
                .expect("room");
        }
    }
    let again = upload(&world, &bytes);
    assert!(world.far.snapshot().stores[0].damaged > 100, "it is lost");
    let missed = again.wan_bytes as f64 / again.bytes as f64;
    assert!((0.9..1.1).contains(&missed), "{again:?}");
    assert!(
        again.deduplication_saved_bytes < again.bytes / 10,
        "{again:?}"
    );
    let third = upload(&world, &bytes);
    assert!(third.wan_bytes < third.bytes / 100, "{third:?}");
}

/// Uploads `bytes` to a server that reads `bytes_per_s`. Returns the times after which the near
/// gateway and the server have received all bytes.
fn slow_upload(world: &World, bytes: &[u8], bytes_per_s: u64) -> (Duration, Duration) {
    let (_client, _server, mut client_data, mut server_data) = world.uploading();
    // The kernel's buffer belongs to the server. It holds the bytes of a twentieth of a second.
    SockRef::from(&server_data)
        .set_recv_buffer_size(bytes_per_s as usize / 20)
        .expect("a socket option");
    let (begin, count) = (Instant::now(), bytes.len());
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut buffer = vec![0; bytes_per_s as usize / 100];
            let mut received = 0;
            while received < count {
                received += server_data.read(&mut buffer).expect("it arrives");
                let due = Duration::from_micros(received as u64 * 1_000_000 / bytes_per_s);
                thread::sleep(due.saturating_sub(begin.elapsed()));
            }
            begin.elapsed()
        });
        client_data.write_all(bytes).expect("the gateway reads");
        let has_all =
            |s: &GatewaySnapshot| s.transfers.iter().any(|it| it.up_bytes >= count as u64);
        while !has_all(&world.near.snapshot()) && begin.elapsed() < 3 * TIMEOUT {
            thread::sleep(Duration::from_millis(20));
        }
        (begin.elapsed(), reader.join().expect("no panic"))
    })
}

#[test]
fn a_store_is_seen_and_begins_anew_when_it_is_cleared() {
    let world = with_stores("");
    let bytes = noise(7, 4_000_000);
    upload(&world, &bytes);
    upload(&world, &bytes);
    let is_whole = |it: &GatewaySnapshot| it.stores.iter().any(|it| it.disk_bytes > 4_000_000);
    for (gateway, peer) in [(&world.near, "site-b"), (&world.far, "site-a")] {
        let seen = gateway.wait_for("all chunks on the disk", is_whole);
        let [store] = &seen.stores[..] else {
            panic!("{:?}", seen.stores);
        };
        assert_eq!((&*store.peer, &*store.tenant), (peer, ""));
        assert!(store.chunks > 100 && store.segments == 1, "{store:?}");
        assert!(store.index_bytes > 0 && store.damaged == 0, "{store:?}");
        let metrics = gateway.http("/metrics");
        let sample = format!("longhaul_store_chunks{{store=\"{}\"}}", store.store);
        assert!(metrics.contains(&sample), "{metrics}");
        let text = seen.to_string();
        assert!(text.contains(&format!("store {peer}: ")), "{text}");
    }
    let far = world.far.snapshot().stores[0].clone();
    assert!(far.hits > 0, "{far:?}");
    let store = world.near.snapshot().stores[0].store.clone();
    clear(&world.near, &store);
    assert_eq!(world.near.snapshot().stores[0].chunks, 0);
    // The near gateway does not refer to chunks that it does not have.
    let again = upload(&world, &bytes);
    assert!(again.wan_bytes > again.bytes, "{again:?}");
    let known = upload(&world, &bytes);
    assert!(known.wan_bytes < known.bytes / 100, "{known:?}");
}

/// Sends a gateway the request to clear a store, as a program would.
fn clear(gateway: &Gateway, store: &str) {
    let body = format!("{{\"store\":\"{store}\"}}");
    let mut stream = UnixStream::connect(&gateway.socket).expect("the admin socket");
    let request = format!(
        "POST /dashboard/clear HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        gateway.admin,
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("a connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.0 204"), "{answer}");
}

#[test]
fn tenants_do_not_find_chunks_of_each_other() {
    let world = with_stores("");
    let bytes = noise(7, 1_000_000);
    let is_whole = |record: &TransferRecord| record.wan_bytes > record.bytes;
    assert!(is_whole(&upload(&world, &bytes)));
    assert!(!is_whole(&upload(&world, &bytes)));
    let of_peer = |text: &str, peer: &str| {
        let name = format!("name = \"{peer}\"");
        text.replace(&name, &format!("{name}\ntenants = [\"news\"]"))
    };
    let outcome = world.near.reload_and_tell(|text| {
        let listener = "[[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget";
        let of_tenant = listener.replace("target", "tenant = \"news\"\ntarget");
        of_peer(text, "site-b").replace(listener, &of_tenant)
    });
    assert_eq!(outcome.error, None);
    // The far gateway has no such tenant, and stores no chunks of it.
    assert!(is_whole(&upload(&world, &bytes)));
    assert!(is_whole(&upload(&world, &bytes)));
    let outcome = world.far.reload_and_tell(|text| of_peer(text, "site-a"));
    assert_eq!(outcome.error, None);
    assert!(
        is_whole(&upload(&world, &bytes)),
        "what another tenant has moved"
    );
    assert!(!is_whole(&upload(&world, &bytes)));
    assert_eq!(stores(&world, "site%2Da").len(), 2);
}

#[test]
fn a_listener_can_store_no_chunks() {
    let world = with_stores("dedup = \"off\"");
    let bytes = noise(7, 1_000_000);
    for _ in 0..2 {
        let record = upload(&world, &bytes);
        assert!(record.wan_bytes > record.bytes, "{record:?}");
    }
    assert!(stores(&world, "site").is_empty());
}

#[test]
fn many_transfers_of_a_session_are_coded_each_on_its_own() {
    let world = World::start();
    let (mut client, mut server) = world.session();
    for turn in 0..5 {
        let (mut client_data, server_data) = passive(&mut client, &mut server);
        client.send("STOR a");
        server.expect("STOR a");
        server.send("150 go");
        client.expect("150 go");
        let bytes = text(10_000 * turn);
        client_data.write_all(&bytes).expect("the gateway reads");
        drop(client_data);
        assert_eq!(read_all(&server_data), bytes);
        drop(server_data);
        server.send("226 done");
        client.expect("226 done");
    }
}

/// Tests that measure real time. `cargo xtask test` runs them without other tests in parallel.
mod real_time {
    use super::*;

    #[test]
    fn a_known_file_drains_soon_at_a_slow_server() {
        let world = with_stores("");
        let bytes = noise(7, 24_000_000);
        upload(&world, &bytes);
        let (written, read) = slow_upload(&world, &bytes, 4_000_000);
        // After the client's last byte, the server still reads the budget and the buffers. The
        // budget takes two of the upload's six seconds.
        assert!(written > read.mul_f64(0.3), "{written:?} of {read:?}");
    }

    #[test]
    fn what_shrinks_drains_soon_at_a_slow_server() {
        for bytes in [text(2_000_000), vec![0; 2_000_000]] {
            let world = World::start();
            // After the client's last byte, the server still reads for at most five seconds, plus
            // the time for the bytes in its kernel.
            let (written, read) = slow_upload(&world, &bytes, 300_000);
            assert!(written > read.mul_f64(0.3), "{written:?} of {read:?}");
        }
    }
}
