//! Files of a web server come as those of FTP servers do.

mod common;

use std::fs;

use common::{
    World, content,
    web::{Web, WebManners},
};
use mover::{job::Job, web::WebDial};

const LARGE: usize = 72 << 20;

fn job(world: &World, dial: WebDial, path: &str) -> Job {
    world.fetch_by(dial, path, &world.here("film"))
}

fn fetched(world: &World) -> Vec<u8> {
    fs::read(world.here("film")).expect("it is there")
}

fn start(manners: WebManners, content: &[u8]) -> (World, Web) {
    let web = Web::start(manners);
    web.put("/a%20b/film?x=1", content);
    (World::new(), web)
}

const PATH: &str = "a%20b/film?x=1";

/// The film comes, whatever these manners are. Returns what the server was asked.
fn asked_for(film: &[u8], manners: WebManners) -> Vec<String> {
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
    let (world, web) = start(WebManners::default(), &film);
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
fn a_large_file_comes_by_several_connections() {
    let film = content(LARGE);
    let (world, web) = start(WebManners::default(), &film);
    let copied = world.run(job(&world, web.dial(), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world) == film);
    assert_eq!(copied.moved_bytes, LARGE as u64);
    let state = web.state();
    let ranges = state.asked.iter().filter(|it| it.contains("bytes="));
    assert!(ranges.count() >= 3, "{:?}", state.asked);
}

#[test]
fn a_server_without_ranges_gives_a_large_file_as_one() {
    let manners = WebManners {
        no_ranges: true,
        ..WebManners::default()
    };
    let asked = asked_for(&content(LARGE), manners);
    assert_eq!(gets(&asked), 1, "{asked:?}");
}

#[test]
fn what_broke_off_is_gone_on_with() {
    for no_ranges in [false, true] {
        let manners = WebManners {
            no_ranges,
            breaks_after: Some(6 << 20),
            ..WebManners::default()
        };
        let asked = asked_for(&content(9 << 20), manners);
        assert!(gets(&asked) >= 2, "it broke off: {asked:?}");
        // Without ranges the file is fetched anew.
        let goes_on = asked.iter().any(|it| it.contains("bytes="));
        assert_eq!(goes_on, !no_ranges, "{asked:?}");
    }
}

#[test]
fn a_length_that_is_not_told_before_is_no_harm() {
    let film = content(100_000);
    for (is_chunked, ends_by_close) in [(true, false), (false, true)] {
        let manners = WebManners {
            is_chunked,
            ends_by_close,
            ..WebManners::default()
        };
        let (world, web) = start(manners, &film);
        let copied = world.run(job(&world, web.dial(), PATH));
        if is_chunked {
            assert_eq!(copied.failures(), [""; 0]);
            assert!(fetched(&world) == film);
        } else {
            // Everybody on the path could have made this end.
            assert_eq!(copied.failures().len(), 1);
            assert!(!world.here("film").exists());
        }
    }
}

#[test]
fn a_server_that_forbids_to_ask_is_asked_for_a_byte() {
    let manners = WebManners {
        no_head: true,
        ..WebManners::default()
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
    let (world, there) = start(WebManners::default(), &film);
    let manners = WebManners {
        leads_to: Some(there.url("").trim_end_matches('/').to_owned()),
        ..WebManners::default()
    };
    let web = Web::start(manners);
    let copied = world.run(job(&world, web.dial_as("me", "secret"), PATH));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fetched(&world) == film);
    assert!(there.state().authorizations.is_empty());
    assert!(!web.state().authorizations.is_empty());
}

#[test]
fn where_no_file_is_fetched_from_is_told() {
    let led = |place: &str| {
        let manners = WebManners {
            leads_to: Some(place.to_owned()),
            ..WebManners::default()
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
    let manners = WebManners {
        account: Some("bWU6c2VjcmV0"),
        ..WebManners::default()
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
fn what_is_not_there_and_what_is_refused_is_told() {
    let (world, web) = start(WebManners::default(), b"");
    let copied = world.run(job(&world, web.dial(), "nothing"));
    assert!(!copied.failures().is_empty());
    let manners = WebManners {
        status: Some("451 Unavailable For Legal Reasons"),
        ..WebManners::default()
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
    let (world, web) = start(WebManners::default(), &film);
    let copied = world.run(world.pass_on(web.dial(), PATH, "film"));
    assert_eq!(copied.failures(), [""; 0]);
    assert!(fs::read(world.at_server("film")).expect("it is there") == film);
}
