//! Clients that leave while a queue is full, and clients that send too many requests.

use std::{
    io::Write as _,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use units::ByteCount;

use crate::{
    common::{TIMEOUT, World, assert_success, content, errors, run_async, run_async_with},
    raw_sftp::{answer, number, packet, string},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_ends_an_sftp_channel_whose_client_left_with_a_full_window() {
    let world = World::start().await;
    std::fs::write(world.path("large"), content(60_000_000)).expect("written");
    let mut client = world
        .ssh(&["-s", "sftp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let mut input = client.stdin.take().expect("piped");
    let mut output = client.stdout.take().expect("piped");
    let name = world.path("large").display().to_string().into_bytes();
    let asked = tokio::task::spawn_blocking(move || {
        input.write_all(&packet(1, &[&3_u32.to_be_bytes()]))?;
        answer(&mut output)?;
        let open = [number(0), string(&name), number(1), number(0)].concat();
        input.write_all(&packet(3, &[&open]))?;
        // The handle follows the type and the number of the request.
        let handle = answer(&mut output)?.split_off(5);
        for index in 0..1500_u32 {
            if index == 1400 {
                // The queue for the client is full by now.
                std::thread::sleep(Duration::from_secs(2));
            }
            let offset = u64::from(index) * 32_768;
            let range = [&offset.to_be_bytes()[..], &number(32_768)].concat();
            input.write_all(&packet(5, &[&number(index), &handle, &range]))?;
        }
        Ok::<_, std::io::Error>((input, output))
    });
    let _streams = asked.await.expect("no panic").expect("answers");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!world.near.registry().open_transfers().is_empty());
    client.kill().expect("a child");
    let _ = client.wait();
    wait_for_end(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_ends_a_program_that_does_not_read_when_its_client_is_gone() {
    let world = World::with(|it| it.link_memory_max = LITTLE_MEMORY).await;
    let mut client = world
        .ssh(&["sleep 1000"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("ssh is installed");
    let mut input = client.stdin.take().expect("piped");
    let count = Arc::new(AtomicUsize::new(0));
    let writer_count = count.clone();
    let written = std::thread::spawn(move || {
        content(40_000_000).chunks(65_536).try_for_each(|chunk| {
            writer_count.fetch_add(chunk.len(), Ordering::Relaxed);
            input.write_all(chunk)
        })
    });
    // If all buffers are full, the end of the client's connection does not reach the gateway.
    let mut before = 0;
    while before == 0 || count.load(Ordering::Relaxed) > before {
        before = count.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    client.kill().expect("a child");
    let _ = client.wait();
    assert!(written.join().expect("no panic").is_err());
    wait_for_end(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_reads_late_receives_all_input() {
    let world = World::with(|it| it.link_memory_max = LITTLE_MEMORY).await;
    let sent = content(40_000_000);
    let output = run_async_with(world.ssh(&["-v", "sleep 17; cat"]), sent.clone()).await;
    assert_success(&output);
    let probe = "rtype xon-xoff";
    assert!(errors(&output).contains(probe), "{}", errors(&output));
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_too_many_requests_is_disconnected() {
    let world = World::start().await;
    let mut client = world.ssh(&["-o", "SendEnv=LH_*", "true"]);
    for number in 0..12 {
        client.env(format!("LH_{number}"), "x".repeat(100_000));
    }
    let output = run_async(client).await;
    assert_eq!(output.status.code(), Some(255), "{}", errors(&output));
    let output = run_async(world.ssh(&["true"])).await;
    assert_success(&output);
}

/// Waits until the server has no connection, and the gateway has no channel.
async fn wait_for_end(world: &World) {
    let server = world.server.as_ref().expect("a server");
    let port = format!(":{:04X}", server.address.port());
    let is_open = || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1].ends_with(&port) && fields[3] == ESTABLISHED
        })
    };
    let deadline = Instant::now() + TIMEOUT;
    while is_open() || !world.near.registry().open_transfers().is_empty() {
        assert!(Instant::now() < deadline, "the channel is open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Memory of links that 40 MB for a program fill long before the gateway probes the client.
const LITTLE_MEMORY: ByteCount = ByteCount::mebibytes(64);

/// State of an open connection in the kernel's table.
const ESTABLISHED: &str = "01";
