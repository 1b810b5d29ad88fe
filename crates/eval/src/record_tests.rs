use super::*;
use crate::cell::{CellWork, FileProtocol, PathSpec, TrialDirection};

pub(crate) fn record(side: Side, repetition: u32) -> TrialRecord {
    TrialRecord {
        schema: 1,
        plan: "small".to_owned(),
        cell: Cell {
            path: PathSpec {
                rate_bits_per_s: 300_000_000,
                rtt_ms: 200.0,
                loss: 0.001,
                ..PathSpec::default()
            },
            work: CellWork {
                job: WorkKind::Files,
                protocol: FileProtocol::Ftp,
                direction: TrialDirection::Down,
                size_bytes: 100_000_000,
                files: 1,
                clients: 1,
                threads: None,
                window_bytes: None,
                server: None,
                beside: None,
                outage_ms: None,
            },
        },
        side,
        repetition,
        seed: 1,
        outcome: TrialEnd::Complete,
        bytes: 100_000_000,
        seconds: 4.0,
        ideal_seconds: 3.2,
        cpu_seconds: BTreeMap::from([
            ("near gateway".to_owned(), 0.3),
            ("far gateway".to_owned(), 0.2),
        ]),
        wire_bytes: [1_000, 106_000_000],
        answers: None,
        beside_bits_per_s: None,
        saturated: false,
        machine: "2 processors".to_owned(),
        version: "0.1.0".to_owned(),
        begun_unix_s: 1,
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("longhaul-records-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn records_read_back_and_can_be_added_to() {
    let file = Scratch::new("back");
    let (mut records, before) = RecordFile::open(&file.0).expect("a new file");
    assert!(before.is_empty());
    records.add(&record(Side::Longhaul, 0)).expect("room");
    let (mut records, before) = RecordFile::open(&file.0).expect("the same file");
    assert_eq!(before, [record(Side::Longhaul, 0)]);
    records.add(&record(Side::FtpBbr, 1)).expect("room");
    let all = read(&file.0).expect("whole");
    assert_eq!(all, [record(Side::Longhaul, 0), record(Side::FtpBbr, 1)]);
    assert_ne!(all[0].key(), all[1].key());
}

#[test]
fn records_from_before_the_schema_are_read() {
    let line = serde_json::to_string(&record(Side::Longhaul, 0)).expect("plain data");
    let old = line.replacen("\"schema\":1,", "", 1);
    assert_ne!(old, line, "a record has its schema");
    let read: TrialRecord = serde_json::from_str(&old).expect("a record");
    assert_eq!((read.schema, read.seed), (0, 1));
}

#[test]
fn records_from_before_sftp_are_records_of_ftp() {
    let old = record(Side::Lftp, 0);
    let line = serde_json::to_string(&old).expect("plain data");
    assert!(!line.contains("protocol"), "{line}");
    let read: TrialRecord = serde_json::from_str(&line).expect("a record");
    assert_eq!(read.cell.work.protocol, FileProtocol::Ftp);
    let mut new = old.clone();
    new.cell.work.protocol = FileProtocol::Sftp;
    let line = serde_json::to_string(&new).expect("plain data");
    assert!(line.contains("\"protocol\":\"sftp\""), "{line}");
    assert_eq!(
        serde_json::from_str::<TrialRecord>(&line).ok(),
        Some(new.clone())
    );
    assert_ne!(old.key(), new.key());
}

#[test]
fn half_a_line_is_no_record() {
    let file = Scratch::new("half");
    let (mut records, _) = RecordFile::open(&file.0).expect("a new file");
    records.add(&record(Side::Longhaul, 0)).expect("room");
    let whole = fs::read(&file.0).expect("written");
    let line = serde_json::to_vec(&record(Side::FtpCubic, 0)).expect("plain data");
    fs::write(&file.0, [&whole[..], &line[..100]].concat()).expect("room");
    let error = read(&file.0).expect_err("not whole").to_string();
    assert!(error.contains(":2: not a record"), "{error}");
    let (_, before) = RecordFile::open(&file.0).expect("mended");
    assert_eq!(before.len(), 1);
    assert_eq!(fs::read(&file.0).expect("there"), whole, "cut away");
}

#[test]
fn a_line_that_was_changed_is_an_error_and_is_kept() {
    let file = Scratch::new("changed");
    let good = serde_json::to_string(&record(Side::Longhaul, 0)).expect("plain data");
    let text = format!("{good}\n{}\n{good}\n", good.replace("longhaul", "longhual"));
    fs::write(&file.0, &text).expect("room");
    for result in [
        read(&file.0).map(|_| ()),
        RecordFile::open(&file.0).map(|_| ()),
    ] {
        let error = chain(result.expect_err("no such side"));
        assert!(
            error.contains(":2: not a record") && error.contains("longhual"),
            "{error}"
        );
    }
    assert_eq!(fs::read_to_string(&file.0).expect("there"), text);
}

#[test]
fn a_full_disk_is_said() {
    let path = PathBuf::from("/dev/full");
    let file = OpenOptions::new()
        .append(true)
        .open(&path)
        .expect("Linux has it");
    let mut records = RecordFile { path, file };
    let error = records.add(&record(Side::Longhaul, 0)).expect_err("full");
    let error = chain(error);
    assert!(error.starts_with("/dev/full: "), "{error}");
}

/// Returns the error with its causes, in the form that the program prints.
fn chain(error: RecordsError) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

#[test]
fn efficiency_counts_what_was_cut_off_and_what_failed() {
    let complete = record(Side::Longhaul, 0);
    assert_eq!(complete.efficiency(), Some(0.8));
    assert_eq!(complete.goodput_bits_per_s(), 200e6);
    let cut_off = TrialRecord {
        outcome: TrialEnd::CutOff,
        bytes: 25_000_000,
        ..complete.clone()
    };
    assert_eq!(cut_off.efficiency(), Some(0.2));
    let nothing = TrialRecord {
        outcome: TrialEnd::CutOff,
        bytes: 0,
        ..complete.clone()
    };
    assert_eq!(nothing.efficiency(), Some(0.0));
    let failed = TrialRecord {
        outcome: TrialEnd::Failed("reset".to_owned()),
        ..complete.clone()
    };
    assert_eq!(failed.efficiency(), Some(0.0));
    let not_tried = TrialRecord {
        outcome: TrialEnd::NotTried("no uftp".to_owned()),
        ..complete
    };
    assert_eq!(not_tried.efficiency(), None);
}

#[test]
fn what_could_not_be_tried_or_was_cut_off_early_is_tried_again_and_counts_as_it_ended_last() {
    let limit = Duration::from_secs(10);
    let mut cut_off = record(Side::FtpCubic, 0);
    (cut_off.outcome, cut_off.seconds) = (TrialEnd::CutOff, 5.0);
    assert!(!cut_off.is_final(limit) && cut_off.is_final(limit / 2));
    let mut missing = record(Side::Uftp, 0);
    missing.outcome = TrialEnd::NotTried("uftp is not installed".to_owned());
    assert!(!missing.is_final(limit) && record(Side::Uftp, 0).is_final(limit));

    let scratch = Scratch::new("again");
    let (mut file, _) = RecordFile::open(&scratch.0).expect("new");
    for record in [&missing, &cut_off, &record(Side::Uftp, 0)] {
        file.add(record).expect("written");
    }
    let kept = read(&scratch.0).expect("records");
    assert_eq!(kept, [cut_off, record(Side::Uftp, 0)]);
}
