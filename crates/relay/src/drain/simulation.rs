//! Simulated uploads in virtual time. Each upload has a client, a path, both gateways and a server.
//! The client is always faster than the path.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Parameters of one simulated upload.
struct Upload {
    file_bytes: f64,
    /// Capacity of the path in bytes per second, and its round-trip time in seconds.
    line_bytes_per_s: f64,
    rtt_s: f64,
    /// Number of bytes on the link for each byte of the file. The argument is the offset in the
    /// file.
    coded: fn(f64) -> f64,
    /// Rate at which the server's program reads, in bytes per second. The argument is the time in
    /// seconds.
    server: fn(f64) -> f64,
    /// Number of bytes that the buffers in front of the server's program hold.
    server_buffer_bytes: f64,
    limit: Duration,
    known_bytes_per_s: Option<f64>,
}

const PLAIN: Upload = Upload {
    file_bytes: 100e6,
    line_bytes_per_s: 37.5e6,
    rtt_s: 0.2,
    coded: |_| 1.0,
    server: |_| 1e9,
    server_buffer_bytes: 128e3,
    limit: Duration::from_secs(5),
    known_bytes_per_s: None,
};

#[derive(Debug)]
struct Outcome {
    /// Time from the client's first byte until the server has received the complete file.
    total_s: f64,
    /// Time from the client's last byte until the server has received the complete file.
    tail_s: f64,
    /// Maximum number of file bytes in flight.
    ahead_max_bytes: f64,
    drain: DrainBudget,
}

const STEP_S: f64 = 1e-3;

fn run(upload: &Upload) -> Outcome {
    let rtt = Duration::from_secs_f64(upload.rtt_s);
    let mut drain = DrainBudget::new(upload.limit, rtt, upload.known_bytes_per_s);
    let mut near = drain.granted;
    let mut grants: VecDeque<(f64, Grant)> = VecDeque::new();
    let mut line: VecDeque<(f64, f64)> = VecDeque::new();
    let (mut now, mut taken, mut at_far, mut accepted, mut read) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut busy_s, mut next_check) = (0.0, 0.0);
    let (mut ended, mut ahead_max) = (None, 0.0_f64);
    let mut line_free_s = 0.0;
    while read < upload.file_bytes - 0.5 {
        while let Some((_, grant)) = grants.pop_front_if(|(at, _)| *at <= now) {
            near = grant;
        }
        // The near gateway reads as many bytes as the budget and the path permit. Its queue holds
        // the bytes that the path carries in 10 ms.
        let room = (near.budget_bytes as f64 + near.accepted_bytes as f64 - taken)
            .min(upload.file_bytes - taken);
        if room > 0.0 && line_free_s < now + 0.01 {
            let coded = (upload.coded)(taken);
            let bytes = room.min((upload.line_bytes_per_s * STEP_S / coded).min(4e6));
            taken += bytes;
            line_free_s = line_free_s.max(now) + bytes * coded / upload.line_bytes_per_s;
            line.push_back((line_free_s + upload.rtt_s / 2.0, bytes));
        }
        if taken >= upload.file_bytes - 0.5 {
            ended.get_or_insert(now);
        }
        while let Some((_, bytes)) = line.pop_front_if(|(at, _)| *at <= now) {
            at_far += bytes;
        }
        read += ((upload.server)(now) * STEP_S).min(accepted - read);
        let space = upload.server_buffer_bytes - (accepted - read);
        let written = (at_far - accepted).min(space);
        accepted += written;
        if at_far - accepted > 0.5 {
            busy_s += STEP_S;
        }
        ahead_max = ahead_max.max(taken - accepted);
        if now >= next_check {
            drain.observe(UploadTotals {
                at_s: now,
                accepted_bytes: accepted as u64,
                busy_s,
            });
            if let Some(grant) = drain.next_grant() {
                grants.push_back((now + upload.rtt_s / 2.0, grant));
            }
            next_check = now + drain.time_to_observation().as_secs_f64();
        }
        now += STEP_S;
        assert!(now < 3e4, "the upload stands still");
    }
    Outcome {
        total_s: now,
        tail_s: now - ended.expect("the client has ended"),
        ahead_max_bytes: ahead_max,
        drain,
    }
}

#[test]
fn the_first_upload_to_a_fast_server_loses_less_than_a_round_trip() {
    for (line_bytes_per_s, rtt_s) in [(37.5e6, 0.2), (12.5e6, 0.1), (125e6, 0.6)] {
        let upload = Upload {
            file_bytes: line_bytes_per_s * 10.0,
            line_bytes_per_s,
            rtt_s,
            ..PLAIN
        };
        let ideal_s = 10.0 + rtt_s / 2.0;
        let outcome = run(&upload);
        assert!(
            outcome.total_s < ideal_s + 1.1 * rtt_s,
            "{line_bytes_per_s} B/s, {rtt_s} s: {} s, ideal {ideal_s} s",
            outcome.total_s
        );
    }
}

#[test]
fn the_next_upload_to_a_fast_server_loses_nothing() {
    let first = run(&PLAIN);
    let known_bytes_per_s = first.drain.measured_bytes_per_s();
    assert!(known_bytes_per_s.is_some_and(|rate| rate > 30e6));
    let next = run(&Upload {
        known_bytes_per_s,
        ..PLAIN
    });
    assert!(next.total_s < 100.0 / 37.5 + 0.13, "{}", next.total_s);
}

#[test]
fn slow_servers_have_everything_in_time_on_a_fast_line() {
    let servers: [fn(f64) -> f64; 4] = [|_| 125e3, |_| 300e3, |_| 1.25e6, |_| 6e6];
    for server in servers {
        let time_s = 15.0;
        let upload = Upload {
            file_bytes: server(0.0) * time_s,
            server,
            server_buffer_bytes: 64e3,
            ..PLAIN
        };
        let outcome = run(&upload);
        assert!(
            outcome.tail_s < 4.0,
            "{} B/s: {}",
            server(0.0),
            outcome.tail_s
        );
        assert!(
            outcome.total_s < time_s * 1.02 + 0.5,
            "{} B/s waited: {}",
            server(0.0),
            outcome.total_s
        );
    }
}

#[test]
fn a_server_with_large_buffers_is_measured_once_they_are_full() {
    let upload = Upload {
        file_bytes: 60e6,
        server: |_| 2e6,
        server_buffer_bytes: 4e6,
        ..PLAIN
    };
    let outcome = run(&upload);
    // The server's own buffers account for two seconds.
    assert!(outcome.tail_s < 5.0, "{}", outcome.tail_s);
    assert!(outcome.total_s < 31.5, "{}", outcome.total_s);
}

#[test]
fn a_line_that_is_slower_than_the_server_is_filled() {
    let upload = Upload {
        file_bytes: 12.5e6,
        line_bytes_per_s: 1.25e6,
        rtt_s: 0.6,
        server: |_| 2e6,
        ..PLAIN
    };
    let outcome = run(&upload);
    assert!(outcome.total_s < 10.4, "{}", outcome.total_s);
}

#[test]
fn a_server_that_stalls_lets_the_budget_shrink_and_grow_again() {
    let upload = Upload {
        server: |now| if (1.0..6.0).contains(&now) { 0.0 } else { 30e6 },
        file_bytes: 300e6,
        ..PLAIN
    };
    let outcome = run(&upload);
    assert!(outcome.total_s < 16.5, "{}", outcome.total_s);
    assert!(outcome.tail_s < 3.5, "{}", outcome.tail_s);
}

#[test]
fn few_bytes_of_the_line_never_stand_for_more_than_the_budget() {
    // An image with an empty second half, and a sparse image.
    let images: [fn(f64) -> f64; 2] = [
        |at| if at < 10e6 { 1.0 } else { 1e-4 },
        |at| {
            if ((at / 1e6) as u64).is_multiple_of(4) {
                1.0
            } else {
                1e-4
            }
        },
    ];
    for coded in images {
        let upload = Upload {
            file_bytes: 40e6,
            coded,
            server: |_| 2.5e6,
            server_buffer_bytes: 64e3,
            ..PLAIN
        };
        let outcome = run(&upload);
        assert!(outcome.tail_s < 4.0, "{}", outcome.tail_s);
        assert!(outcome.total_s < 17.0, "{}", outcome.total_s);
    }
}

#[test]
fn text_that_compresses_passes_faster_than_the_line_from_the_start() {
    let upload = Upload {
        line_bytes_per_s: 12.5e6,
        rtt_s: 0.1,
        coded: |_| 0.25,
        file_bytes: 300e6,
        ..PLAIN
    };
    let outcome = run(&upload);
    let ideal_s = 300.0 / 50.0;
    assert!(outcome.total_s < ideal_s + 0.2, "{}", outcome.total_s);
}

#[test]
fn a_patient_client_has_more_on_its_way_before_the_server_is_known() {
    let upload = |seconds| Upload {
        limit: Duration::from_secs(seconds),
        file_bytes: 20e6,
        server: |_| 0.3e6,
        ..PLAIN
    };
    let (usual, patient) = (run(&upload(5)), run(&upload(30)));
    assert!(usual.ahead_max_bytes < 1.1e6, "{}", usual.ahead_max_bytes);
    assert!(patient.ahead_max_bytes > 5e6, "{}", patient.ahead_max_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Checks two facts for all totals: the budget permits the client to send, and grants never
    /// decrease.
    #[test]
    fn grants_are_in_order_for_any_totals(
        steps in proptest::collection::vec((0.0..10.0_f64, 0_u64..1 << 40, 0.0..10.0_f64), 1..200),
        limit_s in 0_u64..100,
        known in proptest::option::of(0.0..1e12_f64),
    ) {
        let mut drain = DrainBudget::new(Duration::from_secs(limit_s), Duration::from_millis(200), known);
        let mut totals = UploadTotals::default();
        let mut accepted = 0;
        prop_assert!(drain.budget_bytes() >= BUDGET_MIN_BYTES);
        for (time_s, bytes, busy_s) in steps {
            totals.at_s += time_s;
            totals.accepted_bytes += bytes;
            totals.busy_s += busy_s.min(time_s);
            drain.observe(totals);
            prop_assert!(drain.budget_bytes() >= BUDGET_MIN_BYTES);
            if let Some(grant) = drain.next_grant() {
                prop_assert!(grant.accepted_bytes >= accepted);
                accepted = grant.accepted_bytes;
            }
            prop_assert!(drain.time_to_observation() > Duration::ZERO);
        }
    }

    /// A server of any constant rate receives the complete file within the limit, and rarely waits
    /// for bytes.
    #[test]
    fn a_server_of_any_rate_has_everything_in_time(
        rate_exponent in 4.7..7.5_f64,
        rtt_s in 0.01..0.8_f64,
        buffer_bytes in 20e3..250e3_f64,
    ) {
        thread_local!(static RATE: std::cell::Cell<f64> = const { std::cell::Cell::new(0.0) });
        let rate = 10_f64.powf(rate_exponent);
        RATE.set(rate);
        let time_s = (4e6 / rate).max(10.0);
        // In one step of the simulation the server reads no more than its buffer holds.
        let buffer_bytes = buffer_bytes.max(3.0 * rate * STEP_S);
        let outcome = run(&Upload {
            file_bytes: rate * time_s,
            rtt_s,
            server: |_| RATE.get(),
            server_buffer_bytes: buffer_bytes,
            ..PLAIN
        });
        // The server's own buffers hold further bytes in addition to the budget.
        let tail_max_s = 2.3 + 1.6 * rtt_s + buffer_bytes / rate;
        prop_assert!(outcome.tail_s < tail_max_s, "{} of {tail_max_s} s", outcome.tail_s);
        prop_assert!(outcome.total_s < time_s * 1.03 + 3.0 * rtt_s + 0.2, "{} of {time_s} s", outcome.total_s);
    }
}
