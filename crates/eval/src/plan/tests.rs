use super::*;
use crate::cell::FileProtocol;

const HEAD: &str = r#"
name = "small"
title = "Small"
repetitions = 2
limit = "30 s"
sides = ["ftp-cubic", "longhaul"]
"#;
const CELLS: &str = r#"
[[cells]]
rate = "300 Mbit/s"
rtt = ["20ms", "200ms"]
loss = ["0%", "0.1%"]
direction = ["down", "up"]
size = ["10 MB", "1 GB"]
"#;

fn parse(text: &str, published: bool) -> Result<EvaluationPlan, PlanError> {
    EvaluationPlan::parse(text, Path::new("small.toml"), published)
}

#[test]
fn lists_multiply() {
    let plan = parse(&format!("{HEAD}{CELLS}"), false).expect("a plan");
    assert_eq!(plan.tasks.len(), 2 * 2 * 2 * 2);
    assert_eq!(plan.trials(), 16 * 2 * 2);
    assert_eq!(
        plan.tasks[0].cell.to_string(),
        "300 Mbit/s, 20 ms, loss 0%, 10 MB download"
    );
    let last = &plan.tasks[15].cell;
    assert_eq!(
        last.to_string(),
        "300 Mbit/s, 200 ms, loss 0.1%, 1 GB upload"
    );
    let [up, down] = last.path.configs();
    assert_eq!((up.delay, down.loss), (Duration::from_millis(100), 0.001));
    // Each side moves 10 MB in about a second. It moves 1 GB in 30 s, or reaches its time limit.
    assert!(
        plan.estimate() > Duration::from_secs(600),
        "{:?}",
        plan.estimate()
    );
    assert!(
        plan.estimate() < Duration::from_secs(2400),
        "{:?}",
        plan.estimate()
    );
}

#[test]
fn what_is_published_is_a_part() {
    let rest = CELLS
        .replace("[[cells]]", "[[cells]]\npublished = false")
        .replace("1 GB", "5 GB");
    let published = "[published]\nrepetitions = 1\nlimit = \"4 x ideal\"\n";
    let text = format!("{HEAD}{CELLS}{rest}{published}");
    let plan = parse(&text, true).expect("a plan");
    assert_eq!((plan.tasks.len(), plan.trials()), (16, 32));
    // 10 MB take less than a second, and 1 GB takes 28.4 s and 20 ms.
    assert_eq!(plan.tasks[0].limit, Duration::from_secs(5));
    assert_eq!(plan.tasks[2].limit.as_secs(), 113);
    let all = parse(&text, false).expect("a plan");
    assert_eq!(all.tasks.len(), 24, "10 MB are in both");
    assert_eq!(all.tasks[0].limit, Duration::from_secs(30));
    let error = parse(&format!("{HEAD}{CELLS}"), true).expect_err("no subset");
    assert!(error.to_string().contains("no [published]"), "{error}");
}

#[test]
fn each_side_comes_first_in_its_turn() {
    let plan = parse(&format!("{HEAD}{CELLS}"), false).expect("a plan");
    let turns: Vec<Vec<Side>> = (0..3)
        .map(|number| plan.tasks[0].turn(number).collect())
        .collect();
    assert_eq!(turns[0], [Side::FtpCubic, Side::Longhaul]);
    assert_eq!(turns[1], [Side::Longhaul, Side::FtpCubic]);
    assert_eq!(turns[2], turns[0]);
}

#[test]
fn what_would_do_nothing_is_refused() {
    let sessions =
        "[[cells]]\njob = \"sessions\"\nrate = \"1 Mbit/s\"\nrtt = \"1ms\"\nsize = \"1 kB\"\n";
    for (section, expected) in [
        (
            format!("{sessions}limit = \"5 s\"\n"),
            "small.toml:12:9: sessions and transactions end",
        ),
        (
            "[[cells]]\nmedium = \"wifi-11b\"\nrate_back = \"1 Mbit/s\"\nsize = \"1 kB\"\n"
                .to_owned(),
            "small.toml:9:13: a medium has a rate of its own",
        ),
    ] {
        let error = parse(&format!("{HEAD}{section}"), false).expect_err("no effect");
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn a_section_has_sides_and_works_of_its_own() {
    let section = r#"
[[cells]]
medium = "wifi-11b"
direction = "up"
size = "11844459 B"
window = ["none", "64 KiB"]
server = "64 KiB/32 KiB"
beside = "cubic"
outage = "5 s"
sides = ["uftp"]
repetitions = 5
"#;
    let plan = parse(&format!("{HEAD}{section}"), false).expect("a plan");
    let [first, second] = &plan.tasks[..] else {
        panic!("{:?}", plan.tasks);
    };
    assert_eq!(
        (&first.sides[..], first.repetitions),
        (&[Side::Uftp][..], 5)
    );
    assert_eq!(first.cell.work.window_bytes, None);
    // 1538 bytes in 3.84 ms.
    assert_eq!(first.cell.path.rate_bits_per_s / 10_000, 320);
    assert!(first.cell.path.radio().is_some());
    assert_eq!(
        second.cell.to_string(),
        "wifi-11b, 0 ms, loss 0%, 11.8 MB upload, TCP window 64 KiB, server with socket buffers of 64 KiB and \
         blocks of 32 KiB, beside CUBIC, outage of 5 s"
    );
}

const MOVERS: &str = r#"
[[cells]]
rate = "300 Mbit/s"
rtt = "100ms"
threads = [1, 8]
size = "16 MiB"
files = 16
sides = ["mover-peer", "lftp"]
"#;

#[test]
fn movers_have_threads() {
    let plan = parse(&format!("{HEAD}{MOVERS}"), false).expect("a plan");
    let cells: Vec<_> = plan.tasks.iter().map(|task| &task.cell).collect();
    assert_eq!(
        [cells[0].to_string(), cells[1].to_string()],
        [
            "300 Mbit/s, 100 ms, loss 0%, 16 x 16 MiB download by 1 thread",
            "300 Mbit/s, 100 ms, loss 0%, 16 x 16 MiB download by 8 threads",
        ]
    );
    assert_eq!(plan.tasks[0].sides, [Side::MoverPeer, Side::Lftp]);
    for (from, to, expected) in [
        (
            "threads = [1, 8]\n",
            "",
            "small.toml:13:9: movers need threads",
        ),
        (
            "\"lftp\"",
            "\"quic\"",
            "small.toml:14:9: threads are for movers",
        ),
        (
            "files = 16",
            "files = 16\nclients = 4",
            "small.toml:15:9: movers are tried",
        ),
        (
            "files = 16",
            "files = 16\ndirection = \"up\"",
            "small.toml:15:9: movers are tried",
        ),
        (
            "[1, 8]",
            "[1, 17]",
            "small.toml:11:11: expected numbers from 1 to 16",
        ),
        (
            "[1, 8]",
            "[]",
            "small.toml:11:11: expected numbers from 1 to 16",
        ),
        ("[1, 8]", "\"8\"", "small.toml:11:11: a number or a list"),
    ] {
        let text = format!("{HEAD}{MOVERS}").replacen(from, to, 1);
        let error = parse(&text, false).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{error} instead of {expected}");
    }
}

#[test]
fn a_plan_for_sftp_has_movers_that_fetch_by_sftp() {
    let text = format!("{HEAD}protocol = \"sftp\"\n{MOVERS}");
    let text = text.replace("\"lftp\"]", "\"lftp\", \"rsync-gateway\"]");
    let plan = parse(&text, false).expect("a plan");
    let task = &plan.tasks[0];
    assert_eq!(
        task.cell.to_string(),
        "300 Mbit/s, 100 ms, loss 0%, 16 x 16 MiB SFTP download by 1 thread"
    );
    assert_eq!(
        task.sides,
        [Side::MoverPeer, Side::Lftp, Side::RsyncGateway]
    );
    let single = text.replace("files = 16", "files = 1");
    let plan = parse(&single, false).expect("a plan");
    assert!(plan.tasks[0].cell.to_string().contains("16 MiB SFTP"));
    let protocol = "a mover here does not fetch by the protocol of the plan";
    for (from, to, expected) in [
        (
            "\"lftp\"",
            "\"wget\"",
            format!("small.toml:15:9: {protocol}"),
        ),
        (
            "\"sftp\"",
            "\"ftp\"",
            format!("small.toml:15:9: {protocol}"),
        ),
        (
            "threads = [1, 8]\n",
            "",
            "small.toml:14:9: movers need threads".to_owned(),
        ),
        (
            "\"sftp\"",
            "\"scp\"",
            "small.toml:7:12: unknown variant \"scp\"".to_owned(),
        ),
    ] {
        let error = parse(&text.replacen(from, to, 1), false).expect_err(to);
        let error = error.to_string();
        assert!(
            error.starts_with(&expected),
            "{error} instead of {expected}"
        );
    }
    let text = format!("{HEAD}protocol = \"sftp\"\n{CELLS}");
    let error = parse(&text, false).expect_err("no mover").to_string();
    assert!(
        error.starts_with("small.toml:6:9: only movers fetch by SFTP"),
        "{error}"
    );
}

#[test]
fn each_mover_has_a_protocol() {
    let of = |protocol| {
        let sides = [
            Side::MoverDirect,
            Side::Sftp,
            Side::LftpGateway,
            Side::Curl,
            Side::Longhaul,
        ];
        sides.map(|side| side.fetches_by(protocol))
    };
    assert_eq!(of(FileProtocol::Ftp), [true, false, false, true, false]);
    assert_eq!(of(FileProtocol::Sftp), [true, true, true, false, false]);
    assert!(Side::RcloneGateway.uses_gateways() && Side::RcloneGateway.is_ours());
    assert!(!Side::Rclone.uses_gateways() && !Side::Rclone.is_ours());
}

#[test]
fn the_plan_for_sftp_has_the_cells_of_the_plan_for_movers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let plan = |name: &str, published| {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).expect("a plan");
        EvaluationPlan::parse(&text, &path, published).unwrap_or_else(|error| panic!("{error}"))
    };
    for published in [false, true] {
        let [ftp, sftp] = ["mover.toml", "sftp.toml"].map(|name| plan(name, published));
        let cells = |plan: &EvaluationPlan, protocol| -> Vec<Cell> {
            let cells = plan.tasks.iter().map(|task| task.cell.clone());
            let with = |mut cell: Cell| {
                cell.work.protocol = protocol;
                cell
            };
            cells.map(with).collect()
        };
        let expected = cells(&ftp, FileProtocol::Sftp);
        assert_eq!(cells(&sftp, FileProtocol::Sftp), expected);
        assert!(
            sftp.tasks
                .iter()
                .zip(&expected)
                .all(|(task, cell)| task.cell == *cell)
        );
        assert!(
            ftp.tasks
                .iter()
                .all(|task| task.cell.work.protocol == FileProtocol::Ftp)
        );
    }
}

/// Each plan of the repository is valid. If a plan has a published subset, the subset is valid too.
#[test]
fn our_plans_are_plans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("plans") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a plan");
        let all =
            EvaluationPlan::parse(&text, &path, false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem(), Some(std::ffi::OsStr::new(&all.name)));
        if text.contains("[published]") {
            let part =
                EvaluationPlan::parse(&text, &path, true).unwrap_or_else(|error| panic!("{error}"));
            assert!(part.trials() <= all.trials(), "{}", all.name);
            assert!(part.estimate() < Duration::from_secs(3600), "{}", all.name);
        }
        names.push(all.name);
    }
    assert!(names.iter().any(|name| name == "mover"), "{names:?}");
}

#[test]
fn a_mistake_has_its_place() {
    for (from, to, expected) in [
        (
            "longhaul",
            "longhual",
            "small.toml:6:23: unknown variant \"longhual\", expected one of \"ftp-cubic\"",
        ),
        ("300 Mbit/s", "fast", "small.toml:9:8"),
        ("200ms", "200", "small.toml:10:7"),
        ("0.1%", "0.1", "small.toml:11:8"),
        (
            "direction",
            "directoin",
            "small.toml:12:1: unknown field \"directoin\", expected",
        ),
        (
            "\"up\"",
            "\"upp\"",
            "small.toml:12:13: \"upp\" is not a direction",
        ),
        ("= 2", "= 0", "small.toml:4:15: expected at least 1"),
        ("30 s", "inf x ideal", "small.toml:5:9: expected a time"),
        ("30 s", "soon", "small.toml:5:9: expected a time"),
        ("small\"", "../x\"", "small.toml:2:8: expected a name"),
    ] {
        let text = format!("{HEAD}{CELLS}").replacen(from, to, 1);
        let error = parse(&text, false).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{error} instead of {expected}");
    }
    let error = parse(HEAD, false).expect_err("no cells").to_string();
    assert!(error.contains("no cell"), "{error}");
}
