//! Simulated SFTP sessions: a client, both halves, a link and a server. Each may be slow, and the
//! server and the link may fail. Each session must satisfy these invariants:
//!
//! - An upload that has failed in part never appears complete to the client.
//! - A download has the right bytes, or the client reads a failure.
//! - A READ returns no byte that is older than an earlier change of the same session.
//! - If the near half requests a file or an attribute before the client does, the answer is at most
//!   2 s old. It is not older than a change of the same session.
//! - Each request of the client has one answer.
//! - The memory of both halves has a limit.
//!
//! The variable `SIEGE_CASES` sets the number of sessions. `SIEGE_SEED` sets the first seed.

mod changes;
mod client;
mod failures;
mod pair;
mod read_ahead;
mod rng;
mod round_trips;
mod server;
mod small_files;
mod world;

use self::world::{Outcome, World};

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn sessions_in_which_each_party_misbehaves_keep_the_invariants() {
    let first = number("SIEGE_SEED", 0);
    let count = number("SIEGE_CASES", 3000);
    let mut total = Outcome::default();
    let mut failures = Vec::new();
    for seed in first..first + count {
        let run = std::panic::catch_unwind(|| World::random(seed).run());
        match run {
            Ok(Ok(outcome)) => total.add(outcome),
            Ok(Err(why)) => failures.push(format!("seed {seed}: {why}")),
            Err(_) => failures.push(format!("seed {seed}: panic")),
        }
        if failures.len() > 20 {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{total:?}");
    if count >= 1000 {
        assert!(total.uploads > count / 4, "uploads end: {total:?}");
        assert!(total.broken_uploads > count / 50, "uploads fail: {total:?}");
        assert!(total.downloads > count / 4, "downloads end: {total:?}");
        assert!(total.errors > 10, "garbage ends sessions: {total:?}");
        assert!(total.cuts > count / 50, "links are cut: {total:?}");
    }
}
