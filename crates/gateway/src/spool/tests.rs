//! Spools on a real disk, in virtual time.

use std::{path::Path, sync::Arc};

use bytes::Bytes;

use super::{
    contents::{Reader, SpoolError},
    *,
};

fn settings(folder: &Path, size_max: u64) -> Settings {
    Settings {
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

async fn rest(reader: &mut Reader) -> Result<Vec<u8>, SpoolError> {
    let mut all = Vec::new();
    while let Some(bytes) = reader.read().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

#[tokio::test]
async fn all_readers_have_what_one_stream_brings() {
    let spools = spools(4 << 20);
    let (mut first, answer) = spools.place(PEER, &request(1, 3000, 0)).expect("room");
    assert_eq!(answer.have_bytes, 0);
    let bytes = content(3000);
    let mut filler = first.contents.filler(0).expect("it follows");
    filler.write(bytes.slice(..1000)).await.expect("room");
    let (mut second, answer) = spools
        .place(PEER, &request(1, 3000, 500))
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
    let (mut place, _) = spools.place(PEER, &request(1, 3000, 0)).expect("room");
    let bytes = content(3000);
    let mut filler = place.contents.filler(0).expect("it follows");
    filler.write(bytes.slice(..1000)).await.expect("room");
    drop(filler);
    assert!(place.contents.filler(1001).is_err(), "a gap");
    // It does not know all that has come.
    let mut filler = place.contents.filler(600).expect("it follows");
    filler.write(bytes.slice(600..700)).await.expect("known");
    filler.write(bytes.slice(700..)).await.expect("room");
    assert!(filler.write(bytes.slice(..1)).await.is_err(), "too many");
    assert_eq!(rest(&mut place.reader).await.expect("all"), bytes);
}

#[tokio::test]
async fn the_fastest_reader_sets_the_pace_and_one_far_behind_loses_its_place() {
    let spools = spools(4000);
    let (mut fast, _) = spools.place(PEER, &request(1, 5000, 0)).expect("room");
    let (mut slow, _) = spools.place(PEER, &request(1, 5000, 0)).expect("room");
    let bytes = content(5000);
    let mut filler = fast.contents.filler(0).expect("it follows");
    let filling = tokio::spawn({
        let bytes = bytes.clone();
        async move { filler.write(bytes).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(fast.contents.have_bytes(), 1000, "a fourth of the room");
    assert_eq!(rest(&mut fast.reader).await.expect("all"), bytes);
    filling.await.expect("no panic").expect("all is taken");
    let lost = rest(&mut slow.reader).await;
    assert!(matches!(lost, Err(SpoolError::Behind)), "{lost:?}");
    let gone = spools.place(PEER, &request(1, 5000, 3999));
    assert!(matches!(gone, Err(NoSpool::Gone)));
    let (mut late, _) = spools.place(PEER, &request(1, 5000, 4000)).expect("there");
    assert_eq!(rest(&mut late.reader).await.expect("all"), bytes[4000..]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_a_sender_but_not_for_ever() {
    let spools = spools(4 << 20);
    let (mut place, _) = spools.place(PEER, &request(1, 10, 0)).expect("room");
    let begun = Instant::now();
    let unattended = place.reader.read().await;
    assert!(matches!(unattended, Err(SpoolError::Unattended)));
    assert!(begun.elapsed() >= Duration::from_secs(20));
    let filler = place.contents.filler(0).expect("it follows");
    let waiting = tokio::time::timeout(Duration::from_secs(600), place.reader.read()).await;
    assert!(waiting.is_err(), "somebody is there");
    drop(filler);
    assert!(place.reader.read().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn room_is_bounded_and_given_back() {
    let spools = spools(4000);
    let mut places = Vec::new();
    for id in 0..4 {
        places.push(spools.place(PEER, &request(id, 5000, 0)).expect("room").0);
    }
    let full = spools.place(PEER, &request(9, 5000, 0));
    assert!(matches!(full, Err(NoSpool::Full)));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let full = spools.place(PEER, &request(9, 5000, 0));
    assert!(matches!(full, Err(NoSpool::Full)), "all are in use");
    places.pop();
    tokio::time::sleep(Duration::from_secs(130)).await;
    spools
        .place(PEER, &request(9, 5000, 0))
        .expect("one was given up");
    // Two readers that have had all leave room at once.
    let bytes = content(100);
    let mut other = Spools::new(settings(&std::env::temp_dir(), 400));
    let (mut one, _) = other.place(PEER, &request(1, 100, 0)).expect("room");
    let (mut two, _) = other.place(PEER, &request(1, 100, 100)).expect("room");
    let mut filler = one.contents.filler(0).expect("it follows");
    filler.write(bytes).await.expect("room");
    rest(&mut one.reader).await.expect("all");
    assert_eq!(other.lock().used_bytes, 100);
    rest(&mut two.reader).await.expect("all");
    tokio::task::yield_now().await;
    assert_eq!(
        Arc::get_mut(&mut other).map(|it| it.lock().used_bytes),
        Some(0)
    );
}

#[tokio::test]
async fn a_spool_is_for_one_peer_and_one_file() {
    let spools = spools(4 << 20);
    let (place, _) = spools.place(PEER, &request(1, 10, 0)).expect("room");
    let mut filler = place.contents.filler(0).expect("it follows");
    filler.write(content(10)).await.expect("room");
    let (_, answer) = spools.place(PeerId(1), &request(1, 10, 0)).expect("room");
    assert_eq!(answer.have_bytes, 0, "another peer has another spool");
    let other = spools.place(PEER, &request(1, 11, 0));
    assert!(matches!(other, Err(NoSpool::OtherFile)));
}

#[tokio::test]
async fn a_folder_that_takes_nothing_is_an_answer() {
    let spools = Spools::new(settings(Path::new("/proc"), 4000));
    let none = spools.place(PEER, &request(1, 10, 0));
    let said = none.expect_err("no file can be made there").to_string();
    assert!(
        said.starts_with("452 gateway: the spool cannot be written"),
        "{said}"
    );
}
