//! Tests of `longhaul jobs` with a real NATS server: jobs are submitted, executed, retried and
//! cancelled, and some jobs fail.
#![allow(clippy::disallowed_methods, reason = "runs programs and sockets")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::common::{
    self, assert_ends,
    pool::{World, tree, wait},
};

#[test]
fn workers_share_the_files_of_a_job() {
    let mut world = World::new();
    world.write("from", 150);
    fs::write(world.path("from/caf\u{e9} %41 \\x"), "a name").expect("room");
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&["--transfers", "2", &ends[0], &ends[1]]);
    assert!(world.show(&job).contains("\"state\":\"queued\""));
    for name in ["one", "two"] {
        world.start_worker(name, &["--slots", "1"]);
    }
    world.wait_for(&job, "done");
    assert_eq!(tree(&world.path("to")), tree(&world.path("from")));
    let shown = world.show(&job);
    assert!(
        shown.contains("\"wanted\":151,\"moved\":151,\"same\":0"),
        "{shown}"
    );
    assert!(
        shown.contains("\"claims\":[],\"dead_letters\":[]"),
        "{shown}"
    );
    // Existing files are recognised.
    let again = world.submit(&[&ends[0], &ends[1]]);
    world.wait_for(&again, "done");
    let shown = world.show(&again);
    assert!(
        shown.contains("\"wanted\":0,\"moved\":0,\"same\":151"),
        "{shown}"
    );
    let listed = world.printed(&["ls"]);
    assert!(listed.contains(&format!("{job}  done")), "{listed}");
}

#[test]
fn what_nobody_can_do_is_given_up_and_tried_again() {
    let mut world = World::new();
    world.start_worker("one", &["--attempts", "1"]);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    world.wait_for(&job, "failed");
    let listed = world.printed(&["ls"]);
    assert!(listed.contains(&format!("{job}  failed")), "{listed}");
    let reason = format!("{job}.order: there is no such file or directory");
    assert!(listed.contains(&reason), "{listed}");
    world.write("from", 3);
    let again = world.printed(&["retry", &job]);
    assert!(again.contains("its source is listed again"), "{again}");
    world.wait_for(&job, "done");
    assert_eq!(tree(&world.path("to")), tree(&world.path("from")));
    assert!(!world.printed(&["ls"]).contains("Given up"));
}

#[test]
fn a_message_of_nobodys_does_not_stop_the_workers() {
    let mut world = World::new();
    world.write("from", 3);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    let address = world.url.trim_start_matches("nats://").to_owned();
    let mut nats = TcpStream::connect(address).expect("it listens");
    let batch = format!("{{\"job\":\"{job}\",\"listing\":1,\"number\":\"x\",\"files\":[]}}");
    let mut said = "CONNECT {\"verbose\":false}\r\n".to_owned();
    for (subject, poison) in [
        ("job.default.x.order", "{\"job\":\"../x\"}"),
        ("job.default.x.order", "poison"),
        ("job.default.x.batch", &batch),
        ("job.default.x.other", "{}"),
    ] {
        said += &format!("PUB {subject} {}\r\n{poison}\r\n", poison.len());
    }
    write!(nats, "{said}PING\r\n").expect("it listens");
    let mut answer = [0; 2000];
    let mut heard = String::new();
    while !heard.contains("PONG") {
        let count = nats.read(&mut answer).expect("it answers");
        heard += &String::from_utf8_lossy(&answer[..count]);
    }
    world.start_worker("one", &[]);
    world.wait_for(&job, "done");
    wait("the message is given up", || {
        world
            .printed(&["ls"])
            .contains("the message cannot be read")
    });
}

#[test]
fn a_cancelled_job_moves_nothing_until_it_is_tried_again() {
    let mut world = World::new();
    world.write("from", 3);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    world.printed(&["cancel", &job]);
    let other = world.submit(&[&ends[0], &world.text("other")]);
    world.start_worker("one", &["--slots", "1"]);
    world.wait_for(&other, "done");
    assert!(world.show(&job).contains("\"state\":\"cancelled\""));
    assert!(!world.path("to").exists());
    world.printed(&["retry", &job]);
    world.wait_for(&job, "done");
    assert_eq!(tree(&world.path("to")), tree(&world.path("from")));
}

#[test]
fn work_goes_on_after_the_server_of_nats_was_killed() {
    let mut world = World::new();
    world.write("from", 400);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    // The killed server may lose confirmations of work. NATS delivers such work again after this
    // time, which is a minute by default.
    world.make_consumer(Duration::from_secs(5));
    world.start_worker("one", &["--bwlimit", "200k"]);
    wait("something has moved", || world.path("to").exists());
    let port = world.url.rsplit(':').next().expect("a port").to_owned();
    world.kill("nats");
    sleep(Duration::from_secs(1));
    world.start_nats(&port);
    world.wait_for(&job, "done");
    assert_eq!(tree(&world.path("to")), tree(&world.path("from")));
}

#[test]
fn an_idle_worker_makes_the_queue_again_that_the_server_has_lost() {
    let mut world = World::new();
    world.write("from", 3);
    let ends = [world.text("from"), world.text("to")];
    world.start_worker("one", &["--slots", "2"]);
    let first = world.submit(&[&ends[0], &ends[1]]);
    world.wait_for(&first, "done");
    let port = world.url.rsplit(':').next().expect("a port").to_owned();
    world.kill("nats");
    fs::remove_dir_all(world.path("nats")).expect("it is there");
    world.start_nats(&port);
    // Only the worker makes the pool.
    let log = || fs::read_to_string(world.path("one.log")).expect("a log");
    wait("the worker says it", || {
        log().contains("has lost the pool's queue")
    });
    assert_eq!(
        log().matches("has lost the pool's queue").count(),
        1,
        "{}",
        log()
    );
    let second = world.submit(&[&ends[0], &world.text("second")]);
    world.wait_for(&second, "done");
    assert_eq!(tree(&world.path("second")), tree(&world.path("from")));
}

#[test]
fn a_worker_that_ends_leaves_its_work_to_others() {
    let mut world = World::new();
    world.write("from", 200);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    world.start_worker("slow", &["--bwlimit", "10k"]);
    wait("something has moved", || world.path("to").exists());
    let slow = world.running["slow"].id().to_string();
    let ended = Command::new("kill").arg(slow).status();
    assert!(ended.expect("kill").success());
    let worker = world.running.get_mut("slow").expect("it was started");
    assert!(worker.wait().expect("it ends").success());
    world.start_worker("fast", &[]);
    world.wait_for(&job, "done");
    assert_eq!(
        tree(&world.path("to")),
        tree(&world.path("from")),
        "no part is left"
    );
}

#[test]
fn a_job_that_was_cancelled_while_files_move_is_listed_anew() {
    let mut world = World::new();
    world.write("from", 150);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    // NATS gives the work of a silent worker to another worker after this time. The default is a
    // minute.
    world.make_consumer(Duration::from_secs(5));
    world.start_worker("one", &["--slots", "1", "--bwlimit", "10k"]);
    wait("something has moved", || world.path("to").exists());
    world.printed(&["cancel", &job]);
    let again = world.printed(&["retry", &job]);
    assert!(again.contains("its source is listed again"), "{again}");
    world.kill("one");
    world.start_worker("two", &[]);
    world.wait_for(&job, "done");
    for (path, content) in tree(&world.path("from")) {
        assert_eq!(
            fs::read(world.path("to").join(path)).expect("there"),
            content
        );
    }
}

#[test]
fn a_job_whose_messages_were_lost_is_listed_again() {
    let mut world = World::new();
    world.write("from", 3);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    let again = world.printed(&["retry", &job]);
    assert!(again.contains("no batch had failed"), "{again}");
    let port = world.url.rsplit(':').next().expect("a port").to_owned();
    world.kill("nats");
    // This has the effect of a power cut.
    let messages = world.path("nats/jetstream/$G/streams/LONGHAUL_JOBS_default/msgs");
    for block in fs::read_dir(messages).expect("there").flatten() {
        fs::remove_file(block.path()).expect("there");
    }
    world.start_nats(&port);
    let again = world.printed(&["retry", &job]);
    assert!(again.contains("listed again"), "{again}");
    world.start_worker("one", &[]);
    world.wait_for(&job, "done");
}

#[test]
fn the_files_of_a_batch_that_was_given_up_are_tried_again() {
    let mut world = World::new();
    world.write("from", 40);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&[&ends[0], &ends[1]]);
    // NATS gives the work of a silent worker to another worker after this time. The default is a
    // minute.
    world.make_consumer(Duration::from_secs(5));
    world.start_worker("one", &["--attempts", "1", "--bwlimit", "1k"]);
    wait("the source is listed", || {
        world.show(&job).contains("\"batches\":2")
    });
    world.kill("one");
    fs::remove_file(world.path("from/4/f39")).expect("there");
    world.start_worker("two", &["--attempts", "2"]);
    world.wait_for(&job, "failed");
    let listed = world.printed(&["ls"]);
    assert!(listed.contains("f39"), "{listed}");
    fs::write(world.path("from/4/f39"), "f39 again").expect("room");
    let again = world.printed(&["retry", &job]);
    assert!(again.contains("tried again"), "{again}");
    world.wait_for(&job, "done");
    for (path, content) in tree(&world.path("from")) {
        assert_eq!(
            fs::read(world.path("to").join(path)).expect("there"),
            content
        );
    }
}

#[test]
fn wrong_use_says_what_is_wrong() {
    let submit = |more: &[&'static str]| {
        let line = ["jobs", "submit"].into_iter().chain(more.iter().copied());
        line.collect::<Vec<_>>()
    };
    for (line, words) in [
        (
            submit(&["/a"]),
            "the destination is missing: give it last, or by --to",
        ),
        (
            submit(&["a", "ftp://h/b"]),
            "a: a worker runs in another folder",
        ),
        (submit(&["/a", "ftp://h/b", "--json"]), "takes no --json"),
        (
            submit(&["--bwlimit", "1M", "/a", "ftp://h/b"]),
            "give it to the workers",
        ),
        (
            submit(&["/a", "--to", "ftp://h/b", "--to", "ftp://i/b"]),
            "has one destination",
        ),
        (
            submit(&["/a", "ftp://me:secret@h/b"]),
            "must not contain a password",
        ),
        (
            submit(&["--nats", "nats://me:x@h", "/a", "/b"]),
            "LONGHAUL_NATS_PASSWORD",
        ),
        (
            submit(&["--nats", "http://h", "/a", "/b"]),
            "is no NATS server",
        ),
        (submit(&["--pool", "a.b", "/a", "/b"]), "is no pool"),
        (
            submit(&["--inplace", "/a", "ftp://h/b"]),
            "takes no --inplace",
        ),
        (vec!["jobs", "show", "a.b"], "is no name of a job"),
        (vec!["jobs", "cancel", "*"], "is no name of a job"),
        (vec!["jobs", "retry", ">"], "is no name of a job"),
    ] {
        assert_ends(&line, 2, words);
    }
}

#[test]
fn a_server_without_jetstream_differs_from_an_unreachable_one() {
    let ports = tempfile::tempdir().expect("room");
    let nats = Command::new("nats-server")
        .args(["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"])
        .arg(ports.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("nats-server: cargo xtask test installs it");
    let mut nats = nats;
    let url = || {
        let file = fs::read_dir(ports.path()).ok()?.next()?.ok()?.path();
        let text = fs::read_to_string(file).ok()?;
        let begin = text.find("nats://")?;
        let end = text[begin..].find('"')? + begin;
        Some(text[begin..end].to_owned())
    };
    wait("the server of NATS listens", || url().is_some());
    let url = url().expect("it listens");
    let words = format!("the NATS server {url} has no JetStream: start it with nats-server -js");
    for line in [
        vec!["jobs", "ls", "--nats", &url],
        vec!["jobs", "submit", "--nats", &url, "/a", "/b"],
    ] {
        assert_ends(&line, 1, &words);
    }
    nats.kill().expect("it runs");
    nats.wait().expect("it ends");
}

#[test]
fn a_server_that_is_away_is_named() {
    let begun = Instant::now();
    let line = ["jobs", "ls", "--nats", "nats://127.0.0.1:1"];
    assert_ends(
        &line,
        1,
        "cannot connect to the NATS server nats://127.0.0.1:1",
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    let said = common::longhaul(&line).stderr;
    let said = String::from_utf8_lossy(&said);
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
}
