//! Tests of comparing a file's content. The mover compares hashes if the server computes them, and
//! otherwise reads the file back.

use std::fs;

use fake_ftp::{Behaviour, FakeServer};
use mover::{
    job::CopyVerification,
    plan::{ContentProof, FileOutcome},
};

use crate::common::{CopyResult, FakeServerExt as _, World, content};

/// Uploads or downloads a file, and compares its content. Returns the result and the commands that
/// the server received.
fn copy(behaviour: Behaviour, is_upload: bool) -> (CopyResult, Vec<String>) {
    let world = World::new();
    let server = FakeServer::start(behaviour);
    let film = content(100_000);
    let mut job = if is_upload {
        fs::write(world.here("film"), &film).expect("room");
        world.upload_by(server.dial(), &world.here("film"), "film")
    } else {
        server.put("film", &film);
        world.download_by(server.dial(), "film", &world.here("film"))
    };
    job.moving.verify = CopyVerification::Hash;
    job.plan.retries = 0;
    let copied = world.run(job);
    let verbs = server.state().verbs.clone();
    (copied, verbs)
}

fn proof(copied: &CopyResult) -> Option<ContentProof> {
    copied.notes.iter().find_map(|note| match note.result {
        FileOutcome::Moved(_, proof) => Some(proof),
        _ => None,
    })
}

fn count(verbs: &[String], verb: &str) -> usize {
    verbs.iter().filter(|it| *it == verb).count()
}

#[test]
fn a_hash_of_the_server_proves_what_it_has() {
    for is_upload in [true, false] {
        let behaviour = Behaviour {
            hash_suffix: Some(b""),
            ..Behaviour::default()
        };
        let (copied, verbs) = copy(behaviour, is_upload);
        assert_eq!(
            proof(&copied),
            Some(ContentProof::Hash),
            "{:?}",
            copied.notes
        );
        assert_eq!(count(&verbs, "XMD5"), 1, "{verbs:?}");
        let reads = if is_upload { 0 } else { 1 };
        assert_eq!(count(&verbs, "RETR"), reads, "nothing is read back");
    }
}

#[test]
fn another_hash_is_no_copy() {
    for is_upload in [true, false] {
        let behaviour = Behaviour {
            hash_suffix: Some(b"x"),
            ..Behaviour::default()
        };
        let (copied, _) = copy(behaviour, is_upload);
        assert_eq!(proof(&copied), None);
        let said = copied.failures().concat();
        assert!(said.contains("reads back other bytes"), "{said}");
    }
}

#[test]
fn without_hashes_the_content_is_read_back() {
    let (copied, verbs) = copy(Behaviour::default(), true);
    assert_eq!(proof(&copied), Some(ContentProof::Content));
    assert_eq!(count(&verbs, "RETR"), 1);
}
