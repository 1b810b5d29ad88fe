//! Tests of the first transfer on a new connection. The path is unknown, or was measured in the
//! previous run.

use std::time::Duration;

use link::{
    Policy, StreamClass, congestion,
    sim::{SimSite, SimWorld, WorldConfig},
};
use units::{BitRate, ByteCount};
use wansim::PathConfig;

const RATE: BitRate = BitRate::mbit(300);
const RTT: Duration = Duration::from_millis(200);
const SIZE: ByteCount = ByteCount::megabytes(100);
/// Payload of a full packet, as a fraction of its size on the line.
const PAYLOAD: f64 = 0.94;

fn config(seed: u64) -> WorldConfig {
    let path = PathConfig::line(RATE, RTT);
    WorldConfig {
        forward: path.clone(),
        backward: path,
        seed,
        controller: |memory, rate_max| congestion::for_policy(Policy::Fair, memory, rate_max),
        memory_max: ByteCount::mebibytes(256),
        idle_timeout: Duration::from_secs(120),
    }
}

/// Runs a transfer on a connection that has just been established. Returns the duration of the
/// transfer minus its ideal duration, in round trips.
fn surplus_rtts(world: &mut SimWorld) -> f64 {
    world.run_for(Duration::from_secs(2));
    let id = world.send(SimSite::A, StreamClass::Bulk, SIZE);
    let took = world.run_to_end(id, Duration::from_secs(60));
    let ideal_s = SIZE.bytes() as f64 / (PAYLOAD * RATE.as_bytes_per_s()) + RTT.as_secs_f64();
    let took_s = took.map_or(f64::INFINITY, |took| took.as_secs_f64());
    (took_s - ideal_s) / RTT.as_secs_f64()
}

#[test]
fn the_first_transfer_takes_four_round_trips_more_and_two_where_the_last_run_knew_the_path() {
    for seed in 1..=5 {
        let config = config(seed);
        let mut world = SimWorld::new(&config);
        let unknown = surplus_rtts(&mut world);
        // Regression: the light traffic after a transfer is no evidence about the path. The
        // measurement of this traffic replaced the known capacity, and the second start was as slow
        // as the first.
        exchange_commands(&mut world);
        world.restart(SimSite::A, &config);
        world.restart(SimSite::B, &config);
        let known = surplus_rtts(&mut world);
        println!("seed {seed}: {unknown:.2} and {known:.2} RTT more than ideal");
        assert!(
            unknown <= 4.0,
            "{unknown:.2} RTT, seed {seed}, path unknown"
        );
        assert!(known <= 1.75, "{known:.2} RTT, seed {seed}, path known");
    }
}

/// The stored capacity is only an estimate. If the path has become slower, the link must not flood
/// it.
#[test]
fn a_path_that_was_ten_times_faster_loses_next_to_nothing() {
    let config = config(1);
    let mut world = SimWorld::new(&config);
    surplus_rtts(&mut world);
    world.change_paths(|path| {
        path.rate = Some(BitRate::mbit(30));
        path.queue = PathConfig::default_queue(BitRate::mbit(30), RTT);
    });
    world.restart(SimSite::A, &config);
    let before = *world.path_counters(SimSite::A);
    world.run_for(Duration::from_secs(2));
    let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::megabytes(20));
    world
        .run_to_end(id, Duration::from_secs(60))
        .expect("it arrives");
    let after = world.path_counters(SimSite::A);
    let dropped = (after.queue_drops - before.queue_drops) as f64;
    let sent = (after.sent - before.sent) as f64;
    assert!(dropped <= 0.02 * sent, "{dropped} of {sent}");
}

/// Rate in Mbit/s and round-trip time in ms of lines whose bandwidth-delay product is smaller than
/// the first flight. These lines have long queues, like many home connections.
const SLOW_LINES: [(u64, u64); 13] = [
    (1, 10),
    (1, 100),
    (2, 20),
    (4, 5),
    (8, 10),
    (8, 25),
    (8, 60),
    (20, 2),
    (20, 10),
    (20, 30),
    (50, 5),
    (50, 20),
    (100, 1),
];

#[test]
fn a_slow_and_short_line_is_not_flooded_at_the_start() {
    for (mbit, rtt_ms) in SLOW_LINES {
        for (is_both_ways, up_for_ms) in [(false, 1000), (true, 1000), (false, 30), (true, 30)] {
            let (rate, rtt) = (BitRate::mbit(mbit), Duration::from_millis(rtt_ms));
            let path = PathConfig::line(rate, rtt);
            let mut world = SimWorld::new(&WorldConfig {
                forward: path.clone(),
                backward: path,
                ..config(1)
            });
            let size = ByteCount::new((3.0 * PAYLOAD * rate.as_bytes_per_s()) as u64);
            world.run_for(Duration::from_millis(up_for_ms));
            let id = world.send(SimSite::A, StreamClass::Bulk, size);
            if is_both_ways {
                world.send(SimSite::B, StreamClass::Bulk, size);
            }
            let took = world.run_to_end(id, Duration::from_secs(60));
            let took_s = took.map_or(f64::INFINITY, |took| took.as_secs_f64());
            let counters = world.path_counters(SimSite::A);
            let dropped = counters.queue_drops as f64 / counters.sent as f64;
            let line = format!(
                "{mbit} Mbit/s, {rtt_ms} ms, both ways {is_both_ways}, up for {up_for_ms} ms: \
                 {took_s:.2} s in place of 3, {dropped:.3} dropped"
            );
            println!("{line}");
            // At most 0.001 of the packets are dropped, and a transfer takes up to 3.4 s. The
            // exception is 2 Mbit/s and 20 ms. In that case, the base delay rises with the queue of
            // the first train, from 33 to 51 ms. The queue shows only after 250 ms, when 109 of 391
            // packets have been dropped: 0.149 of all.
            let is_worst = (mbit, rtt_ms, is_both_ways, up_for_ms) == (2, 20, false, 1000);
            let dropped_max = if is_worst { 0.15 } else { 0.12 };
            assert!(took_s < 3.8 && dropped < dropped_max, "{line}");
        }
    }
}

/// If one packet overtakes a packet train, the other packets of the train seem lost until they
/// arrive.
///
/// Regression test: the link treated these packets as losses on a slow line, and detected the error
/// only after seconds.
#[test]
fn packets_that_overtake_the_first_train_do_not_end_a_cold_start() {
    let (rate, rtt) = (BitRate::mbit(300), Duration::from_millis(200));
    let backward = PathConfig::line(rate, rtt);
    let mut forward = backward.clone();
    forward.let_overtake(0.03, 1.0);
    let mut worst = f64::INFINITY;
    for seed in 1..=40 {
        let mut world = SimWorld::new(&WorldConfig {
            forward: forward.clone(),
            backward: backward.clone(),
            ..config(seed)
        });
        let size = ByteCount::new((PAYLOAD * rate.as_bytes_per_s()) as u64);
        world.run_for(Duration::from_secs(2));
        let id = world.send(SimSite::A, StreamClass::Bulk, size);
        let took = world.run_to_end(id, Duration::from_secs(60));
        let took_s = took.map_or(f64::INFINITY, |took| took.as_secs_f64());
        assert!(world.path_counters(SimSite::A).reordered > 0, "seed {seed}");
        worst = f64::min(worst, (1.0 + rtt.as_secs_f64()) / took_s);
    }
    println!("worst of 40 seeds: {worst:.3} of ideal");
    assert!(worst > 0.5, "{worst}");
}

/// Commands of a session are sent before its data.
///
/// Regression test: the commands used up the first packet train. The median of these transfers took
/// 1.32 s, and the slowest took 1.82 s.
#[test]
fn commands_before_the_data_do_not_use_up_the_first_train() {
    let mut path = PathConfig::line(BitRate::mbit(270), Duration::from_millis(180));
    path.let_overtake(0.03, 0.1);
    let took_s = |seed| {
        let mut world = SimWorld::new(&WorldConfig {
            forward: path.clone(),
            backward: path.clone(),
            ..config(seed)
        });
        exchange_commands(&mut world);
        let took = write_as_a_socket_does(&mut world, ByteCount::megabytes(25));
        assert!(world.path_counters(SimSite::A).reordered > 0, "seed {seed}");
        took.as_secs_f64()
    };
    let mut took_s: Vec<f64> = (1..=60).map(took_s).collect();
    took_s.sort_by(f64::total_cmp);
    let (median_s, worst_s) = (took_s[30], took_s[59]);
    println!("median {median_s:.2} s, worst {worst_s:.2} s");
    assert!(median_s < 1.25 && worst_s < median_s / 0.75);
}

/// None of the files is large enough for the packet train that the known rate requires. The link
/// must then send a shorter train.
#[test]
fn small_files_take_up_the_rate_of_a_known_path() {
    let config = config(1);
    let mut world = SimWorld::new(&config);
    surplus_rtts(&mut world);
    world.restart(SimSite::A, &config);
    world.restart(SimSite::B, &config);
    world.run_for(Duration::from_secs(2));
    for _ in 0..5 {
        let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::new(30_000));
        let took = world.run_to_end(id, Duration::from_secs(5));
        assert!(took.is_some(), "the path is in order");
    }
    let allowed = world.view(SimSite::A).allowed_bytes_per_s / RATE.as_bytes_per_s();
    println!("{allowed:.3} of the line");
    assert!(allowed > 0.5, "{allowed}");
}

/// The first pieces of a transfer may leave without pacing. The packet train must nevertheless
/// start in the first round trip. If 32 packets may leave without pacing, pieces of 12 KB take
/// 2.64 s instead of 2.09 s.
#[test]
fn a_transfer_that_is_written_in_pieces_starts_as_fast_as_a_whole_one() {
    let rtt = Duration::from_millis(600);
    let size = ByteCount::megabytes(10);
    let took_s = |piece: ByteCount, every: Duration| {
        let path = PathConfig::line(BitRate::mbit(100), rtt);
        let mut world = SimWorld::new(&WorldConfig::symmetric(path, 1));
        world.run_for(Duration::from_secs(2));
        let began = world.now();
        let id = world.send(SimSite::A, StreamClass::Bulk, piece);
        world.keep_open(id);
        let mut written = piece;
        while written < size {
            world.run_for(every);
            let more = piece.min(size - written);
            world.write_more(id, more);
            written += more;
        }
        let is_read = |world: &SimWorld| world.progress(id).delivered >= size;
        assert!(world.run_until(Duration::from_secs(60), is_read));
        (world.now() - began).as_secs_f64()
    };
    let whole_s = took_s(size, Duration::ZERO);
    for (piece, every_us) in [(1_250, 100), (12_000, 1_000), (14_000, 200)] {
        let pieces_s = took_s(ByteCount::new(piece), Duration::from_micros(every_us));
        println!("{piece} bytes each {every_us} us: {pieces_s:.2} s, whole: {whole_s:.2} s");
        assert!(pieces_s < whole_s + 0.25 * rtt.as_secs_f64(), "{pieces_s}");
    }
}

/// Exchanges commands and replies for two seconds.
fn exchange_commands(world: &mut SimWorld) {
    let sessions = [SimSite::A, SimSite::B].map(|side| {
        let id = world.send(side, StreamClass::Control, ByteCount::new(20));
        world.keep_open(id);
        id
    });
    for _ in 0..25 {
        world.run_for(Duration::from_millis(80));
        for session in sessions {
            world.write_more(session, ByteCount::new(40));
        }
    }
}

/// Sends `size` bytes from A to B. The writes have the sizes of reads from a TCP socket with a
/// growing window. Returns the time until B has read all bytes.
fn write_as_a_socket_does(world: &mut SimWorld, size: ByteCount) -> Duration {
    let began = world.now();
    let mut at_once = ByteCount::new(14_000);
    let mut written = at_once;
    let id = world.send(SimSite::A, StreamClass::Bulk, written);
    world.keep_open(id);
    while written < size {
        world.run_for(Duration::from_micros(200));
        at_once += at_once;
        let more = at_once.min(size - written);
        world.write_more(id, more);
        written += more;
    }
    let is_read = |world: &SimWorld| world.progress(id).delivered >= size;
    assert!(world.run_until(Duration::from_secs(60), is_read));
    world.now() - began
}

/// Regression test: in 21 of 80 starts, the link treated the random loss of the path as congestion.
/// These transfers took more than five times the ideal time.
///
/// After such an error, the link needs an experiment at a low rate. The experiment takes seconds.
/// Now 4 of the 80 starts are slow.
#[test]
fn most_cold_starts_do_not_take_two_lost_packets_of_three_for_a_full_line() {
    let lossy = PathConfig {
        loss: 0.64,
        ..PathConfig::line(RATE, RTT)
    };
    let size = ByteCount::new((PAYLOAD * 0.36 * RATE.as_bytes_per_s()) as u64);
    let ideal_s = 1.0 + 2.0 * RTT.as_secs_f64();
    let mut slow = 0;
    for seed in 1..=80 {
        let mut world = SimWorld::new(&WorldConfig::symmetric(lossy.clone(), seed));
        world.run_for(Duration::from_secs(2));
        let id = world.send(SimSite::A, StreamClass::Bulk, size);
        let took = world.run_to_end(id, Duration::from_secs(60));
        assert!(
            world.path_counters(SimSite::A).random_losses > 0,
            "seed {seed}"
        );
        slow += u32::from(took.is_none_or(|took| took.as_secs_f64() > 5.0 * ideal_s));
    }
    println!("{slow} of 80 starts were slow");
    assert!(slow <= 12, "{slow}");
}

/// A link that carries only small files never measures the capacity of its path.
///
/// Regression test: the link then spread each file over time at the rate of start-up. A transfer of
/// 10 KB took 1.16 round trips.
#[test]
fn small_files_on_an_unmeasured_path_take_one_round_trip() {
    for rtt_ms in [20, 200, 600, 1000] {
        for size in [1_000, 10_000, 13_000] {
            let rtt = Duration::from_millis(rtt_ms);
            let path = PathConfig::line(BitRate::mbit(100), rtt);
            let mut world = SimWorld::new(&WorldConfig::symmetric(path, 1));
            for pause_s in [1, 1, 3, 10, 1, 30] {
                world.run_for(Duration::from_secs(pause_s));
                let id = world.send(SimSite::A, StreamClass::Bulk, ByteCount::new(size));
                let took = world.run_to_end(id, Duration::from_secs(60));
                let took = took.expect("the path is in order").as_secs_f64();
                let line_s = size as f64 * 8.0 / 1e8;
                let surplus_rtts = (took - line_s) / rtt.as_secs_f64() - 1.0;
                println!("RTT {rtt_ms} ms, {size} bytes: {surplus_rtts:.3} RTT more");
                assert!(
                    surplus_rtts < 0.05,
                    "RTT {rtt_ms} ms, {size} bytes: {surplus_rtts:.3}"
                );
            }
        }
    }
}
