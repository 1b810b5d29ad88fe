use super::{super::memory::FLOOR_SHARE, *};
use crate::stream::{SLOT_SIZE, recv::WindowShortage};

pub(super) fn streams(memory_max: u64) -> StreamTable {
    StreamTable::new(
        true,
        StreamLimits {
            initial_credit: 64,
            peer_limit: 100_000,
            memory_max,
        },
    )
}

#[test]
fn a_quarter_of_the_memory_is_left_for_sending_however_many_streams_are_open() {
    for memory_max in [16 << 20, 64 << 20, 1 << 30] {
        let mut streams = streams(memory_max);
        let first = streams.open(StreamClass::Bulk, 0.0).expect("it is allowed");
        while streams.widen(first, |_| {
            Some(WindowShortage::Hole {
                highest: u64::MAX / 8,
            })
        }) {}
        while streams.open(StreamClass::Bulk, 0.0).is_some() {
            assert!(streams.memory.send_buffer_max() >= memory_max / FLOOR_SHARE);
        }
    }
}

#[test]
fn however_many_streams_the_peer_allows_no_more_are_open_than_fit_our_memory() {
    let memory_max = 16 << 20;
    let mut streams = streams(memory_max);
    let numbers: Vec<_> = std::iter::from_fn(|| streams.open(StreamClass::Bulk, 0.0)).collect();
    assert_eq!(numbers.len() as u32, streams_max(memory_max));
    for number in numbers {
        let stream = streams.get(number).expect("it is open");
        (stream.send_done, stream.recv_done) = (true, true);
        streams.remove_if_done(number);
    }
    assert!(streams.open(StreamClass::Bulk, 0.0).is_some(), "room again");
}

#[test]
fn new_bytes_are_those_that_credit_lets_go_of_as_many_streams_as_are_looked_at() {
    let mut streams = streams(16 << 20);
    for _ in 0..3 {
        let number = streams.open(StreamClass::Bulk, 0.0).expect("it is allowed");
        let stream = streams.get(number).expect("it is open");
        stream.send.set_credit(64);
        stream.send.write(vec![0; 70 * SLOT_SIZE].into());
        streams.make_ready(number);
    }
    assert_eq!(streams.new_bytes(usize::MAX, 1), 64 * SLOT_SIZE);
    assert_eq!(streams.new_bytes(usize::MAX, 100), 3 * 64 * SLOT_SIZE);
    assert_eq!(streams.new_bytes(1000, 100), 1000);
}

#[test]
fn new_bytes_of_a_stream_in_the_place_of_a_reset_one_count_once() {
    let mut streams = streams(16 << 20);
    let mut open = || {
        let number = streams.open(StreamClass::Bulk, 0.0).expect("it is allowed");
        let stream = streams.get(number).expect("it is open");
        stream.send.set_credit(64);
        stream.send.write(vec![0; 8 * SLOT_SIZE].into());
        streams.make_ready(number);
        let place = streams.by_number[&number];
        let bytes = streams.new_bytes(usize::MAX, 100);
        let stream = streams.get(number).expect("it is open");
        (stream.send_done, stream.recv_done) = (true, true);
        streams.remove_if_done(number);
        (place, bytes)
    };
    let first = open();
    assert_eq!(open(), first);
    assert_eq!(first.1, 8 * SLOT_SIZE);
}

#[test]
fn numbers_end_before_they_come_again() {
    let mut streams = streams(16 << 20);
    streams.set_peer_limit(u32::MAX);
    streams.next_count = COUNT_MAX / 2 - 1;
    assert!(!streams.is_wearing_out());
    streams.open(StreamClass::Bulk, 0.0).expect("it is allowed");
    assert!(streams.is_wearing_out());
    streams.next_count = COUNT_MAX - 1;
    let last = streams.open(StreamClass::Bulk, 0.0).expect("it is allowed");
    assert_eq!(StreamNumber::decode(last).count, COUNT_MAX - 1);
    assert_eq!(streams.open(StreamClass::Bulk, 0.0), None);
}

#[test]
fn a_peer_opens_what_it_may_in_any_order_and_no_more() {
    let mut streams = streams(16 << 20);
    let limit = streams.stream_limit();
    let number = |count| {
        let (class, by_initiator) = (StreamClass::Bulk, false);
        StreamNumber {
            count,
            class,
            by_initiator,
        }
        .encode()
    };
    let mut opens = |count| {
        let stream = streams.named_by_peer(number(count), 0.0);
        stream.map(|stream| stream.is_some())
    };
    assert_eq!(opens(limit), Err(InvalidStream));
    for count in (0..limit).rev() {
        assert_eq!(opens(count), Ok(true), "{count}");
    }
    assert_eq!(streams.len(), limit as usize);
    assert!(streams.peer_skipped.is_empty());
}

#[test]
fn up_to_the_streams_at_once_a_peer_can_always_open_one_more() {
    use crate::stream::memory::streams_at_once;
    for memory_max in [16 << 20, 64 << 20, 1 << 30, 64 << 30] {
        let mut streams = streams(memory_max);
        let at_once = streams_at_once(units::ByteCount::new(memory_max), 1) as u32;
        let number = |count| {
            let (class, by_initiator) = (StreamClass::Bulk, false);
            StreamNumber {
                count,
                class,
                by_initiator,
            }
            .encode()
        };
        for count in 0..5 * streams_max(memory_max) {
            if let Some(oldest) = count.checked_sub(at_once) {
                let stream = streams.get(number(oldest)).expect("it is open");
                (stream.send_done, stream.recv_done) = (true, true);
                streams.remove_if_done(number(oldest));
            }
            let opened = streams.named_by_peer(number(count), 0.0);
            assert!(
                opened.is_ok_and(|opened| opened.is_some()),
                "{count} with {at_once} at once of {memory_max} bytes"
            );
        }
    }
}

#[test]
fn a_credit_waits_once_however_often_it_changes() {
    let mut streams = streams(1 << 30);
    let number = streams.open(StreamClass::Bulk, 0.0).expect("it is allowed");
    while streams.controls.pop().is_some() {}
    for _ in 0..100 {
        streams.queue_credit(number);
    }
    assert_eq!(streams.controls.pop(), Some(ControlFrame::Credit(number)));
    assert!(streams.controls.is_empty());
}

#[test]
fn each_pass_repeats_every_stream() {
    let mut streams = streams(1 << 30);
    for _ in 0..2 {
        let number = streams.open(StreamClass::Bulk, 0.0).expect("it is allowed");
        let stream = streams.get(number).expect("it is open");
        stream.send.write(vec![1; 1000].into());
        streams.take_new(number, 1000, &mut Vec::new());
    }
    for _ in 0..3 {
        let mut repeated = 0;
        let mut restart = true;
        while let Some((chunk, _)) = streams.next_repeat(10, restart) {
            restart = false;
            let stream = streams.by_ref(chunk).expect("it was just found");
            stream.send.take_again(chunk.index, &mut Vec::new());
            repeated += 1;
        }
        assert_eq!(repeated, 2);
    }
}

#[test]
fn repeats_cost_nothing_for_streams_of_which_everything_has_arrived() {
    const IDLE: usize = 1000;
    const SLOTS: u64 = 20;
    let mut streams = streams(1 << 30);
    let send = |streams: &mut StreamTable, slots: u64| {
        let number = bulk(streams);
        let stream = streams.get(number).expect("it is open");
        stream.send.set_credit(slots);
        stream.send.write(vec![1; 1000 * slots as usize].into());
        let chunks = (0..slots).map(|_| streams.take_new(number, 1000, &mut Vec::new()));
        chunks.collect::<Vec<_>>()
    };
    for _ in 0..IDLE {
        for chunk in send(&mut streams, 1) {
            let stream = streams.by_ref(chunk).expect("it is open");
            stream.send.on_arrived(chunk.index);
        }
    }
    send(&mut streams, SLOTS);
    assert!(streams.len() > IDLE, "they are open beside the transfer");
    let mut pass = || {
        let before = streams.repeats.looks;
        let (mut repeated, mut restart) = (0, true);
        streams.repeat_ends(10);
        while let Some((chunk, _)) = streams.next_repeat(10, restart) {
            restart = false;
            let stream = streams.by_ref(chunk).expect("it was just found");
            stream.send.take_again(chunk.index, &mut Vec::new());
            repeated += 1;
        }
        (repeated, streams.repeats.looks - before)
    };
    let (repeated, looks) = pass();
    assert_eq!(repeated, SLOTS);
    assert!(
        looks < 2 * IDLE as u64 + 2 * SLOTS,
        "the first: {looks} looks"
    );
    let (repeated, looks) = pass();
    assert_eq!(repeated, SLOTS);
    assert!(looks < 2 * SLOTS, "{looks} looks");
}

#[test]
fn an_end_is_repeated_until_it_has_arrived() {
    let mut streams = streams(1 << 30);
    let number = bulk(&mut streams);
    let repeats = |streams: &mut StreamTable| {
        streams.next_repeat(10, true);
        streams.repeat_ends(10);
        streams.controls.pop()
    };
    assert_eq!(repeats(&mut streams), None, "nothing was sent");
    streams.get(number).expect("it is open").send.finish();
    streams.make_ready(number);
    assert_eq!(streams.controls.pop(), Some(ControlFrame::End(number)));
    assert_eq!(repeats(&mut streams), Some(ControlFrame::End(number)));
    assert_eq!(repeats(&mut streams), Some(ControlFrame::End(number)));
    let stream = streams.get(number).expect("it is open");
    stream.send.mark_end_arrived();
    assert_eq!(repeats(&mut streams), None);
}

pub(super) fn bulk(streams: &mut StreamTable) -> u32 {
    streams.open(StreamClass::Bulk, 0.0).expect("it is allowed")
}

#[test]
fn the_memory_of_streams_comes_back_when_they_are_over() {
    let mut streams = streams(1 << 30);
    let first = bulk(&mut streams);
    let window = streams.get(first).expect("it is open").recv.window();
    streams.return_window(first);
    let before = streams.memory.room();
    let numbers: Vec<_> = (0..50).map(|_| bulk(&mut streams)).collect();
    for number in &numbers[..25] {
        streams.widen(*number, |_| {
            Some(WindowShortage::Hole {
                highest: u64::MAX / 8,
            })
        });
    }
    let crowded = streams.memory.room();
    assert!(crowded < before, "{crowded} slots left of {before}");
    for number in numbers {
        streams.return_window(number);
    }
    assert_eq!(streams.memory.room(), before);
    let next = bulk(&mut streams);
    assert_eq!(streams.get(next).expect("it is open").recv.window(), window);
}

pub(super) fn opened_by_peer(streams: &mut StreamTable, count: u32) -> u32 {
    let number = StreamNumber {
        count,
        class: StreamClass::Bulk,
        by_initiator: false,
    }
    .encode();
    streams
        .named_by_peer(number, 0.0)
        .expect("it is allowed")
        .expect("it is new");
    number
}

/// Checks that the sum of the peer's credit fits into the memory. The streams and the growth of
/// windows are random.
#[test]
fn credit_never_exceeds_the_memory_for_receiving() {
    for memory_max in [16 << 20, 64 << 20, 1 << 30] {
        let mut streams = streams(memory_max);
        let receiving = (memory_max - memory_max / FLOOR_SHARE) / SLOT_SIZE as u64;
        let half = streams_max(memory_max) / 2;
        let mut numbers: Vec<_> = (0..half)
            .map(|count| opened_by_peer(&mut streams, count))
            .collect();
        numbers.extend((0..half).map(|_| bulk(&mut streams)));
        for _ in 0..20 {
            for number in &numbers {
                streams.widen(*number, |_| {
                    Some(WindowShortage::Hole {
                        highest: u64::MAX / 8,
                    })
                });
            }
        }
        let windows = numbers
            .iter()
            .map(|number| streams.get(*number).expect("it is open").recv.window());
        let credit = windows.sum::<u64>();
        assert!(credit <= receiving, "{credit} of {receiving} slots");
    }
}

/// Checks that the window of a new stream grows while its reader reads, however many other readers
/// have stalled.
#[test]
fn a_stream_beside_stalled_ones_grows_with_its_reader() {
    for stalled in [0, 10, 150, 2000] {
        let mut streams = streams(1 << 30);
        for count in 0..stalled {
            opened_by_peer(&mut streams, count);
        }
        let number = opened_by_peer(&mut streams, stalled);
        let mut window = streams.get(number).expect("it is open").recv.window();
        let mut read = 0;
        for _ in 0..12 {
            read += window;
            streams.widen(number, |_| Some(WindowShortage::Reader { read }));
            window = streams.get(number).expect("it is open").recv.window();
        }
        // 7.5 MB fill a path of 300 Mbit/s and 200 ms.
        let bytes = window * SLOT_SIZE as u64;
        assert!(bytes > 7_500_000, "{bytes} beside {stalled}");
    }
}

/// Buffers absorb the first megabyte of a stream even if its reader has stalled. This megabyte must
/// not count as read by the reader.
#[test]
fn streams_that_stall_after_a_megabyte_leave_room_to_grow() {
    let mut streams = streams(1 << 30);
    let before = streams.memory.room();
    for count in 0..250 {
        let number = opened_by_peer(&mut streams, count);
        let mut read = 0;
        while read < (1 << 20) / SLOT_SIZE as u64 {
            let window = streams.get(number).expect("it is open").recv.window();
            read += window;
            streams.widen(number, |_| Some(WindowShortage::Reader { read }));
        }
    }
    let left = streams.memory.room() as f64 / before as f64;
    assert!(left > 0.2, "{left}");
}

/// Regression test: each repeated slot caused an examination of all streams that wait for credit.
#[test]
fn repeats_cost_one_look_a_pass_for_streams_that_wait_for_credit() {
    const BLOCKED: usize = 1000;
    const SLOTS: u64 = 200;
    let mut streams = streams(1 << 30);
    for _ in 0..BLOCKED {
        let number = bulk(&mut streams);
        let stream = streams.get(number).expect("it is open");
        stream.send.write(vec![1; 200_000].into());
        while streams.get(number).expect("it is open").send.has_new() {
            streams.take_new(number, 1000, &mut Vec::new());
        }
        let stream = streams.get(number).expect("it is open");
        assert!(stream.send.is_blocked());
    }
    let number = bulk(&mut streams);
    let stream = streams.get(number).expect("it is open");
    stream.send.set_credit(10_000);
    stream.send.write(vec![1; 1000 * SLOTS as usize].into());
    for _ in 0..SLOTS {
        streams.take_new(number, 1000, &mut Vec::new());
    }
    streams.get(number).expect("it is open").send.finish();
    let before = streams.repeats.looks;
    let (mut repeated, mut restart) = (0, true);
    while let Some((chunk, _)) = streams.next_repeat(10, restart) {
        restart = false;
        let stream = streams.by_ref(chunk).expect("it was just found");
        stream.send.take_again(chunk.index, &mut Vec::new());
        repeated += 1;
    }
    assert_eq!(repeated, SLOTS);
    let looks = streams.repeats.looks - before;
    assert!(looks < 4 * (BLOCKED as u64 + SLOTS), "{looks}");
}
