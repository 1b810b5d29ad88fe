use ftp::listing::TimePrecision;
use proptest::{prelude::*, sample::select};

use super::*;

fn filter(rules: &[&str]) -> Filter {
    let rules = rules.iter().map(|rule| match rule.split_at(1) {
        ("+", pattern) => Rule::include(pattern).expect("a pattern"),
        ("-", pattern) => Rule::exclude(pattern).expect("a pattern"),
        _ => panic!("{rule}"),
    });
    Filter::new(rules.collect(), Bounds::default()).expect("a filter")
}

fn takes(filter: &Filter, path: &str) -> bool {
    filter.takes_file(path.as_bytes(), None, None, 0)
}

#[test]
fn a_pattern_matches_names_at_any_depth_and_paths_from_the_root() {
    let cases = [
        (
            "*.tmp",
            &["a.tmp", "x/y/a.tmp", ".tmp"][..],
            &["a.tmp/b", "a.tmpx"][..],
        ),
        ("/*.tmp", &["a.tmp"], &["x/a.tmp"]),
        ("x/a", &["x/a", "y/x/a"], &["x/y/a", "a", "yx/a"]),
        ("/x/a", &["x/a"], &["y/x/a"]),
        (
            "cache/",
            &["cache/a", "x/cache/y/a"],
            &["cache", "xcache/a", "cachex/a"],
        ),
        (
            "/cache/**",
            &["cache/a", "cache/y/a"],
            &["x/cache/a", "cache"],
        ),
        ("/x/**/a", &["x/a", "x/y/z/a"], &["a", "y/x/a"]),
        ("?.[ch]", &["a.c", "x/b.h"], &["ab.c", "a.d"]),
        ("{a,b*}.jpg", &["a.jpg", "bcd.jpg"], &["c.jpg"]),
        ("a[!b]c", &["axc"], &["abc", "a/c"]),
        ("a[!]-]c", &["axc"], &["a]c", "a-c", "a/c"]),
        ("\\*", &["*", "x/*"], &["a"]),
        ("*", &["a", "x/y/z"], &[]),
        ("/", &["a", "x/y/z"], &[]),
        ("**", &["a", "x/y/z"], &[]),
    ];
    for (pattern, matched, others) in cases {
        let filter = filter(&[&format!("-{pattern}")]);
        for path in matched {
            assert!(!takes(&filter, path), "{pattern} {path}");
        }
        for path in others {
            assert!(takes(&filter, path), "{pattern} {path}");
        }
    }
}

#[test]
fn names_are_bytes() {
    let filter = filter(&["-caf?", "-ümlaut", "-line*"]);
    assert!(!filter.takes_file(b"x/caf\xe9", None, None, 0));
    assert!(!filter.takes_file("ümlaut".as_bytes(), None, None, 0));
    assert!(!filter.takes_file(b"line\nbreak", None, None, 0));
    assert!(filter.takes_file(b"\xff\xfe", None, None, 0));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let backup = filter(&["+/keep/*.bak", "-*.bak", "+*"]);
    assert!(takes(&backup, "keep/a.bak"));
    assert!(!takes(&backup, "a.bak"));
    let inverse = filter(&["-*.bak", "+/keep/*.bak"]);
    assert!(!takes(&inverse, "keep/a.bak"));
    assert!(!takes(&inverse, "a.txt"), "nothing includes it");
    assert!(takes(&filter(&["-*.bak"]), "a.txt"));
}

#[test]
fn a_directory_in_which_nothing_is_taken_is_not_entered() {
    for (rules, entered, others) in [
        (
            &["-cache/"][..],
            &["x", "cachex"][..],
            &["cache", "x/cache", "cache/y"][..],
        ),
        (&["-/cache/**"], &["x/cache"], &["cache", "cache/y"]),
        (&["+/a/b/*.jpg"], &["a", "a/b"], &["b", "a/c", "a/b/c"]),
        (&["+/a/b/"], &["a", "a/b", "a/b/c"], &["b", "a/c"]),
        (&["+*.jpg"], &["a", "a/b"], &[]),
        (
            &["+/cache/keep", "-cache/"],
            &["cache"],
            &["x/cache", "cache/y"],
        ),
        (&["-cache/", "+/cache/keep"], &[], &["cache"]),
        (&["+/a/**", "-*"], &["a", "a/b"], &["b"]),
        (&["+/{a,b}/x", "-*"], &["a", "b"], &["c", "a/b"]),
        (&["+/{a/b,c}/x", "-*"], &["a", "a/b", "c", "d"], &[]),
    ] {
        let filter = filter(rules);
        for path in entered {
            assert!(filter.enters(path.as_bytes()), "{rules:?} {path}");
        }
        for path in others {
            assert!(!filter.enters(path.as_bytes()), "{rules:?} {path}");
        }
    }
}

#[test]
fn sizes_and_ages_are_bounded() {
    let at = |unix_s| {
        Some(ModifiedTime {
            unix_s,
            precision: TimePrecision::Second,
        })
    };
    let filter = |bounds| Filter::new(Vec::new(), bounds).expect("a filter");
    let sizes = filter(Bounds {
        size_min: Some(ByteCount::new(5)),
        size_max: Some(ByteCount::new(7)),
        ..Bounds::default()
    });
    let taken = [4, 5, 7, 8].map(|size| sizes.takes_file(b"a", Some(size), None, 0));
    assert_eq!(taken, [false, true, true, false]);
    assert!(!sizes.takes_file(b"a", None, None, 0), "nobody knows");
    let ages = filter(Bounds {
        age_min: Some(Duration::from_secs(10)),
        age_max: Some(Duration::from_secs(20)),
        ..Bounds::default()
    });
    let taken = [91, 90, 80, 79, 200].map(|unix_s| ages.takes_file(b"a", None, at(unix_s), 100));
    assert_eq!(taken, [false, true, true, false, false]);
    assert!(!ages.takes_file(b"a", None, None, 100), "nobody knows");
    let extreme = [i64::MIN, i64::MAX].map(|unix_s| ages.takes_file(b"a", None, at(unix_s), -1));
    assert_eq!(extreme, [false, false]);
}

#[test]
fn a_file_of_rules_is_read_by_lines() {
    let text = b"# what we keep\n+ /keep/*.bak\r\n\n  - *.bak\n-\t/cache/\n";
    let filter = Filter::new(Rule::read_lines(text).expect("rules"), Bounds::default());
    let filter = filter.expect("a filter");
    assert!(takes(&filter, "keep/a.bak"));
    assert!(!takes(&filter, "a.bak"));
    assert!(!takes(&filter, "cache/a"));
    assert!(takes(&filter, "a"), "a line that takes leaves nothing out");
}

#[test]
fn a_wrong_line_is_named() {
    for (text, line, column, says) in [
        (&b"+ a\nb\n"[..], 2, 1, "begins with +"),
        (b"  * a", 1, 3, "begins with +"),
        (b"+a", 1, 2, "a space"),
        (b"# x\n\n-  a**b", 3, 4, "alone between slashes"),
        (b"- ", 1, 2, "a space"),
        (b"- [a", 1, 3, "unclosed"),
        (b"- {{x}}", 1, 3, "regular expressions"),
        (b"- caf\xe9", 1, 6, "UTF-8"),
    ] {
        let error = Rule::read_lines(text).expect_err("wrong").to_string();
        let place = format!("line {line}, column {column}: ");
        assert!(error.starts_with(&place) && error.contains(says), "{error}");
    }
}

#[test]
fn a_pattern_that_would_mean_something_else_is_refused() {
    for pattern in [
        "", "a**", "**a", "a//b", "./a", "a/..", "[ä]", "[+-9]x", "a[/]b", "[a", "{a", "a}",
        "[]-a]", "[z-a]", "\\",
    ] {
        assert!(Rule::include(pattern).is_err(), "{pattern}");
    }
    assert!(Rule::include(&"a".repeat(5_000)).is_err());
}

#[test]
fn rules_have_a_bound() {
    let rule = Rule::exclude("a").expect("a pattern");
    let many = vec![rule; RULES_MAX + 1];
    let refused = Filter::new(many, Bounds::default());
    assert_eq!(refused.err(), Some(FilterError::TooMany));
    let text = "- a\n".repeat(RULES_MAX + 1);
    let refused = Rule::read_lines(text.as_bytes()).expect_err("too many");
    assert!(refused.to_string().starts_with("line 10001, column 1"));
}

/// Generates paths from a small set of names, so that patterns match the paths often.
fn path() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(select(vec!["a", "b", "ab", "ba"]), 1..5)
}

fn pattern() -> impl Strategy<Value = String> {
    let name = select(vec![
        "a", "b", "ab", "*", "?", "a*", "*b", "**", "[!a]", "[ab]b", "{a,ba}", "{a,}b",
    ]);
    let names = prop::collection::vec(name, 1..4);
    (any::<bool>(), names, any::<bool>()).prop_map(|(is_anchored, names, is_directory)| {
        let slash = |it| if it { "/" } else { "" };
        format!(
            "{}{}{}",
            slash(is_anchored),
            names.join("/"),
            slash(is_directory)
        )
    })
}

fn rules() -> impl Strategy<Value = Vec<(bool, bool, String)>> {
    prop::collection::vec((any::<bool>(), any::<bool>(), pattern()), 0..5)
}

fn read(rules: &[(bool, bool, String)]) -> Filter {
    let rules = rules.iter().map(|(takes, is_exclusive, pattern)| Rule {
        takes: *takes,
        is_exclusive: *takes && *is_exclusive,
        pattern: Pattern::read(pattern).expect("a pattern"),
    });
    Filter::new(rules.collect(), Bounds::default()).expect("a filter")
}

/// Returns whether a pattern matches a path. This simple reference implementation compares one name
/// after another.
fn means(pattern: &str, path: &[&str]) -> bool {
    let (pattern, is_anchored) = match pattern.strip_prefix('/') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let mut names: Vec<&str> = pattern
        .strip_suffix('/')
        .unwrap_or(pattern)
        .split('/')
        .collect();
    if pattern.ends_with('/') {
        names.push("**");
    }
    if !is_anchored {
        names.insert(0, "**");
    }
    names_match(&names, path)
}

fn names_match(names: &[&str], path: &[&str]) -> bool {
    match (names, path) {
        ([], path) => path.is_empty(),
        // `**` at the end requires a name.
        (["**"], path) => !path.is_empty(),
        (["**", rest @ ..], path) => (0..=path.len()).any(|at| names_match(rest, &path[at..])),
        (_, []) => false,
        ([name, names @ ..], [first, path @ ..]) => {
            let matches = match *name {
                "*" => true,
                "?" => first.len() == 1,
                "a*" => first.starts_with('a'),
                "*b" => first.ends_with('b'),
                "[!a]" => first.len() == 1 && *first != "a",
                "[ab]b" => first.len() == 2 && first.ends_with('b'),
                "{a,ba}" => matches!(*first, "a" | "ba"),
                "{a,}b" => matches!(*first, "ab" | "b"),
                plain => plain == *first,
            };
            matches && names_match(names, path)
        }
    }
}

proptest! {
    #[test]
    fn the_first_match_decides_whatever_the_rules(rules in rules(), path in path()) {
        let filter = read(&rules);
        let first = rules.iter().find(|(_, _, pattern)| means(pattern, &path));
        let is_exclusive = rules.iter().any(|(takes, is_exclusive, _)| *takes && *is_exclusive);
        let expected = first.map_or(!is_exclusive, |(takes, ..)| *takes);
        prop_assert_eq!(takes(&filter, &path.join("/")), expected);
    }

    #[test]
    fn a_file_that_is_taken_is_found(rules in rules(), path in path()) {
        let filter = read(&rules);
        if !takes(&filter, &path.join("/")) {
            return Ok(());
        }
        for depth in 1..path.len() {
            let directory = path[..depth].join("/");
            prop_assert!(filter.enters(directory.as_bytes()), "{}", directory);
        }
    }

    #[test]
    fn no_pattern_and_no_file_of_rules_panics(text in any::<Vec<u8>>(), pattern in any::<String>()) {
        let _ = Rule::read_lines(&text);
        let _ = Rule::include(&pattern).map(|rule| Filter::new(vec![rule], Bounds::default()));
    }

    #[test]
    fn signs_in_any_order_are_a_pattern_or_an_error(pattern in "[\\[\\]!^*?{},/\\\\a-]{0,10}", path in path()) {
        if let Ok(rule) = Rule::include(&pattern) {
            let filter = Filter::new(vec![rule], Bounds::default()).expect("a filter");
            let path = path.join("/");
            filter.enters(path.as_bytes());
            takes(&filter, &path);
        }
    }
}
