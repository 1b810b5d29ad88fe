use super::*;
use crate::{
    cell::{FileProtocol, WorkKind},
    record::{UserExperience, tests::record},
};

fn records() -> Vec<TrialRecord> {
    let mut records = Vec::new();
    for repetition in 0..3 {
        for side in [Side::FtpCubic, Side::Longhaul] {
            for rtt_ms in [20.0, 200.0] {
                let mut record = record(side, repetition);
                record.cell.path.rtt_ms = rtt_ms;
                record.seconds = 4.0 + f64::from(repetition);
                if side == Side::FtpCubic {
                    record.outcome = TrialEnd::CutOff;
                    record.bytes = 10_000_000;
                }
                records.push(record);
            }
        }
    }
    let mut failed = record(Side::Uftp, 0);
    (failed.bytes, failed.seconds) = (0, 0.0);
    failed.outcome = TrialEnd::Failed("<reset> by peer".to_owned());
    records.push(failed);
    records
}

#[test]
fn figures_are_medians_of_the_records() {
    let report = EvaluationReport::new("Small", "About <this>", &records()).expect("records");
    let text = report.markdown();
    // The ideal 3.2 s divided by 4, 5 and 6 s.
    assert!(text.contains("0.640 (0.533..0.800), 160.0"), "{text}");
    // These trials were aborted after the times of the complete trials, with a tenth of the bytes.
    assert!(text.contains("0.064 (0.053..0.080), 16.0"), "{text}");
    assert!(text.contains("13 trials"), "{text}");
    assert!(
        text.contains("cut off after 5 s with 10.0 % of the bytes"),
        "{text}"
    );
    assert!(
        text.contains(
            "UFTP, 300 Mbit/s, 200 ms, loss 0.1%, 100 MB download, time 1: failed: <reset> by peer"
        ),
        "{text}"
    );
    assert!(text.contains("| 3.0 | 2.0 | 10000 |"), "{text}");
}

#[test]
fn the_goodput_of_a_competing_connection_is_reported() {
    let mut records = records();
    for record in &mut records {
        record.cell.work.beside = Some(crate::cell::CompetingConnection::Cubic);
        let is_plain = record.side == Side::FtpCubic;
        record.beside_bits_per_s = Some(if is_plain { 200e6 } else { 100e6 });
    }
    let text = EvaluationReport::new("Small", "", &records)
        .expect("records")
        .markdown();
    assert!(
        text.contains("| Longhaul | 160.0 | 100.0 | 0.500 | 0.949 |"),
        "{text}"
    );
    assert!(
        text.contains("| FTP, CUBIC | 16.0 | 200.0 | 1.000 | 0.579 |"),
        "{text}"
    );
}

#[test]
fn times_of_movers_tell_what_did_not_end() {
    let mut records = Vec::new();
    for (side, seconds) in [
        (Side::MoverPeer, [4.0, 5.0, 6.0]),
        (Side::Lftp, [4.0, 12.0, 12.1]),
        (Side::Wget, [7.0, 8.0, 12.0]),
    ] {
        for (repetition, seconds) in (0..).zip(seconds) {
            let mut record = record(side, repetition);
            record.cell.work.threads = Some(8);
            record.seconds = seconds;
            if seconds >= 12.0 {
                (record.outcome, record.bytes) = (TrialEnd::CutOff, 25_000_000);
            }
            if side == Side::Wget && repetition == 1 {
                record.outcome = TrialEnd::Failed("reset".to_owned());
            }
            records.push(record);
        }
    }
    let text = EvaluationReport::new("Small", "", &records)
        .expect("records")
        .markdown();
    for line in [
        "| cell | longhaul copy --peer | lftp | wget |",
        "100 MB download by 8 threads | 5.0 | 4.0, 2 of 3 not in 12 | 7.0, 1 of 3 not in 12, 1 of 3 failed |",
        "| longhaul copy --peer in the same cells |",
        "| best of the others in each cell |",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    records.truncate(1);
    records[0].outcome = TrialEnd::NotTried("no program".to_owned());
    let text = EvaluationReport::new("Small", "", &records)
        .expect("records")
        .markdown();
    assert!(text.contains("by 8 threads | not tried |"), "{text}");
}

#[test]
fn programs_behind_gateways_are_no_rivals_of_our_mover() {
    let mut records = Vec::new();
    for (side, seconds) in [
        (Side::MoverPeer, 4.0),
        (Side::Sftp, 32.0),
        (Side::SftpGateway, 3.8),
        (Side::Rsync, 16.0),
    ] {
        let mut record = record(side, 0);
        record.cell.work.threads = Some(8);
        record.cell.work.protocol = FileProtocol::Sftp;
        record.seconds = seconds;
        records.push(record);
    }
    let mut missing = record(Side::Rclone, 0);
    missing.cell = records[0].cell.clone();
    missing.outcome = TrialEnd::NotTried("rclone is not installed".to_owned());
    records.push(missing);
    let text = EvaluationReport::new("SFTP", "", &records)
        .expect("records")
        .markdown();
    for line in [
        "| cell | longhaul copy --peer | sftp | sftp, gateways | rsync | rclone |",
        "100 MB SFTP download by 8 threads | 4.0 | 32.0 | 3.8 | 16.0 | not tried |",
        "| longhaul copy --peer | 0.800 | 0.800 | 0.800 | 0.800 | 1 | 1 | 1 | 1 |",
        "| sftp, gateways | 0.842 | 0.842 | 0.842 | 0.800 | 1 | 1 | 1 | 1 |",
        "| best of the others in each cell | 0.200 |",
        "rclone, 300 Mbit/s, 200 ms, loss 0.1%, 100 MB SFTP download by 8 threads, time 1: \
         not tried: rclone is not installed",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn a_page_needs_nothing_beside_itself() {
    let report = EvaluationReport::new("Small", "About <this>", &records()).expect("records");
    let page = report.html();
    assert!(page.contains("About &lt;this&gt;") && page.contains("&lt;reset&gt;"));
    for outside in ["http://", "https://", "<script", "<link", "src="] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside}");
    }
    assert_eq!(
        page.matches("<svg").count(),
        2,
        "over RTT, and the distribution"
    );
}

#[test]
fn two_runs_are_compared_cell_by_cell() {
    let mut before = records();
    before.push(session(1.0, 0));
    let mut after = before.clone();
    for record in &mut after {
        record.seconds /= 2.0;
    }
    after.pop();
    after.push(session(0.5, 3));
    let text = RecordComparison::of(&before, &after).text();
    for line in [
        "| Longhaul | of ideal | 0.640 | 1.280 | 2.000 | 3 of 3 | 3 of 3 |",
        "| FTP, CUBIC | of ideal | 0.064 | 0.128 | 2.000 | 0 of 3 | 0 of 3 |",
        "| Longhaul | sessions, ms | 1000.0 | 500.0 | 0.500 | 10 of 10 | 7 of 10 |",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let nothing = RecordComparison::of(&before, &[]).text();
    assert!(nothing.contains("no records"), "{nothing}");
}

/// Record of a trial with ten sessions. `failed` is the number of failed sessions.
fn session(seconds: f64, failed: u64) -> TrialRecord {
    let mut record = record(Side::Longhaul, 0);
    record.cell.work.job = WorkKind::Sessions;
    record.bytes = 0;
    record.answers = Some(UserExperience {
        seconds: BTreeMap::from([("sessions".to_owned(), vec![seconds; 10])]),
        complete: BTreeMap::from([("sessions".to_owned(), [10 - failed, 10])]),
        failures: [("reset".to_owned(), failed)]
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .collect(),
    });
    record
}

#[test]
fn sessions_that_failed_are_among_what_did_not_complete() {
    let text = |failed| {
        EvaluationReport::new("Small", "", &[session(1.0, failed)])
            .expect("one")
            .markdown()
    };
    assert!(text(0).contains("Everything completed."), "{}", text(0));
    assert!(text(3).contains("time 1: failed: 3 reset"), "{}", text(3));
}

#[test]
fn without_records_there_is_no_report() {
    assert!(EvaluationReport::new("Empty", "", &[]).is_err());
}

#[test]
fn cells_of_a_plot_differ_in_one_quantity_alone() {
    let mut records = records();
    let mut with = |change: fn(&mut TrialRecord)| {
        let mut record = record(Side::Longhaul, 0);
        change(&mut record);
        records.push(record);
    };
    with(|record| record.cell.work.outage_ms = Some(5000));
    with(|record| record.cell.work.size_bytes *= 2);
    with(|record| record.cell.path.duplication = 0.5);
    with(|record| record.cell.work.job = WorkKind::Sessions);
    let plots = EvaluationReport::new("Small", "", &records)
        .expect("records")
        .plots();
    let titles: Vec<_> = plots.iter().map(|plot| plot.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "Goodput over RTT: 300 Mbit/s, loss 0.1%, 100 MB download",
            "Goodput over duplication: 300 Mbit/s, 200 ms, loss 0.1%, 100 MB download",
            "Goodput over size: 300 Mbit/s, 200 ms, loss 0.1%, download",
            "Distribution over all trials",
        ]
    );
    let over_size = &plots[2].series[1];
    assert_eq!(over_size.points.len(), 2, "{over_size:?}");
}

#[test]
fn the_headline_counts_cells() {
    let mut records = records();
    records.retain(|record| record.side != Side::Uftp);
    for rtt_ms in [20.0, 200.0] {
        let mut bbr = record(Side::FtpBbr, 0);
        (bbr.cell.path.rtt_ms, bbr.seconds) = (rtt_ms, 4.0 + rtt_ms / 50.0);
        records.push(bbr);
    }
    let text = EvaluationReport::new("Small", "", &records)
        .expect("records")
        .markdown();
    for line in [
        "| FTP, CUBIC | 0.064 | 0.064 | 0.064 | 0.640 | 0 | 2 | 0 | 6 |",
        "| Longhaul | 0.640 | 0.640 | 0.640 | 0.640 | 1 | 2 | 6 | 6 |",
        "| FTP, BBR | 0.564 | 0.400 | 0.727 | 0.640 | 1 | 2 | 2 | 2 |",
        "| best of the others in each cell | 0.564 | 0.400 | 0.727 | 0.640 | - | 2 | - | - |",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
