//! Tests of downloads from a web server. The results must be the same as with FTP servers.

use std::{fs, time::Duration};

use mover::{job::Job, web::WebDial};
use net::tls::CertificateCheck;

use crate::common::{
    World, content,
    web::{Web, WebBehaviour, tls_of},
};

/// Time for half a megabyte on each connection. At this rate, one connection would need 9 s for a
/// large file.
const SLOW_STEP: Duration = Duration::from_millis(60);

const LARGE: usize = 72 << 20;

fn job(world: &World, dial: WebDial, path: &str) -> Job {
    world.fetch_by(dial, path, &world.here("film"))
}

fn fetched(world: &World) -> Vec<u8> {
    fs::read(world.here("film")).expect("it is there")
}

fn start(manners: WebBehaviour, content: &[u8]) -> (World, Web) {
    let web = Web::start(manners);
    web.put("/a%20b/film?x=1", content);
    (World::new(), web)
}

const PATH: &str = "a%20b/film?x=1";

/// Downloads the film from a server with this behaviour. Returns the requests that the server
/// received.
fn asked_for(film: &[u8], manners: WebBehaviour) -> Vec<String> {
    let (world, web) = start(manners, film);
    let copied = world.run(job(&world, web.dial(), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world) == film);
    web.state().asked.clone()
}

fn gets(asked: &[String]) -> usize {
    asked.iter().filter(|it| it.starts_with("GET")).count()
}

#[test]
fn a_file_comes_with_its_time_and_is_not_fetched_twice() {
    let film = content(3 << 20);
    let (world, web) = start(WebBehaviour::default(), &film);
    let copied = world.run(job(&world, web.dial(), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world) == film);
    let time = fs::metadata(world.here("film")).and_then(|it| it.modified());
    let since = time.expect("a time").duration_since(std::time::UNIX_EPOCH);
    assert_eq!(since.expect("after 1970").as_secs(), 1_767_323_045);
    let again = world.run(job(&world, web.dial(), PATH));
    assert_eq!(
        (again.summary.tally.moved, again.summary.tally.same),
        (0, 1)
    );
    let state = web.state();
    let gets = state.asked.iter().filter(|it| it.starts_with("GET"));
    assert_eq!(gets.collect::<Vec<_>>(), ["GET /a%20b/film?x=1"]);
}

#[test]
fn a_large_file_comes_by_several_connections_where_one_is_slow() {
    let film = content(LARGE);
    // On a busy machine, some runs do not show that the path has unused capacity.
    let has_joined = (0..8).any(|_| {
        let manners = WebBehaviour {
            slows_answers: SLOW_STEP,
            ..WebBehaviour::default()
        };
        let (world, web) = start(manners, &film);
        let copied = world.run(job(&world, web.dial(), PATH));
        assert_eq!(copied.failures(), [""; 0]);
        assert!(fetched(&world) == film);
        assert_eq!(copied.moved_bytes, LARGE as u64);
        let state = web.state();
        state.asked.iter().any(|it| it.contains("bytes="))
    });
    assert!(has_joined, "no connection has joined");
}

#[test]
fn a_server_without_ranges_gives_a_large_file_as_one() {
    let manners = WebBehaviour {
        no_ranges: true,
        ..WebBehaviour::default()
    };
    let asked = asked_for(&content(LARGE), manners);
    assert_eq!(gets(&asked), 1, "{asked:?}");
}

#[test]
fn what_broke_off_is_gone_on_with() {
    for no_ranges in [false, true] {
        let manners = WebBehaviour {
            no_ranges,
            breaks_after: Some(6 << 20),
            ..WebBehaviour::default()
        };
        let asked = asked_for(&content(9 << 20), manners);
        assert!(gets(&asked) >= 2, "it broke off: {asked:?}");
        // Without ranges the file is fetched from its beginning.
        let goes_on = asked.iter().any(|it| it.contains("bytes="));
        assert_eq!(goes_on, !no_ranges, "{asked:?}");
    }
}

#[test]
fn an_unannounced_length_does_no_harm() {
    let film = content(100_000);
    for (is_chunked, ends_by_close) in [(true, false), (false, true)] {
        let manners = WebBehaviour {
            is_chunked,
            ends_by_close,
            ..WebBehaviour::default()
        };
        let (world, web) = start(manners, &film);
        let mut job = job(&world, web.dial(), PATH);
        job.plan.retries = 1;
        let copied = world.run(job);
        if is_chunked {
            assert_eq!(copied.failures(), [""; 0]);
            assert!(fetched(&world) == film);
        } else {
            // Any attacker on the path could have caused this end.
            assert_eq!(copied.failures().len(), 1);
            assert!(!world.here("film").exists());
        }
    }
}

#[test]
fn a_server_that_forbids_to_ask_is_asked_for_a_byte() {
    let manners = WebBehaviour {
        no_head: true,
        ..WebBehaviour::default()
    };
    let asked = asked_for(&content(100_000), manners);
    assert!(asked.iter().any(|it| it.starts_with("HEAD")), "{asked:?}");
    assert!(
        asked.iter().any(|it| it.ends_with("bytes=0-0")),
        "{asked:?}"
    );
}

#[test]
fn a_server_may_lead_to_another_one_which_hears_no_password() {
    let film = content(100_000);
    let (world, there) = start(WebBehaviour::default(), &film);
    let manners = WebBehaviour {
        leads_to: Some(there.url("").trim_end_matches('/').to_owned()),
        ..WebBehaviour::default()
    };
    let web = Web::start(manners);
    let copied = world.run(job(&world, web.dial_as("me", "secret"), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world) == film);
    assert!(there.state().authorizations.is_empty());
    assert!(!web.state().authorizations.is_empty());
}

#[test]
fn a_redirect_without_tls_or_in_a_circle_is_reported() {
    let led = |place: &str| {
        let manners = WebBehaviour {
            leads_to: Some(place.to_owned()),
            ..WebBehaviour::default()
        };
        let (world, web) = start(manners, b"");
        world
            .run(job(&world, web.dial(), PATH))
            .failures()
            .join(" ")
    };
    assert!(
        led("http://plain.example").contains("leads to"),
        "in the clear"
    );
    assert!(led("").contains("leads to"), "in circles");
}

#[test]
fn an_account_is_asked_for_and_given() {
    let film = content(1000);
    let manners = WebBehaviour {
        account: Some("bWU6c2VjcmV0"),
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, &film);
    let copied = world.run(job(&world, web.dial_as("me", "wrong"), PATH));
    assert!(
        copied.failures().join(" ").contains("401"),
        "{:?}",
        copied.failures()
    );
    let copied = world.run(job(&world, web.dial_as("me", "secret"), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world) == film);
}

#[test]
fn a_missing_password_of_a_web_server_is_reported_if_the_server_requests_it() {
    let film = content(1000);
    let nameless = |web: &Web| WebDial {
        account: Some(("me".to_owned(), None)),
        netrc: "/my/netrc".into(),
        ..web.dial()
    };
    let manners = WebBehaviour {
        account: Some("bWU6c2VjcmV0"),
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, &film);
    let said = world
        .run(job(&world, nameless(&web), PATH))
        .failures()
        .join(" ");
    assert!(
        said.contains("no password for me at 127.0.0.1: not in /my/netrc, no --password-file"),
        "{said}"
    );
    let (world, web) = start(WebBehaviour::default(), &film);
    let copied = world.run(job(&world, nameless(&web), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world) == film);
}

#[test]
fn missing_and_refused_files_are_reported() {
    let (world, web) = start(WebBehaviour::default(), b"");
    let copied = world.run(job(&world, web.dial(), "nothing"));
    assert!(!copied.failures().is_empty());
    let manners = WebBehaviour {
        status: Some("451 Unavailable For Legal Reasons"),
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, b"");
    let copied = world.run(job(&world, web.dial(), PATH));
    assert!(
        copied.failures().join(" ").contains("451"),
        "{:?}",
        copied.failures()
    );
}

#[test]
fn a_file_goes_from_a_web_server_to_an_ftp_server() {
    let film = content(3 << 20);
    let (world, web) = start(WebBehaviour::default(), &film);
    let copied = world.run(world.pass_on(web.dial(), PATH, "film"));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fs::read(world.at_server("film")).expect("it is there") == film);
}

/// In this test, part of the bytes comes from an older version, as from an outdated mirror.
#[test]
fn ranges_of_two_versions_never_become_one_file() {
    let film = content(LARGE);
    let manners = WebBehaviour {
        stale_from: Some(40 << 20),
        slows_answers: SLOW_STEP,
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, &film);
    let mut job = job(&world, web.dial(), PATH);
    job.plan.retries = 0;
    let copied = world.run(job);
    let is_there = world.here("film").exists();
    assert!(
        !is_there || fetched(&world) == film,
        "a file of two versions has the final name; failures: {:?}",
        copied.failures()
    );
}

/// A web cache may announce ranges and send the whole file, as long as it has not stored the file.
#[test]
fn a_server_that_says_ranges_and_gives_none_gives_a_large_file_as_one() {
    let film = content(LARGE);
    let manners = WebBehaviour {
        lies_of_ranges: true,
        slows_answers: SLOW_STEP,
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, &film);
    let first = world.run(job(&world, web.dial(), PATH));
    let second = world.run(job(&world, web.dial(), PATH));
    assert!(
        world.here("film").exists() && fetched(&world) == film,
        "first run: {:?}; second run: {:?}",
        first.failures(),
        second.failures()
    );
}

/// Each further connection would need a handshake of three round trips.
#[test]
fn questions_of_a_lane_share_a_connection() {
    let film = content(100_000);
    let (world, web) = start(WebBehaviour::default(), &film);
    let mut counts = Vec::new();
    for number in 0..20 {
        let mut job = world.fetch_by(web.dial(), PATH, &world.here(&format!("film{number}")));
        job.plan.lanes_max = 1;
        let before = web.state().connections;
        assert_eq!(world.run(job).failures(), [""; 0]);
        counts.push(web.state().connections - before);
    }
    assert_eq!(counts, [1; 20]);
}

/// An attacker on the path could also end the connection at this point.
#[test]
fn an_end_by_close_is_none_whatever_coding_is_said() {
    let film = content(100_000);
    let manners = WebBehaviour {
        ends_by_close: true,
        coding: Some("identity"),
        breaks_after: Some(50_000),
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, &film);
    let mut job = job(&world, web.dial(), PATH);
    job.plan.retries = 1;
    let copied = world.run(job);
    assert!(
        !world.here("film").exists() || fetched(&world) == film,
        "{} of {} bytes have the final name; failures: {:?}",
        fetched(&world).len(),
        film.len(),
        copied.failures()
    );
}

#[test]
fn an_answer_that_is_not_the_file_is_none() {
    for status in ["202 Accepted", "204 No Content", "205 Reset Content"] {
        let manners = WebBehaviour {
            status: Some(status),
            ..WebBehaviour::default()
        };
        let (world, web) = start(manners, b"film");
        let copied = world.run(job(&world, web.dial(), PATH));
        assert!(
            !world.here("film").exists(),
            "{status} became a file of {} bytes; failures: {:?}",
            fetched(&world).len(),
            copied.failures()
        );
    }
}

/// In this test, the server permits one download at a time, as nginx does with `limit_conn`.
#[test]
fn a_server_that_takes_one_transfer_at_a_time_gives_a_large_file() {
    let film = content(LARGE);
    let manners = WebBehaviour {
        gets_max: Some(1),
        slows_answers: SLOW_STEP,
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, &film);
    let mut job = job(&world, web.dial(), PATH);
    job.plan.retries = 1;
    let copied = world.run(job);
    let asked = web.state().asked.clone();
    assert_eq!(copied.failures(), [""; 0], "{asked:?}");
    assert!(fetched(&world) == film);
}

/// The same host can be written in several forms, such as `127.1` and `127.0.0.1`.
#[test]
fn an_account_is_given_whatever_form_the_host_has() {
    let film = content(1000);
    let manners = WebBehaviour {
        account: Some("bWU6c2VjcmV0"),
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, &film);
    let mut dial = web.dial_as("me", "secret");
    dial.server.host = "127.1".to_owned();
    let copied = world.run(job(&world, dial, PATH));
    assert_eq!(copied.failures(), [""; 0]);
}

/// The server forbids `HEAD`, so the mover requests a range. For an empty file, no range can be
/// satisfied.
#[test]
fn an_empty_file_comes_from_a_server_that_forbids_to_ask() {
    let manners = WebBehaviour {
        no_head: true,
        ..WebBehaviour::default()
    };
    let (world, web) = start(manners, b"");
    let copied = world.run(job(&world, web.dial(), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world).is_empty());
}

/// A resumed TLS session involves no certificate check. If the client offered one server's TLS
/// sessions to another server, an impostor could receive the first server's password.
#[test]
fn a_password_goes_to_nobody_with_the_tls_session_of_another_server() {
    let (heard, failures) = passwords_sent_to_an_impostor(true);
    assert_eq!(heard, 1, "the impostor was told it; failures: {failures:?}");
}

#[test]
fn a_password_goes_to_nobody_with_the_certificate_of_another_server() {
    let (heard, failures) = passwords_sent_to_an_impostor(false);
    assert_eq!(heard, 1, "{failures:?}");
    assert!(failures.join(" ").contains("certificate"), "{failures:?}");
}

/// Returns how often the password was sent, and the failures. Sending the password once, to the
/// real server, is correct.
fn passwords_sent_to_an_impostor(has_session: bool) -> (usize, Vec<String>) {
    let film = content(100_000);
    let (ours, our_root) = tls_of("127.0.0.1");
    let (theirs, their_root) = tls_of("127.0.0.2");
    let there = Web::start_as("127.0.0.2", WebBehaviour::default(), (theirs.clone(), None));
    there.put("/a%20b/film?x=1", &film);
    let manners = WebBehaviour {
        leads_to: Some(there.url("").trim_end_matches('/').to_owned()),
        ..WebBehaviour::default()
    };
    // From the second connection on, the server lacks our certificate.
    let impostor = match has_session {
        true => theirs,
        false => tls_of("127.0.0.2").0,
    };
    let web = Web::start_as("127.0.0.1", manners, (ours, Some(impostor)));
    let world = World::new();
    let mut dial = web.dial_as("me", "secret");
    dial.verify = CertificateCheck::Roots(Some(vec![our_root, their_root]));
    let mut job = job(&world, dial, PATH);
    job.plan.lanes_max = 1;
    job.plan.retries = 0;
    let copied = world.run(job);
    let failures = copied.failures();
    let failures = failures.into_iter().map(str::to_owned).collect();
    let heard = web.state().authorizations.len();
    (heard, failures)
}
