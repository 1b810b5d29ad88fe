//! Check of the code map, a table that describes modules of each crate.
//!
//! Every module in the map must exist. The map must contain every top-level module of a crate.

use std::{collections::BTreeSet, path::Path};

use anyhow::Result;

use super::{children, crates};

/// Returns the differences between the map in `text` and the tree at `root`.
pub(super) fn complaints(root: &Path, text: &str) -> Result<Vec<String>> {
    let rows = rows(text);
    let crates = crates(root)?;
    let named: BTreeSet<&String> = rows.iter().map(|row| &row.crate_name).collect();
    let gone = named
        .into_iter()
        .filter(|name| !name.is_empty() && !crates.contains(name));
    let mut complaints: Vec<String> = gone
        .map(|name| format!("the code map has a row for {name}: no such crate"))
        .collect();
    for name in &crates {
        let source = root.join("crates").join(name).join("src");
        let all = modules(&source)?;
        let top: BTreeSet<String> = children(&source)?
            .iter()
            .filter_map(|child| module(child))
            .collect();
        let mine: Vec<&Row<'_>> = rows.iter().filter(|row| row.crate_name == *name).collect();
        if mine.is_empty() {
            complaints.push(format!("the code map has no row for the crate {name}"));
            continue;
        }
        let named: BTreeSet<&str> = mine.iter().flat_map(|row| quoted(row.modules)).collect();
        for module in &named {
            if !top.contains(*module) {
                complaints.push(format!(
                    "the code map names {name}::{module}: no such module"
                ));
            }
        }
        for module in mine.iter().flat_map(|row| quoted(row.job)) {
            if !all.contains(module) && !crates.iter().any(|name| name == module) {
                complaints.push(format!(
                    "the code map names {module} in {name}: no such module"
                ));
            }
        }
        // A row without modules stands for the whole crate.
        if !named.is_empty() {
            let missing = top.iter().filter(|module| !named.contains(module.as_str()));
            complaints.extend(missing.map(|m| format!("the code map lacks {name}::{m}")));
        }
    }
    Ok(complaints)
}

/// A row of the map. Only the first row of a crate contains the crate's name.
struct Row<'a> {
    crate_name: String,
    modules: &'a str,
    job: &'a str,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let map = text.split("## Code map").nth(1).unwrap_or_default();
    let map = map.split("\n## ").next().unwrap_or_default();
    let mut crate_name = String::new();
    let mut rows = Vec::new();
    for line in map.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let ["", name, modules, job, ""] = cells[..] {
            if let Some(name) = quoted(name).next() {
                name.clone_into(&mut crate_name);
            }
            rows.push(Row {
                crate_name: crate_name.clone(),
                modules,
                job,
            });
        }
    }
    rows
}

/// Returns the words in backquotes that can be names of modules or crates.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split('`').skip(1).step_by(2);
    words.filter(|word| {
        word.chars()
            .all(|c| c.is_ascii_lowercase() || "_-".contains(c))
    })
}

/// Returns the names of all modules of a crate, at any depth.
fn modules(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for child in children(folder)? {
        names.extend(module(&child));
        if folder.join(&child).is_dir() {
            names.extend(modules(&folder.join(&child))?);
        }
    }
    Ok(names)
}

/// Returns the name of the module that a file or folder contains. Returns `None` for the root file
/// of a crate or folder, and for tests.
fn module(child: &str) -> Option<String> {
    let name = child.strip_suffix(".rs").unwrap_or(child);
    let is_root = ["lib", "main", "mod"].contains(&name);
    let is_test = name == "tests" || name.ends_with("_tests");
    let is_other_file = name.contains('.');
    (!is_root && !is_test && !is_other_file).then(|| name.to_owned())
}
