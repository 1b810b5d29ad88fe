//! Tests of jobs with several destinations behind one far gateway. The file must cross the link
//! once, and every server must receive the whole file.
#![allow(
    clippy::disallowed_methods,
    reason = "tests own sockets, and wait for real ones"
)]

use std::{
    fs,
    net::UdpSocket,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fake_ftp::{Behaviour, FakeServer};
use link::{Identity, Link, PeerConfig};
use mover::{
    embedded_gateway::{EmbeddedGateway, FarGateway},
    job::Job,
    journal::Journal,
    location::Scheme,
    run::{JobProgress, JobSummary, run},
    server::Route,
    spool_sharing::SpoolSharing,
};
use net::{target::AllowList, tls::CertificateCheck};
use relay::{Relay, Sessions, far, settings::RelaySettings, spool};
use tokio::sync::watch;
use units::ByteCount;

use crate::common::{FakeServerExt as _, World, content};

/// A far gateway, and the mover's embedded near gateway. Both stop when the runtime ends.
struct Gateways {
    near: EmbeddedGateway,
    far: Relay,
    _sessions: Sessions,
}

impl Gateways {
    fn start(folder: &Path, spool: Option<spool::SpoolSettings>) -> Self {
        let key = |name: &str| {
            let path = folder.join(name);
            let identity = Identity::generate();
            identity.write_new(&path).expect("room");
            (path, identity)
        };
        let ((_, far), (near_key, near)) = (key("far.key"), key("near.key"));
        let far_key = far.public_key();
        let peer = PeerConfig {
            name: "near".to_owned(),
            public_keys: vec![near.public_key()],
            endpoint: None,
            rate_max: None,
            is_guest: false,
        };
        let mut settings = RelaySettings::new(far, vec![peer]);
        let servers = "127.0.0.0/8:1-65535".parse().expect("an entry");
        settings.peers[0].allow = AllowList(vec![servers]);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let endpoint = socket.local_addr().expect("bound");
        let link = Link::start(socket, settings.link.clone()).expect("a link");
        let (far, sessions) = Relay::builder(link, settings).spool(spool).build();
        let (_, current) = watch::channel(far.clone());
        tokio::spawn(far::serve(current, None, []));
        let peer = FarGateway::parse(&format!("{far_key}@{endpoint}")).expect("a peer");
        let near = EmbeddedGateway::start(
            &[peer],
            &near_key,
            Scheme::Ftp,
            &CertificateCheck::Roots(None),
        );
        Self {
            near: near.expect("a near gateway"),
            far,
            _sessions: sessions,
        }
    }

    /// Returns the number of payload bytes that the far gateway has received over the link.
    fn crossed_bytes(&self) -> u64 {
        let peers = self.far.link().snapshot().peers;
        peers.iter().map(|it| it.received.payload.bytes()).sum()
    }

    /// Creates one job for each server. Each job uploads `from` to its server through the gateways.
    fn jobs(&self, world: &World, from: &Path, servers: &[&FakeServer]) -> Vec<Job> {
        let sharing = Arc::new(SpoolSharing::new(servers.len() as u32));
        let jobs = servers.iter().map(|server| {
            let mut dial = server.dial();
            dial.route = Route::Gateway(self.near.listeners(0).ftp);
            dial.reply_timeout = Duration::from_secs(20);
            dial.stall_max = Duration::from_secs(20);
            let mut job = world.upload_by(dial, from, "film");
            job.sharing = Some(sharing.clone());
            job
        });
        jobs.collect()
    }
}

/// Runs jobs concurrently. Returns the summary and the duration of each job.
async fn run_all(jobs: Vec<Job>) -> Vec<(JobSummary, Duration)> {
    run_with(jobs, |_| None).await
}

/// Runs jobs concurrently. Each job uses the journal that `journal` returns for its number.
async fn run_with(
    jobs: Vec<Job>,
    journal: impl Fn(usize) -> Option<Journal>,
) -> Vec<(JobSummary, Duration)> {
    let begun = Instant::now();
    let running: Vec<_> = jobs
        .into_iter()
        .enumerate()
        .map(|(number, job)| {
            let journal = journal(number);
            tokio::spawn(async move {
                let progress = Arc::new(JobProgress::new(None));
                let ended = run(job, journal, progress, std::future::pending(), |note, _| {
                    if let Some(note) = note {
                        println!("{note:?}");
                    }
                });
                (ended.await, begun.elapsed())
            })
        })
        .collect();
    let mut ended = Vec::new();
    for job in running {
        ended.push(job.await.expect("no panic"));
    }
    ended
}

fn spool(folder: &Path) -> Option<spool::SpoolSettings> {
    Some(spool::SpoolSettings {
        folder: folder.to_owned(),
        size_max: ByteCount::gibibytes(1),
    })
}

const SIZE: usize = 12 << 20;

/// Uploads a file to three servers. The first server has the given behaviour. Returns the duration
/// of each upload. Also returns the bytes that crossed the link, as a multiple of the file size.
async fn to_three(behaviour: Behaviour) -> (Vec<Duration>, f64) {
    let world = World::new();
    let film = content(SIZE);
    fs::write(world.here("film"), &film).expect("room");
    let gateways = Gateways::start(&world.here(""), spool(&world.here("")));
    let first = FakeServer::start(behaviour);
    let others = [(); 2].map(|()| FakeServer::start(Behaviour::default()));
    let servers = [&first, &others[0], &others[1]];
    let ended = run_all(gateways.jobs(&world, &world.here("film"), &servers)).await;
    for (server, (summary, _)) in servers.iter().zip(&ended) {
        assert_eq!(summary.tally.moved, 1, "{summary:?}");
        assert!(server.content("film").is_some_and(|it| it == film));
    }
    let took = ended.into_iter().map(|(_, took)| took).collect();
    println!("{took:?}");
    (took, gateways.crossed_bytes() as f64 / SIZE as f64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_for_three_servers_crosses_once_and_a_stalled_one_delays_nobody() {
    for is_before in [true, false] {
        let stall = Duration::from_secs(8);
        let behaviour = Behaviour {
            upload_delay: if is_before { Duration::ZERO } else { stall },
            port_delay: if is_before { stall } else { Duration::ZERO },
            ..Behaviour::default()
        };
        let (took, crossed) = to_three(behaviour).await;
        assert!(took[0] >= stall, "{took:?}");
        assert!(took[1].max(took[2]) < stall * 3 / 4, "{took:?}");
        assert!((1.0..1.05).contains(&crossed), "{crossed} times the file");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn where_the_sending_job_breaks_off_another_one_goes_on() {
    let world = World::new();
    let film = content(SIZE);
    fs::write(world.here("film"), &film).expect("room");
    let gateways = Gateways::start(&world.here(""), spool(&world.here("")));
    let servers = [(); 3].map(|()| FakeServer::start(Behaviour::default()));
    // Any of the three jobs may send, so each server breaks off.
    for server in &servers {
        server.state().breaks_after = [SIZE / 2].into();
    }
    let servers: Vec<&FakeServer> = servers.iter().collect();
    let ended = run_all(gateways.jobs(&world, &world.here("film"), &servers)).await;
    for (server, (summary, _)) in servers.iter().zip(&ended) {
        assert_eq!(summary.tally.moved, 1, "{summary:?}");
        assert!(server.content("film").is_some_and(|it| it == film));
    }
    let crossed = gateways.crossed_bytes() as f64 / SIZE as f64;
    println!("{crossed} times the file");
    assert!((1.0..2.0).contains(&crossed), "{crossed} times the file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_part_that_was_gone_on_with_is_not_thrown_away_by_the_next_break() {
    let world = World::new();
    let film = content(SIZE);
    fs::write(world.here("film"), &film).expect("room");
    let gateways = Gateways::start(&world.here(""), spool(&world.here("")));
    let servers = [(); 2].map(|()| FakeServer::start(Behaviour::default()));
    for server in &servers {
        server.state().breaks_after = [SIZE / 2, SIZE / 4].into();
    }
    let servers: Vec<&FakeServer> = servers.iter().collect();
    let jobs = gateways.jobs(&world, &world.here("film"), &servers);
    let folder = world.here("journals");
    let journal = |number: usize| Journal::open(&folder, &number.to_string()).ok();
    let ended = run_with(jobs, journal).await;
    for (server, (summary, _)) in servers.iter().zip(&ended) {
        assert_eq!(summary.tally.moved, 1, "{summary:?}");
        assert!(server.content("film").is_some_and(|it| it == film));
        let verbs = server.state().verbs.clone();
        let count = |verb: &str| verbs.iter().filter(|it| *it == verb).count();
        assert_eq!(count("STOR"), 3, "{verbs:?}");
        // Two uploads resume. Before each of these uploads, the end of the part is read.
        assert_eq!(count("REST"), 4, "{verbs:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_a_spool_each_job_sends_by_itself() {
    let world = World::new();
    let film = content(SIZE);
    fs::write(world.here("film"), &film).expect("room");
    let gateways = Gateways::start(&world.here(""), None);
    let servers = [(); 2].map(|()| FakeServer::start(Behaviour::default()));
    let servers: Vec<&FakeServer> = servers.iter().collect();
    let ended = run_all(gateways.jobs(&world, &world.here("film"), &servers)).await;
    for (server, (summary, _)) in servers.iter().zip(&ended) {
        assert_eq!(summary.tally.moved, 1, "{summary:?}");
        assert!(server.content("film").is_some_and(|it| it == film));
        let verbs = server.state().verbs.clone();
        assert!(!verbs.contains(&"SITE".to_owned()), "{verbs:?}");
    }
    assert!(gateways.crossed_bytes() > 2 * SIZE as u64);
}
