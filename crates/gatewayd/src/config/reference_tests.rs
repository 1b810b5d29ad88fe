//! Tests of the tables of keys in `docs/configuration.md`. The tables are generated from the types
//! in `file.rs`.
//!
//! Each row has the name, the type and the doc comment of a field. If the comment has a line
//! `Values: ...`, the row shows these values instead of the type. A line `Default: ...` is the
//! default.
//!
//! The tests compare values and defaults with the results of the checks. For each key, a trial
//! reload with another value shows whether the change needs a restart.

mod keys;
mod trial;

use std::{fs, path::PathBuf};

use toml::Table;

use self::{
    keys::{Key, Section, sections},
    trial::{Trial, entry, place},
};

#[test]
fn the_tables_of_the_reference_are_as_the_types_define() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = fs::read_to_string(&path).expect("the page can be read");
    let trial = Trial::new("reference-tables");
    let expected = with_tables(&text, &sections(), &trial);
    if std::env::var_os("LONGHAUL_WRITE_REFERENCE").is_some() {
        fs::write(&path, &expected).expect("the page can be written");
    } else if text != expected {
        let differs = |(a, b): &(&str, &str)| a != b;
        let first = text.lines().zip(expected.lines()).find(differs);
        panic!("docs/configuration.md is outdated: run cargo xtask book --write; {first:?}");
    }
}

#[test]
fn a_stated_default_is_the_value_of_a_missing_key() {
    let trial = Trial::new("reference-defaults");
    let mut count = 0;
    for (key, place) in placed_keys() {
        let Some(literal) = key.default.as_deref().and_then(literal) else {
            continue;
        };
        let stated = trial.config(&[(&place, &literal)]).expect("a valid value");
        let missing = trial.config(&[]).expect("a valid file");
        assert!(stated == missing, "{place} = {literal} is not the default");
        count += 1;
    }
    assert!(count > 20, "{count} defaults are checked");
}

#[test]
fn a_file_without_a_required_key_is_refused() {
    let trial = Trial::new("reference-required");
    for (key, place) in placed_keys().filter(|(key, _)| key.is_required) {
        let mut table = trial.table.clone();
        let (parent, name) = place.rsplit_once('.').expect("a key in a section");
        entry(&mut table, parent).remove(name).expect("it is there");
        let refused = trial.parse(&table).expect_err(&place);
        assert!(refused.contains(&key.name), "{place}: {refused}");
    }
}

#[test]
fn stated_values_are_the_permitted_ones() {
    let trial = Trial::new("reference-values");
    let mut count = 0;
    for (key, place) in placed_keys() {
        let Some(values) = &key.values else { continue };
        let unknown = match values.starts_with("list of") {
            true => "['?']",
            false => "'?'",
        };
        let error = trial.config(&[(&place, unknown)]).expect_err(&place);
        let (_, expected) = error.split_once("expected ").expect("a list of values");
        let permitted: Vec<_> = expected.split('"').skip(1).step_by(2).collect();
        let stated: Vec<_> = values.split('"').skip(1).step_by(2).collect();
        assert_eq!(stated, permitted, "{place}");
        count += 1;
    }
    assert!(count > 10, "{count} keys are checked");
}

/// Returns the page with each table replaced by a newly generated table.
fn with_tables(page: &str, sections: &[Section], trial: &Trial) -> String {
    let mut lines = Vec::new();
    let mut is_in_table = false;
    let mut missing: Vec<_> = sections.iter().map(Section::mark).collect();
    for line in page.lines() {
        is_in_table &= line.starts_with('|');
        if is_in_table {
            continue;
        }
        lines.push(line.to_owned());
        if let Some(section) = sections.iter().find(|it| it.mark() == line) {
            missing.retain(|mark| mark != line);
            lines.extend(match section.path.as_str() {
                "" => section.table_of_sections(),
                _ => section.table_of_keys(trial),
            });
            is_in_table = true;
        } else {
            assert!(!line.starts_with(MARK), "no section has the keys of {line}");
        }
    }
    assert!(
        missing.is_empty(),
        "docs/configuration.md lacks {missing:?}"
    );
    lines.join("\n") + "\n"
}

impl Section {
    /// Returns the marker line before the section's table.
    fn mark(&self) -> String {
        let path = match self.path.as_str() {
            "" => "the file",
            path => path,
        };
        format!("{MARK} {path}, written by cargo xtask book --write -->")
    }

    fn table_of_sections(&self) -> Vec<String> {
        let mut lines = vec![
            "| section | number | meaning |".to_owned(),
            "|---|---|---|".to_owned(),
        ];
        for key in &self.keys {
            let name = match key.type_name.as_str() {
                "any number" => format!("[[{}]]", key.name),
                _ => format!("[{}]", key.name),
            };
            let number = match key.is_required {
                true => "one",
                false => &key.type_name,
            };
            lines.push(format!("| `{name}` | {number} | {} |", key.sentence));
        }
        lines
    }

    fn table_of_keys(&self, trial: &Trial) -> Vec<String> {
        let mut lines = vec![
            "| key | type | default | applied at | meaning |".to_owned(),
            "|---|---|---|---|---|".to_owned(),
        ];
        for key in &self.keys {
            let path = format!("{}.{}", self.path, key.name);
            let default = match key.is_required {
                true => "required",
                false => key.default.as_deref().unwrap_or("none"),
            };
            let type_name = key.values.as_deref().unwrap_or(&key.type_name);
            let applied_at = trial.applied_at(&path);
            let Key { name, sentence, .. } = key;
            lines.push(format!(
                "| `{name}` | {type_name} | {default} | {applied_at} | {sentence} |"
            ));
        }
        lines
    }
}

/// Returns each key of all sections, with its path in the trial's file.
fn placed_keys() -> impl Iterator<Item = (Key, String)> {
    let sections = sections().into_iter().skip(1);
    sections.flat_map(|section| {
        let path = section.path;
        section.keys.into_iter().map(move |key| {
            let place = place(&format!("{path}.{}", key.name));
            (key, place)
        })
    })
}

/// Returns the TOML value at the start of a default's text.
fn literal(default: &str) -> Option<String> {
    let literal = default.strip_prefix('`')?.split('`').next()?;
    let is_value = toml::from_str::<Table>(&format!("x = {literal}")).is_ok();
    is_value.then(|| literal.to_owned())
}

/// Start of the marker line before each table.
const MARK: &str = "<!-- keys of";
