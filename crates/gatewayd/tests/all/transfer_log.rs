//! Tests of the transfer log: its lines for each kind of outcome. The log never delays a transfer.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Instant,
};

use relay::{
    status::FtpTotals,
    transfer_log::{TransferDirection, TransferRecord, TransferType},
};

use crate::common::{Control, TIMEOUT, World, expect_reset, passive, pattern, read_all, reset};

const JSON: &str = "[log]\ntransfer_log = \"transfers.log\"\n";
const XFERLOG: &str =
    "[log]\ntransfer_log = \"transfers.log\"\ntransfer_log_format = \"xferlog\"\n";

/// Waits until the log has `count` lines, and returns them.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            assert_eq!(lines.len(), count, "{text}");
            return lines;
        }
        assert!(Instant::now() < deadline, "{count} lines are due: {text}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn records(world: &World, count: usize) -> Vec<TransferRecord> {
    let lines = lines(&world.folder.join("transfers.log"), count);
    let records = lines.iter().map(|line| serde_json::from_str(line));
    records.collect::<Result<_, _>>().expect("JSON")
}

/// Performs a complete download with `command`.
fn download(client: &mut Control, server: &mut Control, command: &str, bytes: &[u8]) {
    let (client_data, mut server_data) = passive(client, server);
    client.send(command);
    server.expect(command);
    server.send("150 go");
    client.expect("150 go");
    server_data.write_all(bytes).expect("the gateway reads");
    drop(server_data);
    assert_eq!(read_all(&client_data), bytes);
    server.send("226 done");
    client.expect("226 done");
}

/// Performs a complete upload with `command`.
fn upload(client: &mut Control, server: &mut Control, command: &str, bytes: &[u8]) {
    let (mut client_data, server_data) = passive(client, server);
    client.send(command);
    server.expect(command);
    server.send("150 go");
    client.expect("150 go");
    client_data.write_all(bytes).expect("the gateway reads");
    client_data.shutdown(Shutdown::Write).expect("an end");
    assert_eq!(read_all(&server_data), bytes);
    drop(server_data);
    server.send("226 done");
    client.expect("226 done");
}

fn set_type(client: &mut Control, server: &mut Control, code: &str) {
    client.send(&format!("TYPE {code}"));
    client.expect_code("200");
    server.expect(&format!("TYPE {code}"));
    server.send("200 ok");
}

fn log_in(client: &mut Control, server: &mut Control) {
    for (command, reply) in [
        ("USER jane", "331 password"),
        ("PASS s3cret", "230 welcome"),
    ] {
        client.send(command);
        server.expect(command);
        server.send(reply);
        client.expect(reply);
    }
    // The far gateway prefetches the replies to these commands.
    for (command, reply) in [
        ("SYST", "215 UNIX"),
        ("FEAT", "211 none"),
        ("PWD", "550 no"),
    ] {
        server.expect(command);
        server.send(reply);
    }
}

#[test]
fn a_line_has_client_file_protocol_and_outcome() {
    let world = World::start_with("", JSON);
    let (mut client, mut server) = world.session();
    let at = client.stream.local_addr().expect("a connection");
    log_in(&mut client, &mut server);
    set_type(&mut client, &mut server, "I");
    let bytes = pattern(100_000);
    upload(&mut client, &mut server, "STOR a b", &bytes);
    set_type(&mut client, &mut server, "A");
    download(&mut client, &mut server, "NLST", b"a b\r\n");
    let [stored, listed]: [_; 2] = records(&world, 2).try_into().expect("two");
    assert_eq!(stored.schema, 1);
    assert_eq!(stored.client, at.to_string());
    assert_eq!(stored.user, "jane");
    assert_eq!(stored.door, world.near.ftp[0].to_string());
    assert_eq!(stored.peer, "site-b");
    let target = world.server.local_addr().expect("bound").to_string();
    assert_eq!(stored.server, target);
    assert_eq!(
        (stored.verb.as_str(), stored.path.as_str()),
        ("STOR", "a b")
    );
    assert_eq!(stored.direction, Some(TransferDirection::Upload));
    assert_eq!(stored.transfer_type, TransferType::Binary);
    assert_eq!(stored.bytes, 100_000);
    assert_eq!((stored.reply_code, stored.succeeded), (Some(226), true));
    assert!(stored.duration_s > 0.0 && stored.rate_bit_per_s > 0);
    assert!(stored.limited_by.is_some());
    assert!(!stored.client_tls && !stored.server_tls);
    assert_eq!(listed.direction, Some(TransferDirection::Listing));
    assert_eq!(listed.transfer_type, TransferType::Ascii);
    assert_eq!(listed.bytes, 5);
    let text = std::fs::read_to_string(world.folder.join("transfers.log")).expect("the log");
    assert!(!text.contains("s3cret"), "{text}");
    let snapshot = world.near.snapshot();
    assert_eq!(snapshot.finished, [listed, stored]);
    let shown = snapshot.to_string();
    assert!(shown.contains("STOR \"a b\""), "{shown}");
    let metadata = std::fs::metadata(world.folder.join("transfers.log")).expect("the log");
    let others = metadata.permissions().mode() & 0o137;
    assert_eq!(others, 0, "nobody else reads it");
}

#[test]
fn a_path_with_quotes_and_control_characters_stays_in_its_line() {
    let world = World::start_with("", JSON);
    let (mut client, mut server) = world.session();
    let path = "a\"b\u{1}\u{b}\u{7f}\\ü\u{2028}c";
    let command = format!("RETR {path}");
    download(&mut client, &mut server, &command, b"x");
    let path_then = records(&world, 1).remove(0).path;
    assert_eq!(path_then, path);
    let text = std::fs::read_to_string(world.folder.join("transfers.log")).expect("the log");
    let odd = |c: char| c != '\n' && c.is_control() || c == '\u{2028}';
    assert!(!text.contains(odd), "{text:?}");
}

#[test]
fn xferlog_has_downloads_and_uploads_and_no_listings() {
    let world = World::start_with("", XFERLOG);
    let (mut client, mut server) = world.session();
    log_in(&mut client, &mut server);
    download(&mut client, &mut server, "LIST", b"a b\r\n");
    set_type(&mut client, &mut server, "I");
    upload(&mut client, &mut server, "STOR /a b", b"12345");
    let (client_data, mut server_data) = passive(&mut client, &mut server);
    client.send("RETR /c");
    server.expect("RETR /c");
    server.send("150 go");
    client.expect("150 go");
    server_data.write_all(b"half").expect("the gateway reads");
    (&client_data).read_exact(&mut [0; 4]).expect("it arrives");
    reset(server_data);
    expect_reset(&client_data);
    server.send("426 broken");
    client.expect("426 broken");
    let lines = lines(&world.folder.join("transfers.log"), 2);
    let fields: Vec<Vec<_>> = lines
        .iter()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(fields[0].len(), 18, "{lines:?}");
    let whole = [
        "127.0.0.1",
        "5",
        "/a_b",
        "b",
        "_",
        "i",
        "r",
        "jane",
        "ftp",
        "0",
        "*",
        "c",
    ];
    assert_eq!(fields[0][6..], whole);
    let broken = [
        "127.0.0.1",
        "4",
        "/c",
        "b",
        "_",
        "o",
        "r",
        "jane",
        "ftp",
        "0",
        "*",
        "i",
    ];
    assert_eq!(fields[1][6..], broken);
}

#[test]
fn a_log_that_was_moved_away_is_opened_again_at_a_reload() {
    let world = World::start_with("", JSON);
    let (log, moved) = (world.folder.join("transfers.log"), world.folder.join("old"));
    let (mut client, mut server) = world.session();
    download(&mut client, &mut server, "RETR a", b"1");
    lines(&log, 1);
    std::fs::rename(&log, &moved).expect("a free name");
    download(&mut client, &mut server, "RETR b", b"2");
    lines(&moved, 2);
    world.near.reload(str::to_owned);
    // The new file exists before any line is written.
    let deadline = Instant::now() + TIMEOUT;
    while !log.exists() {
        assert!(Instant::now() < deadline, "not opened again");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    download(&mut client, &mut server, "RETR c", b"3");
    assert_eq!(records(&world, 1)[0].path, "c");
    lines(&moved, 2);
}

#[test]
fn a_full_disk_hinders_no_transfer_and_is_counted() {
    let world = World::start_with("", &JSON.replace("transfers.log", "/dev/full"));
    let (mut client, mut server) = world.session();
    for _ in 0..3 {
        download(&mut client, &mut server, "RETR a", b"bytes");
    }
    let snapshot = world
        .near
        .wait_for("dropped lines", |s| s.transfer_log_dropped_total == 3);
    assert_eq!(snapshot.ftp_succeeded.transfers, 3);
    assert!(
        world
            .near
            .http("/metrics")
            .contains("\nlonghaul_transfer_log_dropped_total 3\n")
    );
}

/// Counts of transfers that the test's client has made itself.
#[derive(Debug, Default, PartialEq)]
struct Count {
    succeeded: FtpTotals,
    failed: FtpTotals,
}

impl Count {
    fn add(&mut self, succeeded: bool, upload_bytes: usize, download_bytes: usize) {
        let totals = match succeeded {
            true => &mut self.succeeded,
            false => &mut self.failed,
        };
        totals.transfers += 1;
        totals.upload_bytes += upload_bytes as u64;
        totals.download_bytes += download_bytes as u64;
    }
}

/// A session with an open data connection, after the server's preliminary reply to a transfer.
struct Running {
    client: Control,
    server: Control,
    client_data: TcpStream,
    server_data: TcpStream,
}

impl Running {
    fn start(world: &World, command: &str) -> Self {
        let (mut client, mut server, client_data, server_data) = world.prepared();
        client.send(command);
        server.expect(command);
        server.send("150 go");
        client.expect("150 go");
        Self {
            client,
            server,
            client_data,
            server_data,
        }
    }

    /// Starts a download. Returns after the client has received `bytes`.
    fn downloaded(world: &World, bytes: &[u8]) -> Self {
        let mut running = Self::start(world, "RETR a");
        let sent = running.server_data.write_all(bytes);
        sent.expect("the gateway reads");
        let mut received = vec![0; bytes.len()];
        let read = running.client_data.read_exact(&mut received);
        read.expect("it arrives");
        running
    }

    /// Starts an upload. Returns after the server has received `bytes`.
    fn uploaded(world: &World, bytes: &[u8]) -> Self {
        let mut running = Self::start(world, "STOR a");
        let sent = running.client_data.write_all(bytes);
        sent.expect("the gateway reads");
        let mut received = vec![0; bytes.len()];
        let read = running.server_data.read_exact(&mut received);
        read.expect("it arrives");
        running
    }
}

/// Performs transfers with each kind of outcome. Returns the client's counts.
fn transfers_of_each_kind(world: &World, rounds: usize) -> Count {
    let mut count = Count::default();
    for round in 0..rounds {
        let bytes = pattern(1 + round % 40 * 997);
        let length = bytes.len();
        let (mut client, mut server) = world.session();
        upload(&mut client, &mut server, "STOR a", &bytes);
        count.add(true, length, 0);
        download(&mut client, &mut server, "RETR a", &bytes);
        count.add(true, 0, length);
        download(&mut client, &mut server, "LIST", &bytes);
        count.add(true, 0, length);

        // The server refuses the transfer.
        let (unused, refused) = passive(&mut client, &mut server);
        client.send("RETR a");
        server.expect("RETR a");
        server.send("550 no such file");
        drop(refused);
        client.expect("550 no such file");
        drop(unused);
        count.add(false, 0, 0);

        // The client does not connect, and the server gives up.
        client.send("PASV");
        let listener = server.open_data_port();
        client.expect_code("227");
        client.send("RETR a");
        server.expect("RETR a");
        server.send("425 nobody connects");
        drop(listener);
        client.expect("425 nobody connects");
        count.add(false, 0, 0);

        // The client aborts the download.
        let mut running = Running::downloaded(world, &bytes);
        running.client.send("ABOR");
        running.server.expect("ABOR");
        running.server.send("426 broken");
        running.server.send("226 aborted");
        running.client.expect("426 broken");
        running.client.expect("226 aborted");
        expect_reset(&running.client_data);
        count.add(false, 0, length);

        // The client resets its data connection.
        let mut running = Running::uploaded(world, &bytes);
        reset(running.client_data);
        expect_reset(&running.server_data);
        running.server.send("426 broken");
        running.client.expect_code("426");
        count.add(false, length, 0);

        // The client vanishes with all its connections.
        let running = Running::downloaded(world, &bytes);
        reset(running.client.stream);
        reset(running.client_data);
        expect_reset(&running.server_data);
        count.add(false, 0, length);

        // The server resets its data connection.
        let mut running = Running::downloaded(world, &bytes);
        reset(running.server_data);
        expect_reset(&running.client_data);
        running.server.send("426 broken");
        running.client.expect_code("426");
        count.add(false, 0, length);
    }
    count
}

#[test]
fn client_log_and_metrics_count_the_same_transfers_and_bytes() {
    let world = World::start_with("", JSON);
    let rounds = std::env::var("SIEGE_ROUNDS").map_or(40, |n| n.parse().expect("a number"));
    let count = transfers_of_each_kind(&world, rounds);
    let all = count.succeeded.transfers + count.failed.transfers;
    assert_eq!(all, 9 * rounds as u64, "each kind");
    world.near.wait_for("the end of all", |s| {
        s.ftp_succeeded.transfers + s.ftp_failed.transfers >= all
    });

    let mut logged = Count::default();
    let mut codes = std::collections::BTreeMap::<_, u64>::new();
    for record in records(&world, all as usize) {
        let (up, down) = match record.direction.expect("known commands only") {
            TransferDirection::Upload => (record.bytes, 0),
            TransferDirection::Download | TransferDirection::Listing => (0, record.bytes),
        };
        logged.add(record.succeeded, up as usize, down as usize);
        *codes.entry(record.reply_code).or_default() += 1;
    }
    assert_eq!(logged, count, "the log");
    let of_each = rounds as u64;
    let expected = [
        (None, of_each),
        (Some(226), 3 * of_each),
        (Some(425), of_each),
        (Some(426), 3 * of_each),
        (Some(550), of_each),
    ];
    assert_eq!(codes, expected.into());

    let metrics = world.near.http("/metrics");
    let metric = |name: &str, outcome: &str| {
        let start = format!("longhaul_ftp_{name}_total{{outcome=\"{outcome}\"}} ");
        let found = metrics.lines().find_map(|l| l.strip_prefix(&start));
        found.expect("the metric").parse::<u64>().expect("a count")
    };
    let totals = |outcome| FtpTotals {
        transfers: metric("transfers", outcome),
        upload_bytes: metric("upload_bytes", outcome),
        download_bytes: metric("download_bytes", outcome),
    };
    let measured = Count {
        succeeded: totals("succeeded"),
        failed: totals("failed"),
    };
    assert_eq!(measured, count, "/metrics");
    for line in [
        format!(
            "longhaul_ftp_transfer_duration_seconds_count {}",
            count.succeeded.transfers
        ),
        format!(
            "longhaul_ftp_transfer_duration_seconds_bucket{{le=\"+Inf\"}} {}",
            count.succeeded.transfers
        ),
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    assert_eq!(
        world.near.snapshot().finished.len(),
        100,
        "the last of them"
    );
    println!("{all} transfers: {count:?}; reply codes {codes:?}");
}
