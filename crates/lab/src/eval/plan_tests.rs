use super::*;

const HEAD: &str = r#"
name = "small"
title = "Small"
repetitions = 2
limit = "30 s"
sides = ["ftp-cubic", "longhaul"]
"#;
const PATH: &str = r#"
[[path]]
rate = "300 Mbit/s"
rtt = ["20ms", "200ms"]
loss = ["0%", "0.1%"]
"#;
const WORK: &str = r#"
[[work]]
direction = ["down", "up"]
size = ["10 MB", "1 GB"]
"#;

fn parse(text: &str, published: bool) -> Result<Plan, PlanError> {
    Plan::parse(text, Path::new("small.toml"), published)
}

#[test]
fn lists_multiply() {
    let plan = parse(&format!("{HEAD}{PATH}{WORK}"), false).expect("a plan");
    assert_eq!(plan.cells.len(), 2 * 2 * 2 * 2);
    assert_eq!(plan.trials(), 16 * 2 * 2);
    assert_eq!(
        plan.cells[0].to_string(),
        "300 Mbit/s, 20 ms, loss 0%, 10 MB download"
    );
    let last = &plan.cells[15];
    assert_eq!(
        last.to_string(),
        "300 Mbit/s, 200 ms, loss 0.1%, 1 GB upload"
    );
    let [up, down] = last.path.configs();
    assert_eq!((up.delay, down.loss), (Duration::from_millis(100), 0.001));
    // Each side does 10 MB within a second or so and 1 GB within 30 s or is cut off.
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
    let published = "[published]\nrepetitions = 1\nrtt = \"200ms\"\nsize = [\"10 MB\"]\n";
    let text = format!("{HEAD}{PATH}{WORK}{published}");
    let plan = parse(&text, true).expect("a plan");
    assert_eq!((plan.cells.len(), plan.repetitions), (4, 1));
    assert_eq!(parse(&text, false).expect("a plan").cells.len(), 16);
    let error = parse(&format!("{HEAD}{PATH}{WORK}"), true).expect_err("no subset");
    assert!(error.to_string().contains("no [published]"), "{error}");
}

#[test]
fn a_mistake_has_its_place() {
    for (from, to, expected) in [
        (
            "longhaul",
            "longhual",
            "small.toml:6:23: no side is called \"longhual\", expected one of: ftp-cubic",
        ),
        ("300 Mbit/s", "fast", "small.toml:9:8"),
        ("200ms", "200", "small.toml:10:7"),
        ("0.1%", "0.1", "small.toml:11:8"),
        (
            "direction",
            "directoin",
            "small.toml:14:1: unknown field \"directoin\", expected",
        ),
        (
            "\"up\"",
            "\"upp\"",
            "small.toml:14:13: \"upp\" is not a direction",
        ),
        ("= 2", "= 0", "small.toml:4:15: expected at least 1"),
        ("30 s", "soon", "small.toml:5:9: expected a time"),
        ("small\"", "../x\"", "small.toml:2:8: expected a name"),
    ] {
        let text = format!("{HEAD}{PATH}{WORK}").replacen(from, to, 1);
        let error = parse(&text, false).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{error} instead of {expected}");
    }
    let error = parse(HEAD, false).expect_err("no cells").to_string();
    assert!(error.contains("no cell"), "{error}");
}

#[test]
fn a_size_may_be_kept_to_some_paths() {
    let path = format!("{PATH}sizes = [\"1 GB\"]\n");
    let plan = parse(&format!("{HEAD}{path}{WORK}"), false).expect("a plan");
    assert!(
        plan.cells
            .iter()
            .all(|cell| cell.work.size_bytes == 1_000_000_000)
    );
}
