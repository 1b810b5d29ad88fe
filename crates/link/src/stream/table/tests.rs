use super::{super::memory::FLOOR_SHARE, *};

fn streams(memory_max: u64) -> Streams {
    Streams::new(
        true,
        Limits {
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
        let first = streams.open(Class::Bulk, 0.0).expect("it is allowed");
        while streams.widen(first, |_| true) {}
        for _ in 0..2 * streams_max(memory_max) {
            streams.open(Class::Bulk, 0.0).expect("it is allowed");
            assert!(streams.memory.send_buffer_max() >= memory_max / FLOOR_SHARE);
        }
    }
}

#[test]
fn a_peer_opens_what_it_may_in_any_order_and_no_more() {
    let mut streams = streams(16 << 20);
    let limit = streams.stream_limit();
    let number = |count| {
        let (class, by_initiator) = (Class::Bulk, false);
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
    assert_eq!(opens(limit), Err(Violation));
    for count in (0..limit).rev() {
        assert_eq!(opens(count), Ok(true), "{count}");
    }
    assert_eq!(streams.len(), limit as usize);
    assert!(streams.peer_skipped.is_empty());
}

#[test]
fn a_credit_waits_once_however_often_it_changes() {
    let mut streams = streams(1 << 30);
    let number = streams.open(Class::Bulk, 0.0).expect("it is allowed");
    streams.controls.clear();
    for _ in 0..100 {
        streams.tell_credit(number);
    }
    assert_eq!(streams.controls, [Control::Credit(number)]);
}

#[test]
fn each_pass_repeats_every_stream() {
    let mut streams = streams(1 << 30);
    for _ in 0..2 {
        let number = streams.open(Class::Bulk, 0.0).expect("it is allowed");
        let stream = streams.get(number).expect("it is open");
        stream.send.write(vec![1; 1000].into());
        stream.send.take_new(1000, &mut Vec::new());
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
