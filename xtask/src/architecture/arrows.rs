//! Check of the arrows between crates: compares lines of the document, such as `eval -> probe,
//! link`, with the manifests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};

use super::crates;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Returns complaints about circles, and about arrows in `text` that begin at no crate. Also
/// returns a complaint for each arrow that exists only in `text`, or only in the tree at `root`.
/// The search for circles includes the dependencies of tests and benches.
pub(super) fn complaints(root: &Path, text: &str) -> Result<Vec<String>> {
    let names: BTreeSet<String> = crates(root)?.into_iter().collect();
    let said = said(text, &names);
    let mut complaints = unknown(text, &names);
    let mut all = Arrows::new();
    for name in &names {
        let path = root.join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let manifest = manifest
            .parse::<toml::Table>()
            .with_context(|| path.display().to_string())?;
        let used = dependencies(&manifest, "dependencies", &names);
        let nothing = BTreeSet::new();
        let said = said.get(name).unwrap_or(&nothing);
        for other in used.difference(said) {
            complaints.push(format!("ARCHITECTURE.md lacks the arrow {name} -> {other}"));
        }
        for other in said.difference(&used) {
            complaints.push(format!("the tree lacks the arrow {name} -> {other}"));
        }
        let tested = dependencies(&manifest, "dev-dependencies", &names);
        all.insert(name.clone(), &used | &tested);
    }
    for name in &names {
        if reaches(&all, name, name) {
            complaints.push(format!(
                "{name} reaches itself by its dependencies, those of tests included"
            ));
        }
    }
    Ok(complaints)
}

/// Parses the arrows in the indented lines of `text`.
fn said(text: &str, names: &BTreeSet<String>) -> Arrows {
    let mut arrows = Arrows::new();
    for line in text.lines().filter(|line| line.starts_with("    ")) {
        let Some((from, to)) = line.split_once("->") else {
            continue;
        };
        let words = |text: &str| -> BTreeSet<String> {
            let words = text.split([' ', ',', ';']).map(str::to_owned);
            words.filter(|word| names.contains(word)).collect()
        };
        for name in words(from) {
            arrows.entry(name).or_default().extend(words(to));
        }
    }
    arrows
}

/// Returns the arrows in `text` whose start is not a crate.
fn unknown(text: &str, names: &BTreeSet<String>) -> Vec<String> {
    let arrows = text.lines().filter(|line| line.starts_with("    "));
    let from = arrows.filter_map(|line| Some(line.split_once(" -> ")?.0.trim()));
    let unknown = from.filter(|name| !name.contains(' ') && !names.contains(*name));
    unknown
        .map(|name| format!("ARCHITECTURE.md has an arrow from {name}: no such crate"))
        .collect()
}

fn dependencies(manifest: &toml::Table, kind: &str, names: &BTreeSet<String>) -> BTreeSet<String> {
    let table = manifest.get(kind).and_then(toml::Value::as_table);
    let keys = table.into_iter().flat_map(toml::Table::keys);
    keys.filter(|key| names.contains(*key)).cloned().collect()
}

/// Returns whether a path of one or more arrows leads from `from` to `to`.
fn reaches(arrows: &Arrows, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut left: Vec<&str> = vec![from];
    while let Some(name) = left.pop() {
        for next in arrows.get(name).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                left.push(next);
            }
        }
    }
    false
}
