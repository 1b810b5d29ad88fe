//! Tests of a fleet with faults. Workers are disconnected from NATS, suspended or killed during
//! transfers. A NATS cluster loses its leader.
//!
//! In the end, every file is complete, and every file that was reported done exists. A worker whose
//! work was given to another worker must not replace a file.
//!
//! `cargo xtask siege fleet` tries random faults for several minutes.
#![allow(clippy::disallowed_methods, reason = "runs programs and sockets")]

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::common::{
    pool::{World, ask, make_consumer, tree, wait},
    side::free,
};

/// Acknowledgement timeout. If a worker sends no message for this time, NATS delivers the worker's
/// work to another worker.
const ACK_WAIT: Duration = Duration::from_secs(3);

/// A TCP proxy between workers and NATS. During an interruption by the test, the proxy holds the
/// bytes back.
struct Path {
    url: String,
    is_cut: Arc<AtomicBool>,
}

impl Path {
    fn to(url: &str) -> Self {
        let server: SocketAddr = url
            .trim_start_matches("nats://")
            .parse()
            .expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = is_cut.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                // The server may be down.
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let clone = |it: &TcpStream| it.try_clone().expect("a handle");
                let (back, forth) = ((clone(&server), clone(&client)), (client, server));
                for (from, to) in [back, forth] {
                    let cut = cut.clone();
                    thread::spawn(move || pass_on(from, to, &cut));
                }
            }
        });
        Self {
            url: format!("nats://{address}"),
            is_cut,
        }
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Relaxed);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while is_cut.load(Relaxed) {
            sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The other end may be gone.
    let _ = to.shutdown(std::net::Shutdown::Both);
}

impl World {
    /// Creates files of equal size with different content.
    fn write_equal(&self, folder: &str, count: usize, bytes: usize) {
        fs::create_dir_all(self.path(folder)).expect("room");
        for number in 0..count {
            let text = format!("{folder} {number:04} ");
            let content = text.repeat(bytes.div_ceil(text.len()));
            fs::write(self.path(folder).join(format!("f{number:04}")), content).expect("room");
        }
    }

    /// Returns the number of files at the destination that have their final names.
    fn moved(&self) -> usize {
        let files = tree(&self.path("to"));
        let is_part = |it: &&std::path::PathBuf| it.extension().is_some_and(|it| it == "part");
        files.keys().filter(|it| !is_part(it)).count()
    }

    fn signal(&self, worker: &str, signal: Signal) {
        let pid = self.running[worker].id().cast_signed();
        kill(Pid::from_raw(pid), signal).expect("it runs");
    }

    /// Whether a job is done. Returns false if no NATS server answers.
    fn is_done(&self, job: &str) -> bool {
        let shown = self.run(&["show", "--json", job]).stdout;
        String::from_utf8_lossy(&shown).contains("\"state\":\"done\"")
    }

    /// Replaces each file at the destination by a newer file, as another process would do.
    fn replace_all(&self) {
        for name in tree(&self.path("to")).keys() {
            fs::write(self.path("to").join(name), "newer").expect("room");
        }
    }
}

/// Fault that makes NATS deliver a worker's work to another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Partition,
    Suspension,
}

/// Interrupts a worker during a transfer until another worker has finished the work. Then replaces
/// all files at the destination by newer files, and lets the first worker continue. The first
/// worker must not replace the newer files.
fn lose_work_and_go_on(fault: Fault) {
    let mut world = World::new();
    world.write_equal("from", 6, 60_000);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&["--transfers", "1", &ends[0], &ends[1]]);
    world.make_consumer(ACK_WAIT);
    let path = Path::to(&world.url);
    world.start_worker_at(&path.url, "one", &["--slots", "1", "--bwlimit", "200k"]);
    wait("the first file has its name", || world.moved() > 0);
    match fault {
        Fault::Partition => path.cut(true),
        Fault::Suspension => world.signal("one", Signal::SIGSTOP),
    }
    assert!(world.moved() < 6, "it is in the midst of its work");
    world.start_worker("two", &["--slots", "1"]);
    world.wait_for(&job, "done");
    assert_eq!(
        tree(&world.path("to")).len(),
        tree(&world.path("from")).len()
    );
    for (name, content) in tree(&world.path("from")) {
        let there = fs::read(world.path("to").join(&name)).expect("it was reported done");
        assert!(there == content, "{name:?} is whole");
    }
    world.replace_all();
    match fault {
        Fault::Partition => {
            // Without the interruption, the worker would complete the file within this wait.
            let begun = Instant::now();
            let waits = "a file waits for its name";
            while !world.log("one").contains(waits) && begun.elapsed() < Duration::from_secs(15) {
                sleep(Duration::from_millis(50));
            }
            path.cut(false);
        }
        Fault::Suspension => world.signal("one", Signal::SIGCONT),
    }
    wait("the first worker leaves the work", || {
        world.log("one").contains("another worker has the work")
    });
    for (name, content) in tree(&world.path("to")) {
        assert!(
            content == b"newer",
            "{name:?} is what came last, and no part is left"
        );
    }
}

#[test]
fn a_worker_that_was_cut_off_replaces_nothing_after_it_has_lost_its_work() {
    lose_work_and_go_on(Fault::Partition);
}

#[test]
fn a_worker_that_was_suspended_replaces_nothing_after_it_has_lost_its_work() {
    lose_work_and_go_on(Fault::Suspension);
}

/// Three NATS servers that each store a copy of all data.
struct Cluster {
    /// Each server's address for clients, and its address for the other servers.
    servers: Vec<(SocketAddr, SocketAddr)>,
}

impl Cluster {
    fn start(world: &mut World) -> Self {
        world.kill("nats");
        let servers = (0..3).map(|_| (free(), free())).collect();
        let cluster = Self { servers };
        for number in 0..3 {
            cluster.start_server(world, number);
        }
        let urls = cluster.servers.iter();
        let urls: Vec<_> = urls.map(|(it, _)| format!("nats://{it}")).collect();
        world.url = urls.join(",");
        cluster
    }

    fn start_server(&self, world: &mut World, number: usize) {
        let (client, cluster) = self.servers[number];
        let routes = self.servers.iter().map(|(_, it)| format!("nats://{it}"));
        let routes: Vec<_> = routes.collect();
        let name = format!("nats-{number}");
        let server = Command::new("nats-server")
            .args([
                "-a",
                &client.ip().to_string(),
                "-p",
                &client.port().to_string(),
            ])
            .args(["-n", &name, "-js", "-sd", &world.text(&name)])
            .args([
                "--cluster_name",
                "fleet",
                "--cluster",
                &format!("nats://{cluster}"),
            ])
            .args(["--routes", &routes.join(",")])
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server: cargo xtask test installs it");
        world.running.insert(name, server);
        wait("a server of NATS listens", || {
            TcpStream::connect(client).is_ok()
        });
    }

    /// Returns the index of the server that leads the work stream. Returns `None` if there is no
    /// known leader.
    fn leader(&self, world: &World) -> Option<usize> {
        let is_up = |number: &usize| world.running.contains_key(&format!("nats-{number}"));
        let asked = (0..3).find(is_up)?;
        let url = format!("nats://{}", self.servers[asked].0);
        let told = ask(&url, "$JS.API.STREAM.INFO.LONGHAUL_JOBS_default", "");
        let (_, leader) = told.split_once("\"leader\":\"nats-")?;
        leader.split_once('"')?.0.parse().ok()
    }
}

#[test]
fn a_job_goes_on_while_a_cluster_of_nats_loses_its_leader() {
    let mut world = World::new();
    let (leaders, files) = if is_siege() { (3, 400) } else { (1, 90) };
    world.write_equal("from", files, 6_000);
    let cluster = Cluster::start(&mut world);
    let ends = [world.text("from"), world.text("to")];
    let submit = ["submit", "--nats-replicas", "3", &ends[0], &ends[1]];
    let mut job = String::new();
    // The servers elect their first leader.
    let begun = Instant::now();
    while job.is_empty() {
        let submitted = world.run(&submit);
        let said = String::from_utf8_lossy(&submitted.stderr).into_owned();
        assert!(begun.elapsed() < Duration::from_secs(60), "{said}");
        if submitted.status.success() {
            job = String::from_utf8_lossy(&submitted.stdout).trim().to_owned();
        }
    }
    make_consumer(&format!("nats://{}", cluster.servers[0].0), ACK_WAIT);
    for name in ["one", "two"] {
        let more = ["--nats-replicas", "3", "--slots", "1", "--bwlimit", "400k"];
        world.start_worker(name, &more);
    }
    for _ in 0..leaders {
        let before = world.moved();
        wait("files have moved", || world.moved() > before);
        let mut leader = None;
        wait("somebody leads", || cluster.leader(&world).is_some());
        while leader.is_none() {
            leader = cluster.leader(&world);
        }
        let leader = leader.expect("it was found");
        world.kill(&format!("nats-{leader}"));
        let moved = world.moved();
        assert!(moved < files, "it is in the midst of the job");
        sleep(Duration::from_secs(1));
        cluster.start_server(&mut world, leader);
    }
    wait("the job is done", || world.is_done(&job));
    assert!(tree(&world.path("to")) == tree(&world.path("from")));
}

/// Whether the test runs as a long siege (`cargo xtask siege`).
fn is_siege() -> bool {
    env::var_os("SIEGE_CASES").is_some()
}

/// Random numbers that are reproducible from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Disconnects, suspends and kills workers at random while they share a job. The test runs
/// `SIEGE_CASES` jobs. The first seed is `SIEGE_SEED`.
#[test]
fn jobs_are_whole_after_random_faults_of_their_workers() {
    let number = |name: &str, usual: u64| {
        let told = env::var(name).ok().and_then(|it| it.parse().ok());
        told.unwrap_or(usual)
    };
    let seed = number("SIEGE_SEED", 1);
    for seed in seed..seed + number("SIEGE_CASES", 1) {
        println!("seed {seed}");
        one_job_with_random_faults(seed);
    }
}

fn one_job_with_random_faults(seed: u64) {
    const WORKERS: [&str; 3] = ["one", "two", "three"];
    let mut random = Random(seed);
    let mut world = World::new();
    let (files, rounds) = if is_siege() { (150, 6) } else { (75, 2) };
    world.write_equal("from", files, 4_000);
    let ends = [world.text("from"), world.text("to")];
    let job = world.submit(&["--transfers", "2", &ends[0], &ends[1]]);
    world.make_consumer(ACK_WAIT);
    let paths = WORKERS.map(|_| Path::to(&world.url));
    let more = ["--slots", "1", "--attempts", "100", "--bwlimit", "80k"];
    for (name, path) in WORKERS.iter().zip(&paths) {
        world.start_worker_at(&path.url, name, &more);
    }
    let mut faults = 0;
    for _ in 0..rounds {
        let at = random.below(3) as usize;
        let (name, path) = (WORKERS[at], &paths[at]);
        let time = Duration::from_millis(300 + random.below(4_000));
        match random.below(3) {
            0 => {
                path.cut(true);
                sleep(time);
                path.cut(false);
            }
            1 => {
                world.signal(name, Signal::SIGSTOP);
                sleep(time);
                world.signal(name, Signal::SIGCONT);
            }
            _ => {
                world.kill(name);
                sleep(time / 4);
                world.start_worker_at(&path.url, name, &more);
            }
        }
        if world.is_done(&job) {
            break;
        }
        faults += 1;
    }
    assert!(faults > 0, "a fault has hit the job");
    world.wait_for(&job, "done");
    // All workers are idle.
    for name in WORKERS {
        world.signal(name, Signal::SIGTERM);
        let worker = world.running.get_mut(name).expect("it was started");
        assert!(worker.wait().expect("it ends").success());
    }
    let (there, wanted) = (tree(&world.path("to")), tree(&world.path("from")));
    for (name, content) in &wanted {
        assert!(there.get(name) == Some(content), "seed {seed}: {name:?}");
    }
    let parts: Vec<_> = there
        .keys()
        .filter(|it| !wanted.contains_key(*it))
        .collect();
    assert!(parts.is_empty(), "seed {seed}: {parts:?} are left");
}
