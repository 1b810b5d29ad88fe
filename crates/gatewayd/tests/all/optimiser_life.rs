//! Tests of coded streams during reloads, shutdowns and half-closed connections, and of coded
//! transfers that the client or the server aborts.
#![allow(
    clippy::disallowed_methods,
    reason = "plays the programs around the gateways"
)]

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    panic,
    path::Path,
    sync::{
        Once,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use relay::{status::GatewaySnapshot, transfer_log::TransferRecord};

use crate::common::{
    Control, Gateway, Prepared, TIMEOUT, World, expect_reset, folder, noise, passive, read_all,
    reset, text,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// A running transfer, with its control connections and its data connections.
struct Transfer {
    client: Control,
    server: Control,
    from: TcpStream,
    to: TcpStream,
}

impl Transfer {
    fn begin(world: &World, direction: Direction) -> Self {
        let (client, server, from, to): Prepared = match direction {
            Direction::Up => world.uploading(),
            Direction::Down => {
                let (client, server, to, from) = world.downloading();
                (client, server, from, to)
            }
        };
        // If a gateway hangs, the test must not hang.
        from.set_write_timeout(Some(TIMEOUT))
            .expect("a socket option");
        Self {
            client,
            server,
            from,
            to,
        }
    }

    /// Sends these bytes, and reads them at the receiver.
    fn bring(&mut self, bytes: &[u8]) {
        let Self { from, to, .. } = self;
        let mut received = vec![0; bytes.len()];
        thread::scope(|scope| {
            scope.spawn(|| from.write_all(bytes).expect("the gateway reads"));
            to.read_exact(&mut received).expect("it arrives");
        });
        assert!(received == bytes, "other bytes");
    }

    /// Sends the last bytes and ends the transfer.
    fn finish(mut self, bytes: &[u8]) -> (Control, Control) {
        let Self { from, to, .. } = &mut self;
        let received = thread::scope(|scope| {
            scope.spawn(|| {
                from.write_all(bytes).expect("the gateway reads");
                from.shutdown(Shutdown::Write).expect("an end");
            });
            read_all(to)
        });
        assert!(received == bytes, "other bytes");
        let Self {
            mut client,
            mut server,
            from,
            to,
        } = self;
        drop((from, to));
        server.send("226 done");
        client.expect("226 done");
        (client, server)
    }
}

/// Performs one complete transfer. Returns the record of the transfer.
fn move_whole(world: &World, direction: Direction, bytes: &[u8]) -> TransferRecord {
    let before = world.near.snapshot().ftp_succeeded.transfers;
    Transfer::begin(world, direction).finish(bytes);
    records(world, before + 1).swap_remove(0)
}

/// Starts one transfer for each direction, and transfers the first half of `bytes`. Returns the
/// transfers and the second half.
fn half_moved<'a>(world: &World, bytes: &'a [u8]) -> ([Transfer; 2], &'a [u8]) {
    let (begun, rest) = bytes.split_at(bytes.len() / 2);
    let running = DIRECTIONS.map(|direction| {
        let mut transfer = Transfer::begin(world, direction);
        transfer.bring(begun);
        transfer
    });
    (running, rest)
}

/// Waits until `succeeded` transfers have succeeded. Returns their records, the newest first.
fn records(world: &World, succeeded: u64) -> Vec<TransferRecord> {
    let over = |s: &GatewaySnapshot| s.ftp_succeeded.transfers >= succeeded;
    let seen = world.near.wait_for("the records", over).finished;
    seen.into_iter().filter(|it| it.succeeded).collect()
}

/// Starts two gateways that both store chunks.
fn with_stores() -> World {
    count_panics();
    World::start_with("\n[store]\nfolder = \".\"\n", "")
}

/// Returns the configuration with coding disabled at the first listener.
fn uncoded(text: &str) -> String {
    let listener = "[[ftp]]\nlisten = \"127.0.0.1:0\"\ntarget";
    assert!(text.contains(listener), "{text}");
    text.replace(
        listener,
        &listener.replace("target", "compress = \"off\"\ndedup = \"off\"\ntarget"),
    )
}

fn assert_uncoded(record: &TransferRecord) {
    assert_eq!(record.wan_bytes, record.bytes, "{record:?}");
    assert_eq!(record.deduplication_saved_bytes, 0, "{record:?}");
}

/// Asserts that the gateways coded the transfer. The size on the link depends on the receiver's
/// rate, and thus on the load of the machine.
fn assert_coded(record: &TransferRecord) {
    assert!(record.wan_bytes < record.bytes, "{record:?}");
    assert!(record.coding_processor_s > 0.0, "{record:?}");
}

/// Asserts that the gateways have sent references to stored chunks.
fn expect_references(world: &World) {
    let totals = world.near.snapshot().optimiser;
    assert!(totals.deduplication_saved_bytes > 1_000_000, "{totals:?}");
}

/// Checks `condition` repeatedly until it holds. Panics after a timeout.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Number of panics of gateway threads in this process.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Starts to count panics. Without this count, a panic of a task would remain unnoticed.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = thread::current();
            let is_ours = |name: &str| GATEWAY_THREADS.iter().any(|it| name.starts_with(it));
            if thread.name().is_some_and(is_ours) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            usual(info);
        }));
    });
}

/// Asserts that no transfer is open, and that no gateway has panicked.
fn expect_calm(world: &World) {
    for gateway in [&world.near, &world.far] {
        gateway.wait_for("the end of all transfers", |s| s.transfers.is_empty());
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a gateway panicked");
}

/// A gateway that is dropped during its start can notice the end of its link.
#[test]
fn a_gateway_that_is_dropped_during_its_start_does_not_panic() {
    count_panics();
    let (folder, ..) = folder();
    for turn in 0..200 {
        let gateway = Gateway::start(&folder, "a.key", "");
        thread::sleep(Duration::from_micros(turn * 10));
        drop(gateway);
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a gateway panicked");
}

#[test]
#[should_panic(expected = "the gateway ended: Ok(Err(TransferLog")]
fn a_gateway_that_fails_fails_its_own_test() {
    let (folder, ..) = folder();
    let log = "[log]\ntransfer_log = \"missing/transfers.log\"\n";
    let gateway = Gateway::start(&folder, "a.key", log);
    let deadline = Instant::now() + TIMEOUT;
    while !gateway.has_ended() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    drop(gateway);
}

#[test]
fn a_reload_that_turns_coding_off_leaves_running_transfers_coded_and_whole() {
    let world = with_stores();
    let bytes = text(4_000_000);
    move_whole(&world, Direction::Up, &bytes);
    let (running, rest) = half_moved(&world, &bytes);
    let outcome = world.near.reload_and_tell(uncoded);
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.taken, ["[[ftp]] 127.0.0.1:0 changed"]);
    for direction in DIRECTIONS {
        assert_uncoded(&move_whole(&world, direction, &bytes));
    }
    for transfer in running {
        transfer.finish(rest);
    }
    for record in &records(&world, 5)[..2] {
        assert_eq!(record.bytes, bytes.len() as u64);
        assert_coded(record);
    }
    let outcome = world.near.reload_and_tell(str::to_owned);
    assert_eq!(outcome.error, None);
    for direction in DIRECTIONS {
        assert_coded(&move_whole(&world, direction, &bytes));
    }
    expect_references(&world);
    expect_calm(&world);
}

#[test]
fn a_session_from_before_a_reload_moves_its_next_files_whole() {
    let world = with_stores();
    let bytes = text(1_000_000);
    let (mut client, mut server) = world.session();
    for change in [str::to_owned, uncoded, str::to_owned, uncoded] {
        let outcome = world.near.reload_and_tell(change);
        assert_eq!(outcome.error, None);
        let (from, to) = passive(&mut client, &mut server);
        client.send("STOR a");
        server.expect("STOR a");
        server.send("150 go");
        client.expect("150 go");
        let transfer = Transfer {
            client,
            server,
            from,
            to,
        };
        (client, server) = transfer.finish(&bytes);
    }
    expect_calm(&world);
}

#[test]
fn a_far_gateway_that_is_to_code_no_more_ends_what_it_codes() {
    let world = with_stores();
    let bytes = text(4_000_000);
    move_whole(&world, Direction::Up, &bytes);
    let (running, rest) = half_moved(&world, &bytes);
    let outcome = world.far.reload_and_tell(|text| {
        let name = "name = \"site-a\"\n";
        let off = "compress = \"off\"\ndedup = \"off\"\n";
        text.replace(name, &format!("{name}{off}"))
    });
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.taken, ["[[peer]] \"site-a\" changed"]);
    let down = move_whole(&world, Direction::Down, &bytes);
    assert_eq!(down.deduplication_saved_bytes, 0, "{down:?}");
    assert!(down.wan_bytes >= down.bytes, "{down:?}");
    for transfer in running {
        transfer.finish(rest);
    }
    for record in &records(&world, 4)[..2] {
        assert_coded(record);
    }
    expect_references(&world);
    expect_calm(&world);
}

/// The gateway that a test shuts down.
#[derive(Debug, Clone, Copy)]
enum Side {
    Near,
    Far,
}

const SIDES: [Side; 2] = [Side::Near, Side::Far];

fn gateway_at(world: &mut World, side: Side) -> &mut Gateway {
    match side {
        Side::Near => &mut world.near,
        Side::Far => &mut world.far,
    }
}

/// Whether the gateway with this admin socket refuses orders, because it shuts down.
fn takes_no_orders(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return true;
    };
    write!(stream, "POST /reload HTTP/1.0\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    !answer.starts_with(b"HTTP/1.0 200")
}

/// Sets `drain_max` of the near gateway to a minute, so that transfers can finish at a shutdown.
fn drain_for_long(world: &World) {
    let outcome = world
        .near
        .reload_and_tell(|text| text.replace("drain_max = \"1 s\"", "drain_max = \"1 min\""));
    assert_eq!(outcome.error, None);
}

#[test]
fn a_coded_transfer_that_ends_in_time_is_whole_though_its_gateway_shuts_down() {
    for direction in DIRECTIONS {
        let mut world = with_stores();
        let bytes = noise(1, 3_000_000);
        move_whole(&world, Direction::Up, &bytes);
        drain_for_long(&world);
        let mut transfer = Transfer::begin(&world, direction);
        let (begun, rest) = bytes.split_at(bytes.len() / 2);
        transfer.bring(begun);
        let socket = world.near.socket.clone();
        let cut_short = thread::scope(|scope| {
            let near = &mut world.near;
            let stopped = scope.spawn(|| near.shut_down());
            wait_until("the shutdown", || takes_no_orders(&socket));
            transfer.finish(rest);
            stopped.join().expect("no panic")
        });
        assert!(cut_short.transfers.is_empty(), "{cut_short:?}");
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a gateway panicked");
}

#[test]
fn a_gateway_that_shuts_down_refuses_new_clients_while_it_drains() {
    let mut world = with_stores();
    drain_for_long(&world);
    let transfer = Transfer::begin(&world, Direction::Up);
    let (socket, listener) = (world.near.socket.clone(), world.near.ftp[0]);
    thread::scope(|scope| {
        let near = &mut world.near;
        let stopped = scope.spawn(|| near.shut_down());
        wait_until("the shutdown", || takes_no_orders(&socket));
        let refused = || TcpStream::connect(listener).is_err();
        wait_until("the end of the listeners", refused);
        assert!(!stopped.is_finished(), "it waits for the transfer");
        transfer.finish(b"the rest");
    });
}

#[test]
fn a_coded_transfer_that_a_shutdown_cuts_short_never_ends_in_order() {
    thread::scope(|scope| {
        for side in SIDES {
            for direction in DIRECTIONS {
                scope.spawn(move || cut_short(side, direction));
            }
        }
    });
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a gateway panicked");
}

/// Shuts down a gateway while many bytes are in flight to a receiver that does not read.
fn cut_short(side: Side, direction: Direction) {
    let mut world = with_stores();
    let bytes = noise(2, 12_000_000);
    move_whole(&world, Direction::Up, &bytes);
    let Transfer {
        client: _client,
        server: _server,
        mut from,
        mut to,
    } = Transfer::begin(&world, direction);
    let begun = &mut vec![0; 1_000_000][..];
    let received = thread::scope(|scope| {
        // The sender writes until the connection breaks, and never ends by itself.
        scope.spawn(|| while from.write_all(&bytes).is_ok() {});
        to.read_exact(begun).expect("it arrives");
        assert!(begun == &bytes[..begun.len()], "other bytes");
        let coded = world.near.snapshot().optimiser.bytes;
        assert!(coded > bytes.len() as u64, "the transfer must be coded");
        let cut_short = gateway_at(&mut world, side).shut_down();
        assert_eq!(cut_short.transfers.len(), 1, "{cut_short:?}");
        expect_part(&to)
    });
    let expected = bytes.iter().cycle().skip(begun.len());
    assert!(
        received.iter().eq(expected.take(received.len())),
        "{side:?}, {direction:?}: other bytes"
    );
}

/// Reads until the connection is reset. Returns the bytes before the reset.
fn expect_part(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let error = stream
        .read_to_end(&mut bytes)
        .expect_err("an orderly end of a part");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    bytes
}

/// Starts a world whose forward compresses data.
fn with_forward() -> World {
    let world = with_stores();
    let outcome = world
        .near
        .reload_and_tell(|text| text.replace("[[forward]]", "[[forward]]\ncompress = \"auto\""));
    assert_eq!(outcome.error, None);
    world
}

/// Opens a forwarded connection. Returns the sockets of the client and of the server.
fn forwarded(world: &World) -> (TcpStream, TcpStream) {
    (world.forward(0), world.accept().stream)
}

/// Sends `question` from `first` to `second`, and then `answer` back. `first` closes its sending
/// half before the answer.
fn converse(mut first: TcpStream, mut second: TcpStream, question: &[u8], answer: &[u8]) {
    let asked = thread::scope(|scope| {
        scope.spawn(|| {
            first.write_all(question).expect("the gateway reads");
            first.shutdown(Shutdown::Write).expect("half an end");
        });
        read_all(&second)
    });
    assert!(asked == question, "another question");
    let answered = thread::scope(|scope| {
        scope.spawn(move || {
            second.write_all(answer).expect("the gateway reads");
            second.shutdown(Shutdown::Write).expect("an end");
            assert_eq!(second.read(&mut [0]).expect("an orderly end"), 0);
        });
        read_all(&first)
    });
    assert!(answered == answer, "another answer");
}

#[test]
fn whoever_half_closes_a_compressed_forward_reads_a_long_answer() {
    let world = with_forward();
    let (word, long) = (text(40), text(5_000_000));
    for (question, answer) in [(&word, &long), (&long, &long), (&long, &word)] {
        let (client, server) = forwarded(&world);
        converse(client, server, question, answer);
        let (client, server) = forwarded(&world);
        converse(server, client, question, answer);
    }
    expect_calm(&world);
    let totals = world.far.snapshot().optimiser;
    assert!(totals.bytes > 40_000_000, "{totals:?}");
    assert!(totals.wan_bytes < totals.bytes / 4 * 3, "{totals:?}");
}

/// Resets `from` while bytes are in flight to `to`. `to` may already have closed its sending half.
fn break_off(mut from: TcpStream, to: &TcpStream, bytes: &[u8]) {
    let begun = bytes.len() / 2;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut received = vec![0; begun];
            (&*to).read_exact(&mut received).expect("it arrives");
            assert!(received == bytes[..begun], "other bytes");
        });
        from.write_all(&bytes[..begun]).expect("the gateway reads");
    });
    from.write_all(&bytes[begun..]).expect("the gateway reads");
    reset(from);
    expect_reset(to);
}

#[test]
fn a_compressed_forward_that_one_end_resets_is_reset_at_the_other() {
    let world = with_forward();
    let bytes = text(2_000_000);
    for half_closes in [false, true] {
        for client_resets in [false, true] {
            let (client, server) = forwarded(&world);
            let (mut from, to) = match client_resets {
                true => (client, server),
                false => (server, client),
            };
            if half_closes {
                to.shutdown(Shutdown::Write).expect("half an end");
                assert_eq!(from.read(&mut [0]).expect("an orderly end"), 0);
            }
            break_off(from, &to, &bytes);
        }
    }
    expect_calm(&world);
}

/// Method by which a client aborts a transfer.
#[derive(Debug, Clone, Copy)]
enum End {
    /// An orderly close. If bytes are unread, the kernel sends a reset nevertheless.
    Closes,
    Resets,
}

/// Acts as a client that reads `count` bytes of a download and disconnects.
fn abort_download(world: &World, bytes: &[u8], count: usize, end: End) {
    let Transfer {
        mut client,
        mut server,
        mut from,
        mut to,
    } = Transfer::begin(world, Direction::Down);
    thread::scope(|scope| {
        // The sender would write for ever.
        scope.spawn(|| while from.write_all(bytes).is_ok() {});
        let mut received = vec![0; count];
        to.read_exact(&mut received).expect("it arrives");
        assert!(received == bytes[..count], "other bytes");
        match end {
            End::Closes => drop(to),
            End::Resets => reset(to),
        }
    });
    server.send("426 broken");
    client.expect("426 broken");
}

/// Acts as a client that resets an upload after the server has read `count` bytes.
fn abort_upload(world: &World, bytes: &[u8], count: usize) {
    let Transfer {
        mut client,
        mut server,
        mut from,
        mut to,
    } = Transfer::begin(world, Direction::Up);
    from.set_write_timeout(Some(Duration::from_millis(20)))
        .expect("a socket option");
    let is_read = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut written = 0;
            // The client writes more than the server reads, so that bytes are always in flight.
            while !is_read.load(Ordering::Relaxed) {
                if let Ok(more) = from.write(&bytes[written % bytes.len()..]) {
                    written += more;
                }
            }
            assert!(written > count);
        });
        let mut received = vec![0; count];
        to.read_exact(&mut received).expect("it arrives");
        assert!(received == bytes[..count], "other bytes");
        is_read.store(true, Ordering::Relaxed);
    });
    reset(from);
    expect_reset(&to);
    server.send("426 broken");
    client.expect("426 broken");
}

/// Byte offsets at which the tests abort transfers of 3 MB.
const MOMENTS: [usize; 4] = [1, 100_000, 1_100_000, 2_900_000];

#[test]
fn a_coded_download_that_the_client_leaves_does_no_harm_to_the_next_one() {
    let world = with_stores();
    for (turn, count) in MOMENTS.into_iter().enumerate() {
        for end in [End::Closes, End::Resets] {
            let bytes = noise(turn as u64 * 2 + end as u64, 3_000_000);
            abort_download(&world, &bytes, count, end);
            move_whole(&world, Direction::Down, &bytes);
            // Now both gateways store the content, and an aborted transfer consists of references.
            abort_download(&world, &bytes, count, end);
            assert_coded(&move_whole(&world, Direction::Down, &bytes));
        }
    }
    assert_eq!(world.near.snapshot().ftp_failed.transfers, 16);
    expect_references(&world);
    expect_calm(&world);
}

#[test]
fn a_coded_upload_that_the_client_resets_does_no_harm_to_the_next_one() {
    let world = with_stores();
    for (turn, count) in MOMENTS.into_iter().enumerate() {
        let bytes = noise(100 + turn as u64, 3_000_000);
        abort_upload(&world, &bytes, count);
        move_whole(&world, Direction::Up, &bytes);
        abort_upload(&world, &bytes, count);
        assert_coded(&move_whole(&world, Direction::Up, &bytes));
    }
    assert_eq!(world.near.snapshot().ftp_failed.transfers, 8);
    expect_references(&world);
    expect_calm(&world);
}

/// Prefixes of the names of gateway threads.
const GATEWAY_THREADS: [&str; 4] = ["tokio-", "longhaul-", "chunk-store", "transfer-log"];
