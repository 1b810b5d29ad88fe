use proptest::prelude::*;

use super::*;

/// Returns a sending half with one lost slot. The slot was sent whole, and now waits to be sent in
/// halves.
fn halved() -> SendHalf {
    let mut half = SendHalf::new(10);
    half.write(Bytes::from(vec![7; 1400]));
    half.take_new(1400, &mut Vec::new());
    assert_eq!(half.on_lost(0), Some(1));
    half.set_queued(0, 1);
    half
}

fn send_next_half(half: &mut SendHalf) -> (Half, bool) {
    let next = half.next_half(0);
    half.take_half(0, &mut Vec::new());
    next
}

#[test]
fn a_half_that_is_lost_is_sent_again_while_the_other_is_on_its_way() {
    for second_first in [true, false] {
        let mut half = halved();
        assert_eq!(send_next_half(&mut half), (Half::First, false));
        assert_eq!(send_next_half(&mut half), (Half::Second, true));
        half.unqueue(0);
        if second_first {
            assert_eq!(half.on_half_arrived(0, Half::Second), (0, false));
        }
        assert_eq!(half.on_half_lost(0, Half::First), Some(2));
        half.set_queued(0, 1);
        if !second_first {
            assert_eq!(half.on_half_arrived(0, Half::Second), (0, false));
        }
        assert_eq!(send_next_half(&mut half), (Half::First, true));
        assert_eq!(half.on_half_arrived(0, Half::First), (1400, false));
    }
}

#[test]
fn a_half_that_was_never_sent_is_missed_when_the_other_arrives() {
    let mut half = halved();
    // The whole slot is sent once more, and then one half in a pass of repeats.
    half.take_again(0, &mut Vec::new());
    half.unqueue(0);
    assert_eq!(send_next_half(&mut half), (Half::First, false));
    assert_eq!(half.on_lost(0), None, "the half is on its way");
    assert_eq!(half.on_half_arrived(0, Half::First), (0, true));
    assert_eq!(send_next_half(&mut half), (Half::Second, true));
    assert_eq!(half.on_half_arrived(0, Half::Second), (1400, false));
}

proptest! {
    #[test]
    fn slots_repeat_the_written_bytes_in_any_order(
        writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4000), 1..20),
        len_max in 1usize..1500,
        seed in any::<u64>(),
    ) {
        let mut half = SendHalf::new(u64::MAX >> 2);
        for data in &writes {
            half.write(Bytes::copy_from_slice(data));
        }
        let whole = writes.concat();
        let mut sent = Vec::new();
        while half.has_new() {
            let mut out = Vec::new();
            let index = half.take_new(len_max, &mut out);
            sent.push((index, out));
        }
        prop_assert_eq!(sent.iter().flat_map(|(_, data)| data.clone()).collect::<Vec<_>>(), whole.clone());
        let mut state = seed;
        let mut freed = 0;
        while !sent.is_empty() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % sent.len();
            let (index, data) = sent[at].clone();
            if state >> 63 == 0 {
                prop_assert_eq!(half.on_lost(index), Some(half.slot(index).expect("kept").round));
                let mut out = Vec::new();
                prop_assert_eq!(half.missing_len(index), Some(data.len()));
                half.take_again(index, &mut out);
                prop_assert_eq!(&out, &data);
            } else {
                freed += half.on_arrived(index);
                prop_assert_eq!(half.missing_len(index), None);
                sent.swap_remove(at);
            }
        }
        prop_assert!(half.slots.is_empty() && half.unsent_bytes == 0);
        prop_assert_eq!(freed, whole.len());
        prop_assert!(half.segments.is_empty(), "arrived bytes are not kept");
    }
}

#[test]
fn without_credit_nothing_new_is_sent() {
    let mut half = SendHalf::new(1);
    half.write(Bytes::from(vec![0; 3000]));
    half.take_new(1400, &mut Vec::new());
    assert!(!half.has_new() && half.is_blocked());
    assert!(half.set_credit(2));
    assert!(half.has_new());
}

#[test]
fn single_bytes_that_wait_for_credit_are_few_pieces() {
    let mut half = SendHalf::new(0);
    for _ in 0..1 << 20 {
        half.write(Bytes::from_static(b"x"));
    }
    assert_eq!(half.buffered_bytes(), 1 << 20);
    let pieces = half.segments.len();
    assert!(pieces <= (1 << 20) / 2048, "{pieces} pieces");
}

#[test]
fn single_bytes_that_are_sent_at_once_and_do_not_arrive_are_few_pieces() {
    let mut half = SendHalf::new(u64::MAX >> 2);
    let mut sent = Vec::new();
    let written: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    for byte in &written {
        half.write(Bytes::copy_from_slice(&[*byte]));
        half.take_new(1400, &mut sent);
    }
    assert_eq!(sent, written);
    let pieces = half.segments.len();
    assert!(pieces <= written.len() / 2048, "{pieces} pieces");
    let records = written.len() * size_of::<Slot>();
    assert_eq!(half.excess_bytes(), records - written.len());
    let mut again = Vec::new();
    for index in 0..written.len() as u64 {
        half.take_again(index, &mut again);
    }
    assert_eq!(again, written);
    for index in 0..written.len() as u64 {
        assert_eq!(half.on_arrived(index), 1);
    }
    assert_eq!(half.buffered_bytes() + half.excess_bytes(), 0);
    assert!(half.segments.is_empty(), "arrived bytes are not kept");
}

/// Sends `sent` of 20 slots with the credit `credit`. Slot 0 has not arrived.
fn is_short(sent: usize, credit: u64) -> bool {
    let mut half = SendHalf::new(10);
    half.write(Bytes::from(vec![7; 20 * SLOT_SIZE]));
    half.set_credit(credit);
    for _ in 0..sent {
        half.take_new(SLOT_SIZE, &mut Vec::new());
    }
    half.is_window_short()
}

#[test]
fn a_window_is_short_if_more_than_seven_tenths_wait_behind_a_missing_slot() {
    assert!(!is_short(7, 10));
    assert!(is_short(8, 10));
    assert!(!is_short(8, 20), "new credit ends the shortage");
    assert!(!is_short(20, 20), "without new bytes nothing is blocked");
}

#[test]
fn arrived_slots_end_the_shortage_of_a_window() {
    let mut half = SendHalf::new(10);
    half.write(Bytes::from(vec![7; 20 * SLOT_SIZE]));
    for _ in 0..8 {
        half.take_new(SLOT_SIZE, &mut Vec::new());
    }
    assert!(half.is_window_short());
    for slot in 1..8 {
        half.on_arrived(slot);
    }
    assert!(half.is_window_short(), "slot 0 is still missing");
    half.on_arrived(0);
    assert!(!half.is_window_short());
}
