use super::*;
use crate::eval::record::tests::record;

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for repetition in 0..3 {
        for side in [Side::FtpCubic, Side::Longhaul] {
            for rtt_ms in [20.0, 200.0] {
                let mut record = record(side, repetition);
                record.cell.path.rtt_ms = rtt_ms;
                record.seconds = 4.0 + f64::from(repetition);
                if side == Side::FtpCubic {
                    record.outcome = Outcome::CutOff;
                    record.bytes = 10_000_000;
                }
                records.push(record);
            }
        }
    }
    let mut failed = record(Side::Uftp, 0);
    (failed.bytes, failed.seconds) = (0, 0.0);
    failed.outcome = Outcome::Failed("<reset> by peer".to_owned());
    records.push(failed);
    records
}

#[test]
fn figures_are_medians_of_the_records() {
    let report = Report::new("Small", "About <this>", &records()).expect("records");
    let text = report.markdown();
    // 3.2 s ideal by 4, 5 and 6 s.
    assert!(text.contains("0.640 (0.533..0.800), 160.0"), "{text}");
    // Cut off with a tenth after as long.
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
    assert!(text.contains("| 3.00 | 2.00 | 10000 |"), "{text}");
}

#[test]
fn what_is_left_to_a_neighbour_is_told() {
    let mut records = records();
    for record in &mut records {
        record.cell.work.beside = Some(crate::eval::cell::Neighbour::Cubic);
        let is_plain = record.side == Side::FtpCubic;
        record.beside_bits_per_s = Some(if is_plain { 200e6 } else { 100e6 });
    }
    let text = Report::new("Small", "", &records)
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
fn a_page_needs_nothing_beside_itself() {
    let report = Report::new("Small", "About <this>", &records()).expect("records");
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
    let before = records();
    let mut after = before.clone();
    for record in &mut after {
        record.seconds /= 2.0;
    }
    let text = compare(&before, &after);
    assert!(
        text.contains("| Longhaul | 0.640 | 1.280 | 2.000 |"),
        "{text}"
    );
    let nothing = compare(&before, &[]);
    assert!(nothing.contains("no records"), "{nothing}");
}

#[test]
fn without_records_there_is_no_report() {
    assert!(Report::new("Empty", "", &[]).is_err());
}
