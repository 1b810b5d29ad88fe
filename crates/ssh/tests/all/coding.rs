//! Compression and deduplication of channels.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use relay::{
    Relay,
    settings::ListenerCoding,
    status::{GatewaySnapshot, OptimiserTotals},
    transfer_log::TransferRecord,
};

use crate::common::{
    TIMEOUT, World, assert_success, content, errors, read, run_async, run_async_with, sftp, text,
};

const COMPRESSED: ListenerCoding = ListenerCoding {
    compresses: true,
    deduplicates: false,
    caches: false,
    tenant: None,
};

const BOTH: ListenerCoding = ListenerCoding {
    compresses: true,
    deduplicates: true,
    caches: true,
    tenant: None,
};

async fn coded(coding: ListenerCoding) -> World {
    World::with(|it| {
        it.has_stores = coding.deduplicates;
        it.listener.coding = coding;
    })
    .await
}

fn snapshot(relay: &Relay) -> GatewaySnapshot {
    let link = relay.link().snapshot();
    relay.registry().snapshot(&link, String::new())
}

/// Counters of the near gateway at one moment.
struct Coded(OptimiserTotals);

impl Coded {
    fn now(world: &World) -> Self {
        Self(snapshot(&world.near).optimiser)
    }

    /// Returns the numbers of bytes since this moment: before coding, and on the link.
    fn since(&self, world: &World) -> (u64, u64) {
        let Self(now) = Self::now(world);
        (now.bytes - self.0.bytes, now.wan_bytes - self.0.wan_bytes)
    }
}

/// Uploads and downloads a file by `sftp`. Checks the bytes.
async fn put_and_get(world: &World, source: &Path) -> Output {
    let (up, down) = (world.path("up"), world.path("down"));
    let (source_text, up_text) = (source.display(), up.display());
    let batch = format!(
        "put {source_text} {up_text}\nget {up_text} {}\n",
        down.display()
    );
    let output = sftp(world, &batch).await;
    assert_success(&output);
    let expected = read(source);
    assert!(read(&up) == expected && read(&down) == expected);
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_text_shrink_only_where_the_listener_permits_it() {
    for (coding, shrinks) in [(ListenerCoding::default(), false), (COMPRESSED, true)] {
        let world = coded(coding).await;
        std::fs::write(world.path("source"), text(8_000_000)).expect("written");
        let before = Coded::now(&world);
        put_and_get(&world, &world.path("source")).await;
        let (bytes, wan_bytes) = before.since(&world);
        match shrinks {
            true => {
                assert!((16_000_000..16_200_000).contains(&bytes), "{bytes}");
                assert!(wan_bytes < bytes / 2, "{wan_bytes} of {bytes}");
            }
            false => assert_eq!((bytes, wan_bytes), (0, 0)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_noise_and_of_text_come_back_in_all_sizes() {
    let world = coded(BOTH).await;
    for size in [0, 1, 511, 512, 16_384, 65_536, 300_001, 5_000_000] {
        for bytes in [content(size), text(size)] {
            std::fs::write(world.path("source"), bytes).expect("written");
            put_and_get(&world, &world.path("source")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_has_crossed_the_link_goes_by_references() {
    let world = coded(BOTH).await;
    std::fs::write(world.path("source"), content(20_000_000)).expect("written");
    std::fs::write(world.path("other"), content(1_000_003)).expect("written");
    let before = Coded::now(&world);
    put_and_get(&world, &world.path("source")).await;
    let (bytes, first) = before.since(&world);
    assert!(bytes >= 40_000_000, "{bytes}");
    // The chunk stores write to their disks in the background, and may finish after the transfers.
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Other requests precede the file.
    put_and_get(&world, &world.path("other")).await;
    let before = Coded::now(&world);
    put_and_get(&world, &world.path("source")).await;
    let (bytes, second) = before.since(&world);
    assert!(bytes >= 40_000_000, "{bytes}");
    eprintln!("bytes on the link: {first}, then {second}");
    assert!(second < bytes / 20, "{second} of {bytes}, at first {first}");
    let finished = finished(&world, 6).await;
    for record in &finished[..2] {
        assert!(record.succeeded && record.bytes == 20_000_000, "{record:?}");
        let saved_bytes = record.deduplication_saved_bytes;
        assert!(saved_bytes > 18_000_000, "{record:?}");
        assert!(record.wan_bytes < 1_000_000, "{record:?}");
    }
}

/// Waits until `count` transfers have finished. Returns the finished transfers, the latest first.
async fn finished(world: &World, count: usize) -> Vec<TransferRecord> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let finished = snapshot(&world.near).finished;
        if finished.len() >= count {
            return finished;
        }
        assert!(Instant::now() < deadline, "{finished:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_pass_their_bytes_and_their_exit_status() {
    let world = coded(BOTH).await;
    let sent = text(10_000_000);
    let before = Coded::now(&world);
    let command = "tee /dev/stderr; echo end >&2; exit 7";
    let output = run_async_with(world.ssh(&[command]), sent.clone()).await;
    assert_eq!(
        output.status.code(),
        Some(7),
        "{} bytes",
        output.stderr.len()
    );
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
    // The client itself writes a line about the host key first.
    let client_end = output.stderr.iter().position(|it| *it == b'\n');
    let errors = &output.stderr[client_end.map_or(0, |it| it + 1)..];
    assert!(errors == [&sent[..], b"end\n"].concat());
    let (bytes, wan_bytes) = before.since(&world);
    assert!(
        bytes > 29_000_000 && wan_bytes < bytes / 2,
        "{wan_bytes} of {bytes}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_of_a_dialogue_arrives_before_the_next_question() {
    let world = coded(BOTH).await;
    let mut command = world.ssh(&["cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("ssh is installed");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let dialogue = tokio::task::spawn_blocking(move || {
        for length in [1, 40, 511, 600, 5_000, 20_000, 70_000, 3].repeat(4) {
            let mut line = vec![b'a'; length];
            line.push(b'\n');
            input.write_all(&line).expect("the command reads");
            let mut answer = Vec::new();
            output.read_until(b'\n', &mut answer).expect("an answer");
            assert!(answer == line, "{length}");
        }
    });
    let done = tokio::time::timeout(TIMEOUT, dialogue).await;
    done.expect("no answer waits").expect("no panic");
    assert!(child.wait().expect("a child").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminals_and_shells_are_not_coded() {
    let world = coded(BOTH).await;
    let before = Coded::now(&world);
    let command = "for i in 1 2 3 4 5 6 7 8 9; do printf '%2000d\\n' $i; done";
    let mut with_terminal = Command::new("ssh");
    with_terminal.args(world.options()).args(["-tt", "-p"]);
    with_terminal.arg(world.listener.port().to_string());
    with_terminal.arg(world.destination()).arg(command);
    with_terminal.env_remove("SSH_AUTH_SOCK");
    let output = run_async(with_terminal).await;
    assert!(output.stdout.len() > 18_000, "{}", errors(&output));
    let script = format!("{command}\nexit\n");
    let output = run_async_with(world.ssh(&[]), script.into_bytes()).await;
    assert!(output.stdout.len() > 18_000, "{}", errors(&output));
    assert_eq!(before.since(&world), (0, 0));
    let output = run_async(world.ssh(&[command])).await;
    assert!(output.stdout.len() > 18_000, "{}", errors(&output));
    assert!(before.since(&world).0 > 18_000, "a command is coded");
}
