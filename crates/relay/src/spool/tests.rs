//! Tests of spools on a real disk, in virtual time.

use std::{path::Path, sync::Arc};

use bytes::Bytes;

use super::{
    contents::{SpoolError, SpoolReader},
    *,
};

fn settings(folder: &Path, size_max: u64) -> SpoolSettings {
    SpoolSettings {
        folder: folder.to_owned(),
        size_max: ByteCount::new(size_max),
    }
}

fn spools(size_max: u64) -> Arc<Spools> {
    Spools::new(settings(&std::env::temp_dir(), size_max))
}

fn request(id: u128, size_bytes: u64, offset_bytes: u64) -> SpoolRequest {
    SpoolRequest {
        id,
        size_bytes,
        offset_bytes,
        readers: 2,
    }
}

const PEER: PeerId = PeerId(0);

fn content(size: u64) -> Bytes {
    (0..size).map(|at| (at % 251) as u8).collect()
}

async fn rest(reader: &mut SpoolReader) -> Result<Vec<u8>, SpoolError> {
    let mut all = Vec::new();
    while let Some(bytes) = reader.read().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

#[tokio::test]
async fn all_readers_have_what_one_stream_brings() {
    let spools = spools(4 << 20);
    let (mut first, answer) = spools
        .open_position(PEER, &request(1, 3000, 0))
        .await
        .expect("room");
    assert_eq!(answer.have_bytes, 0);
    let bytes = content(3000);
    let mut filler = first.contents.writer(0).expect("it follows");
    filler.write(bytes.slice(..1000)).await.expect("room");
    let (mut second, answer) = spools
        .open_position(PEER, &request(1, 3000, 500))
        .await
        .expect("it is there");
    assert_eq!(answer.have_bytes, 1000);
    filler.write(bytes.slice(1000..)).await.expect("room");
    drop(filler);
    assert_eq!(rest(&mut first.reader).await.expect("all"), bytes);
    assert_eq!(rest(&mut second.reader).await.expect("all"), bytes[500..]);
}

#[tokio::test]
async fn a_sender_that_comes_later_goes_on_and_repeats_nothing() {
    let spools = spools(4 << 20);
    let (mut position, _) = spools
        .open_position(PEER, &request(1, 3000, 0))
        .await
        .expect("room");
    let bytes = content(3000);
    let mut filler = position.contents.writer(0).expect("it follows");
    filler.write(bytes.slice(..1000)).await.expect("room");
    drop(filler);
    assert!(position.contents.writer(1001).is_err(), "a gap");
    // This stream repeats bytes that have arrived before.
    let mut filler = position.contents.writer(600).expect("it follows");
    filler.write(bytes.slice(600..700)).await.expect("known");
    filler.write(bytes.slice(700..)).await.expect("room");
    assert!(filler.write(bytes.slice(..1)).await.is_err(), "too many");
    assert_eq!(rest(&mut position.reader).await.expect("all"), bytes);
}

#[tokio::test]
async fn the_fastest_reader_sets_the_pace_and_one_far_behind_loses_its_place() {
    let spools = spools(8000);
    let (mut fast, _) = spools
        .open_position(PEER, &request(1, 5000, 0))
        .await
        .expect("room");
    let (mut slow, _) = spools
        .open_position(PEER, &request(1, 5000, 0))
        .await
        .expect("room");
    let bytes = content(5000);
    let mut filler = fast.contents.writer(0).expect("it follows");
    let filling = tokio::spawn({
        let bytes = bytes.clone();
        async move { filler.write(bytes).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(fast.contents.have_bytes(), 1000, "an eighth of the room");
    assert_eq!(rest(&mut fast.reader).await.expect("all"), bytes);
    filling.await.expect("no panic").expect("all is taken");
    let lost = rest(&mut slow.reader).await;
    assert!(matches!(lost, Err(SpoolError::Behind)), "{lost:?}");
    let gone = spools.open_position(PEER, &request(1, 5000, 3999)).await;
    assert!(matches!(gone, Err(SpoolRefusal::Gone)));
    let (mut late, _) = spools
        .open_position(PEER, &request(1, 5000, 4000))
        .await
        .expect("there");
    assert_eq!(rest(&mut late.reader).await.expect("all"), bytes[4000..]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_a_sender_but_not_for_ever() {
    let spools = spools(4 << 20);
    let (mut position, _) = spools
        .open_position(PEER, &request(1, 10, 0))
        .await
        .expect("room");
    let begun = Instant::now();
    let unattended = position.reader.read().await;
    assert!(matches!(unattended, Err(SpoolError::Unattended)));
    assert!(begun.elapsed() >= Duration::from_secs(20));
    let filler = position.contents.writer(0).expect("it follows");
    let waiting = tokio::time::timeout(Duration::from_secs(600), position.reader.read()).await;
    assert!(waiting.is_err(), "somebody is there");
    drop(filler);
    assert!(position.reader.read().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn room_is_bounded_and_given_back() {
    let spools = spools(4000);
    let mut places = Vec::new();
    for id in 0..7 {
        let position = spools.open_position(PEER, &request(id, 5000, 0)).await;
        places.push(position.expect("room").0);
    }
    let full = spools.open_position(PEER, &request(9, 5000, 0)).await;
    assert!(
        matches!(full, Err(SpoolRefusal::Full)),
        "a peer leaves an eighth"
    );
    let other = spools.open_position(PeerId(1), &request(9, 5000, 0)).await;
    assert!(other.is_ok());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let full = spools.open_position(PEER, &request(9, 5000, 0)).await;
    assert!(matches!(full, Err(SpoolRefusal::Full)), "all are in use");
    places.pop();
    tokio::time::sleep(Duration::from_secs(130)).await;
    let fits = spools.open_position(PEER, &request(9, 5000, 0)).await;
    assert!(fits.is_ok(), "one was given up");
}

#[tokio::test]
async fn a_file_that_all_have_leaves_its_room_when_nobody_reads_it_any_more() {
    let spools = spools(800);
    let (mut one, _) = spools
        .open_position(PEER, &request(1, 100, 0))
        .await
        .expect("room");
    let (mut two, _) = spools
        .open_position(PEER, &request(1, 100, 100))
        .await
        .expect("room");
    let slow = spools
        .open_position(PEER, &request(1, 100, 0))
        .await
        .expect("room");
    let mut filler = one.contents.writer(0).expect("it follows");
    filler.write(content(100)).await.expect("room");
    rest(&mut one.reader).await.expect("all");
    rest(&mut two.reader).await.expect("all");
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop((one, two, filler));
    assert!(spools.lock().is_empty());
    assert_eq!(
        spools.disk_space.reserved_bytes(),
        100,
        "a third one still reads"
    );
    drop(slow);
    assert_eq!(spools.disk_space.reserved_bytes(), 0);
}

#[tokio::test]
async fn a_spool_is_for_one_peer_and_one_file() {
    let spools = spools(4 << 20);
    let (position, _) = spools
        .open_position(PEER, &request(1, 10, 0))
        .await
        .expect("room");
    let mut filler = position.contents.writer(0).expect("it follows");
    filler.write(content(10)).await.expect("room");
    let (_, answer) = spools
        .open_position(PeerId(1), &request(1, 10, 0))
        .await
        .expect("room");
    assert_eq!(answer.have_bytes, 0, "another peer has another spool");
    let other = spools.open_position(PEER, &request(1, 11, 0)).await;
    assert!(matches!(other, Err(SpoolRefusal::OtherFile)));
}

#[tokio::test]
async fn a_folder_that_takes_nothing_is_an_answer() {
    let spools = Spools::new(settings(Path::new("/proc"), 4000));
    let none = spools.open_position(PEER, &request(1, 10, 0)).await;
    let said = none.expect_err("no file can be made there").to_string();
    assert!(
        said.starts_with("452 gateway: the spool cannot be written"),
        "{said}"
    );
}
