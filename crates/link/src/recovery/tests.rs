use super::*;
use crate::{
    feedback::received::{ContentKind, ReceivedLog},
    identity::Identity,
    secret::Secret,
    stream::ChunkRef,
    wire::{
        packet::ConnectionId,
        report::{self, ArrivalSample},
        varint::{self, ByteReader},
    },
};

const RTT: Duration = Duration::from_millis(80);

fn ms(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn report(sent: &mut SentLog, received: &mut ReceivedLog, now: Time) -> ReportOutcome {
    let mut bytes = Vec::new();
    received.write_report(&mut bytes, 1400, now);
    let report = Report::read(&mut ByteReader(&bytes)).expect("our own report");
    let mut outcome = ReportOutcome::default();
    sent.on_report(&report, now + RTT / 2, RTT, Time::default(), &mut outcome)
        .expect("the report is about packets that were sent");
    outcome
}

fn log_with_omissions() -> SentLog {
    let secret = Secret::new(&Identity::from_seed([1; 32]), 1);
    SentLog::new(SkippedPacketNumbers::new(secret, ConnectionId(*b"test")))
}

fn item(number: u64) -> Item {
    Item::Chunk(ChunkRef {
        slot: 0,
        stream: 0,
        index: number,
    })
}

/// Returns a log that skips no packet numbers.
fn log() -> SentLog {
    let mut log = log_with_omissions();
    log.skipped_numbers.never();
    log
}

fn send_every_ms(sent: &mut SentLog, count: u64) {
    for number in 0..count {
        let mut contents = PacketContents::default();
        contents.push(item(number));
        sent.push(ms(number), 1500, true, false, contents);
    }
}

#[test]
fn a_gap_is_lost_only_after_the_reorder_window() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 30);
    for number in (0..8).filter(|n| *n != 3) {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
    }
    let outcome = report(&mut sent, &mut received, ms(7) + RTT / 2);
    assert!(
        outcome.lost.is_empty(),
        "4 ms are less than an eighth of 80 ms"
    );
    assert_eq!(outcome.resolved.len(), 3, "packet 3 holds up the order");
    for number in 8..15 {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
    }
    let outcome = report(&mut sent, &mut received, ms(14) + RTT / 2);
    assert_eq!(outcome.lost, [item(3)]);
    assert_eq!(
        outcome.resolved.iter().filter(|packet| packet.lost).count(),
        1
    );
    assert_eq!(outcome.resolved.len(), 12);
}

#[test]
fn the_last_packet_is_known_to_be_lost_without_a_later_one() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 5);
    for number in 0..4 {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
    }
    let outcome = report(&mut sent, &mut received, ms(3) + RTT / 2);
    assert!(outcome.lost.is_empty());
    let outcome = report(&mut sent, &mut received, ms(16) + RTT / 2);
    assert_eq!(
        outcome.lost,
        [item(4)],
        "the path had 12 ms more than it needed"
    );
    assert_eq!(sent.bytes_in_flight(), 0);
}

#[test]
fn a_peer_that_tells_nothing_of_our_reports_is_noticed() {
    let mut sent = log();
    for number in 0..=REPORTS_OPEN_MAX {
        assert!(!sent.is_overfull(), "{number}");
        sent.push(ms(number), 60, false, false, PacketContents::default());
    }
    assert!(sent.is_overfull());
}

#[test]
fn the_oldest_in_flight_is_the_first_that_elicits_and_is_open() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    for number in 0..40 {
        let is_eliciting = number % 3 == 2;
        sent.push(
            ms(number),
            60,
            is_eliciting,
            false,
            PacketContents::default(),
        );
    }
    assert_eq!(sent.oldest_in_flight(), Some(ms(2)));
    for number in 0..=20 {
        received.insert(number, 60, ContentKind::Data, ms(number) + RTT / 2);
    }
    let outcome = report(&mut sent, &mut received, ms(20) + RTT / 2);
    assert_eq!(outcome.resolved.len(), 7);
    assert_eq!(sent.oldest_in_flight(), Some(ms(23)));
}

#[test]
fn a_packet_that_turns_up_late_widens_the_reorder_window() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 60);
    for number in (0..50).filter(|n| *n != 3) {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
    }
    let outcome = report(&mut sent, &mut received, ms(49) + RTT / 2);
    assert_eq!(outcome.lost, [item(3)]);
    received.insert(3, 1500, ContentKind::Data, ms(50) + RTT / 2);
    let outcome = report(&mut sent, &mut received, ms(50) + RTT / 2);
    assert_eq!(outcome.arrived, [item(3)]);
    let sent_s = ms(3).seconds_since(Time::default());
    assert_eq!(outcome.late_sent_s.len(), 1);
    assert!((outcome.late_sent_s[0] - sent_s).abs() < 1e-9);
    assert_eq!(sent.packets_lost, 0, "the loss is taken back");
    assert!(sent.reorder_window(RTT, ms(90)) > Duration::from_millis(46));
}

#[test]
fn packets_whose_reports_were_all_lost_are_asked_for_before_they_are_given_up() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 700);
    for number in 0..200u64 {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
        if number % 10 == 9 {
            // None of these reports arrives.
            received.write_report(&mut Vec::new(), 1400, ms(number) + RTT / 2);
        }
    }
    let outcome = report(&mut sent, &mut received, ms(200) + RTT / 2);
    assert!(outcome.ask && outcome.lost.is_empty());
    assert_eq!(sent.resolved(), 0);
    received.report_again_from(sent.resolved(), ms(205) + RTT / 2);
    let outcome = report(&mut sent, &mut received, ms(210) + RTT / 2);
    assert!(!outcome.ask && outcome.lost.is_empty(), "all have arrived");
    assert_eq!(sent.resolved(), 200);
}

#[test]
fn packets_are_given_up_if_the_answer_does_not_come() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 700);
    for number in 0..600u64 {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
        if number % 10 != 9 {
            continue;
        }
        let now = ms(number) + RTT / 2;
        if number < 200 {
            received.write_report(&mut Vec::new(), 1400, now);
        } else {
            let outcome = report(&mut sent, &mut received, now);
            assert_eq!(outcome.ask, number == 209, "once is enough");
        }
    }
    assert_eq!(sent.resolved(), 600);
    assert!(
        sent.packets_lost > 100,
        "what was not told has to be sent again"
    );
}

#[test]
fn a_report_older_than_anything_remembered_changes_nothing() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 30);
    received.insert(0, 1500, ContentKind::Data, ms(0) + RTT / 2);
    let mut old = Vec::new();
    received.write_report(&mut old, 1400, ms(0) + RTT / 2);
    for number in 1..30 {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
    }
    report(&mut sent, &mut received, ms(30) + RTT / 2);
    sent.forget(ms(5000), Duration::from_secs(1));
    for number in 30..40 {
        sent.push(
            ms(5000 + number),
            1500,
            true,
            false,
            PacketContents::default(),
        );
    }
    let old = Report::read(&mut ByteReader(&old)).expect("our own report");
    let mut outcome = ReportOutcome::default();
    sent.on_report(&old, ms(5100), RTT, Time::default(), &mut outcome)
        .expect("it is about packets that were sent");
    assert!(outcome.lost.is_empty() && outcome.resolved.is_empty());
}

#[test]
fn packets_that_a_report_declares_missing_need_no_further_report() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 400);
    for number in (0..300u64).filter(|number| *number != 3) {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
        let now = ms(number) + RTT / 2;
        match number {
            // Within the reordering window.
            8 => {
                let outcome = report(&mut sent, &mut received, now);
                assert!(outcome.lost.is_empty());
            }
            // The following reports are lost, and the next report no longer covers packet 3.
            18 | 28 | 38 | 48 | 58 | 68 => {
                received.write_report(&mut Vec::new(), 1400, now);
            }
            299 => {
                let outcome = report(&mut sent, &mut received, now);
                assert!(outcome.lost.contains(&item(3)));
            }
            _ => {}
        }
    }
}

#[test]
fn what_no_report_spoke_of_is_sent_again_but_is_no_loss_to_the_controller() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 700);
    let (mut shown_lost, mut shown_late, mut sent_again) = (0, 0, 0);
    let mut count = |outcome: &ReportOutcome| {
        shown_lost += outcome.resolved.iter().filter(|packet| packet.lost).count();
        shown_late += outcome.late_sent_s.len();
        sent_again += outcome.lost.len();
    };
    for number in 0..600u64 {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
        let now = ms(number) + RTT / 2;
        match number {
            0..200 if number % 10 == 9 => {
                // None of these reports arrives. The request that follows does not arrive either.
                received.write_report(&mut Vec::new(), 1400, now);
            }
            200.. if number % 10 == 9 => count(&report(&mut sent, &mut received, now)),
            _ => {}
        }
    }
    received.report_again_from(0, ms(600) + RTT / 2);
    count(&report(&mut sent, &mut received, ms(600) + RTT / 2));
    assert!(sent_again > 100);
    assert_eq!((shown_lost, shown_late), (0, 0));
}

#[test]
fn reports_that_were_late_are_waited_for_the_next_time() {
    let (mut sent, mut received) = (log(), ReceivedLog::new(RTT));
    send_every_ms(&mut sent, 2000);
    let mut sent_again = [0, 0];
    for number in 0..1600u64 {
        received.insert(number, 1500, ContentKind::Data, ms(number) + RTT / 2);
        let now = ms(number) + RTT / 2;
        let half = usize::from(number >= 800);
        // In two periods, the reports about 200 packets are lost. A requested report covers these
        // packets 280 ms later.
        let outcome = match number % 800 {
            100..300 if number % 10 == 9 => {
                received.write_report(&mut Vec::new(), 1400, now);
                continue;
            }
            580 => {
                received.report_again_from(sent.resolved().min(number - 480), now);
                report(&mut sent, &mut received, now)
            }
            _ if number % 10 == 9 => report(&mut sent, &mut received, now),
            _ => continue,
        };
        sent_again[half] += outcome.lost.len();
    }
    assert!(sent_again[0] > 50, "{sent_again:?}");
    assert!(sent_again[1] < sent_again[0] / 2, "{sent_again:?}");
}

/// Handles a report which claims that the packets from `low` to `high` have arrived.
fn lie(sent: &mut SentLog, low: u64, high: u64, now: Time) -> Result<ReportOutcome, Malformed> {
    let mut blocks = Vec::new();
    varint::put(&mut blocks, high - 1 - low);
    varint::put(&mut blocks, high - low);
    blocks.push(report::RUNS);
    varint::put(&mut blocks, high - low);
    let front = ArrivalSample {
        number: low,
        time_us: now.as_micros(),
    };
    let report = Report::new(high - 1, front, 0, 0).with_parts(&[], &blocks);
    let mut outcome = ReportOutcome::default();
    sent.on_report(&report, now, RTT, Time::default(), &mut outcome)
        .map(|()| outcome)
}

#[test]
fn a_report_of_packets_never_sent_violates_the_protocol() {
    let mut sent = log_with_omissions();
    let mut skipped = Vec::new();
    let mut now = Time::default();
    for _ in 0..10_000 {
        now = now + Duration::from_millis(1);
        let before = sent.next_number();
        sent.push(now, 1500, true, false, PacketContents::default());
        skipped.extend(before + 1..sent.next_number());
    }
    assert!((8..160).contains(&skipped.len()), "{skipped:?}");
    let apart = skipped.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(apart.clone().all(|n| (64..=1024).contains(&n)));
    assert!(apart.collect::<std::collections::BTreeSet<_>>().len() > 5);
    let first = skipped[0];
    let true_report = lie(&mut sent, 0, first, now).expect("all of these were sent");
    assert_eq!(true_report.resolved.len() as u64, first);
    assert!(lie(&mut sent, first - 1, first + 1, now).is_err());
    let rest = lie(&mut sent, first + 1, skipped[1], now).expect("all of these were sent");
    assert_eq!(rest.resolved.len() as u64, skipped[1] - first - 1);
    assert_eq!(sent.loss(), 0.0, "a number that was left out is no loss");
}

#[test]
fn reports_of_a_few_bytes_cannot_keep_the_sender_busy() {
    let mut sent = log();
    for number in 0..1 << 20 {
        let now = Time(number * 1000);
        sent.push(now, 1500, true, false, PacketContents::default());
    }
    let now = ms(1100);
    for low in [0, 1 << 19] {
        for _ in 0..1000 {
            lie(&mut sent, low, 1 << 20, now).expect("all of these were sent");
        }
    }
    // Such a report no longer resolves packets sent from now on.
    sent.push(now, 1500, true, false, PacketContents::default());
    let all = lie(&mut sent, 1, (1 << 20) + 1, now).expect("it was sent");
    assert!(all.resolved.is_empty(), "the report is ignored");
    // An honest report covers few packets. Elapsed time adds the steps for later reports.
    let next = sent.next_number();
    let outcome = lie(&mut sent, next - 1, next, now).expect("it was sent");
    assert_eq!(outcome.resolved.len(), 1);
    let mut later = now + Duration::from_millis(60);
    sent.push(later, 1500, true, false, PacketContents::default());
    later = later + Duration::from_millis(1);
    let all = lie(&mut sent, 2, (1 << 20) + 2, later).expect("it was sent");
    assert_eq!(all.resolved.len(), 1);
}

#[test]
fn ten_gigabits_over_a_long_path_are_no_violation() {
    let mut sent = log();
    let count = 3 << 20;
    for number in 0..count {
        let now = Time(number * 1000);
        sent.push(now, 1500, true, false, PacketContents::default());
        if number % (1 << 18) == 0 && number > 0 {
            lie(&mut sent, number - (1 << 18), number, now).expect("all of these were sent");
            sent.forget(now, Duration::from_secs(60));
            assert!(!sent.is_overfull());
        }
    }
    assert!(sent.packets.len() as u64 <= PACKETS_MAX + (1 << 18));
}

#[test]
fn a_sample_of_what_was_never_sent_breaks_the_protocol() {
    let mut sent = log_with_omissions();
    for number in 0..1200 {
        sent.push(ms(number), 1500, true, false, PacketContents::default());
    }
    let mut numbers = 0..sent.next_number();
    let skipped = numbers.find(|it| sent.is_skipped(*it)).expect("one");
    let front = numbers.find(|it| !sent.is_skipped(*it)).expect("one");
    let mut samples = Vec::new();
    varint::put_signed(&mut samples, skipped as i64 - front as i64);
    varint::put_signed(&mut samples, -5);
    let sample = ArrivalSample {
        number: front,
        time_us: 1000,
    };
    let report = Report::new(front, sample, 0, 0).with_parts(&samples, &[]);
    let result = sent.on_report(
        &report,
        ms(50_000),
        Duration::from_millis(10),
        Time::default(),
        &mut ReportOutcome::default(),
    );
    assert!(result.is_err());
}

/// Regression test: the log of a connection could hold four gigabytes of small frames, because they
/// were not counted.
#[test]
fn memory_for_small_frames_has_a_limit_without_reports() {
    const EACH: u64 = 100;
    let mut sent = log();
    let mut packets = 0;
    while !sent.is_overfull() {
        let mut contents = PacketContents::default();
        for count in 0..=EACH {
            contents.push(item(count));
        }
        sent.push(ms(packets), 1500, true, false, contents);
        packets += 1;
    }
    assert_eq!(packets, EXTRA_ITEMS_MAX as u64 / EACH + 1);
    // Arrived and forgotten packets take no memory.
    let all = sent.extra_items;
    sent.mark_arrived(0, ms(packets), &mut ReportOutcome::default());
    assert_eq!(all - sent.extra_items, EACH as usize);
    sent.resolved = packets;
    sent.forget(ms(1_000_000), Duration::from_secs(1));
    assert_eq!(sent.extra_items, 0);
}
