//! Checks of the manifests of all crates: metadata for publication, settings inherited from the
//! workspace, and the same Rust version everywhere.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use toml::{Table, Value};

/// Returns every fault of the manifests in the tree at `root`.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in members(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        let folder = path.parent().and_then(Path::file_name);
        let folder = folder
            .context("a manifest has no folder")?
            .to_string_lossy();
        let faults = faults(&read(&path)?, &folder);
        complaints.extend(faults.iter().map(|fault| format!("{name}: {fault}")));
    }
    let rust = rust_version(root)?;
    for (path, needle) in uses(&rust) {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        if !text.contains(&needle) {
            complaints.push(format!(
                "{path}: lacks {needle:?}, Cargo.toml has Rust {rust}"
            ));
        }
    }
    for path in files_with_images(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let faults = faults_of_images(&text, &rust);
        complaints.extend(faults.iter().map(|fault| format!("{name}: {fault}")));
    }
    Ok(complaints)
}

/// Returns the paths of the files that name container images of Rust: the container file, and all
/// workflows.
fn files_with_images(root: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = vec![root.join("Containerfile")];
    for entry in fs::read_dir(root.join(WORKFLOWS)).context(WORKFLOWS)? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Returns the faults of the Rust container images in a file. At least one image must have the
/// version `rust`. Every other image must be [`NEWEST_IMAGE`], which has no version.
fn faults_of_images(text: &str, rust: &str) -> Vec<String> {
    let current = image(rust);
    let words = text.split(|c: char| c.is_whitespace() || "\"'".contains(c));
    let images = words.filter(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name.len() > "rust:".len() && name.starts_with("rust:")
    });
    let (is_newest, images): (Vec<_>, Vec<_>) = images.partition(|it| *it == NEWEST_IMAGE);
    let others = images.iter().filter(|it| **it != current);
    let mut faults: Vec<_> = others
        .map(|it| format!("has the image {it}, needs {current}"))
        .collect();
    if images.is_empty() {
        let newest = is_newest.len();
        faults.push(format!(
            "lacks the image {current}, has {newest} without a version"
        ));
    }
    faults
}

/// Returns the image of a version of Rust.
fn image(rust: &str) -> String {
    format!("docker.io/library/rust:{rust}-bookworm")
}

/// Returns the paths of the manifests of the workspace's crates.
fn members(root: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = vec![root.join("xtask")];
    for entry in fs::read_dir(root.join("crates")).context("crates")? {
        folders.push(entry?.path());
    }
    folders.sort();
    let manifests = folders.into_iter().map(|folder| folder.join("Cargo.toml"));
    Ok(manifests.collect())
}

fn read(path: &Path) -> Result<Table> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.parse().with_context(|| path.display().to_string())
}

/// The oldest supported version of Rust.
fn rust_version(root: &Path) -> Result<String> {
    let manifest = read(&root.join("Cargo.toml"))?;
    let version = at(&manifest, &["workspace", "package", "rust-version"]);
    let version = version.and_then(Value::as_str);
    Ok(version
        .context("no workspace.package.rust-version")?
        .to_owned())
}

/// Files that state the version of Rust, and the text that each file must contain.
fn uses(rust: &str) -> [(&'static str, String); 2] {
    [
        ("rust-toolchain.toml", format!("channel = \"{rust}.")),
        ("fuzz/Cargo.toml", format!("rust-version = \"{rust}\"")),
    ]
}

/// Returns the faults of a manifest. `folder` is the name of the crate's folder.
fn faults(manifest: &Table, folder: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = at(manifest, &["package", "name"]).and_then(Value::as_str);
    let needed = match folder {
        "longhaul" | "xtask" => folder.to_owned(),
        _ => format!("{NAME_PREFIX}{folder}"),
    };
    if name != Some(&needed) {
        faults.push(format!("package.name must be {needed:?}"));
    }
    for path in INHERITED {
        let path = [path, &["workspace"]].concat();
        if at(manifest, &path) != Some(&Value::Boolean(true)) {
            faults.push(format!("lacks {} = true", path.join(".")));
        }
    }
    let description = at(manifest, &["package", "description"]).and_then(Value::as_str);
    if description.is_none_or(str::is_empty) {
        faults.push("has no description".to_owned());
    }
    for key in ["keywords", "categories"] {
        let words = at(manifest, &["package", key]).and_then(Value::as_array);
        let count = words.map_or(0, Vec::len);
        if !(1..=WORDS_MAX).contains(&count) {
            faults.push(format!("has {count} {key}, needs 1 to {WORDS_MAX}"));
        }
    }
    faults
}

/// The value at a path of keys.
fn at<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first);
    rest.iter().fold(value, |value, key| value?.get(key))
}

/// Keys that every crate takes from the workspace.
const INHERITED: [&[&str]; 7] = [
    &["package", "version"],
    &["package", "edition"],
    &["package", "rust-version"],
    &["package", "license"],
    &["package", "publish"],
    &["package", "readme"],
    &["lints"],
];

/// The folder of workflows, from the root of the workspace.
const WORKFLOWS: &str = ".github/workflows";

/// The image without a version, with which a job tests the newest toolchain.
const NEWEST_IMAGE: &str = "docker.io/library/rust:bookworm";

/// Prefix of the package names of library crates, since other projects publish crates called `link`
/// or `ftp`. The library and its folder have the name without the prefix.
const NAME_PREFIX: &str = "longhaul-";

/// Maximum number of keywords and categories that crates.io accepts.
const WORDS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::{complaints, faults, faults_of_images};
    use crate::shell::root;

    #[test]
    fn manifests_of_the_tree_have_no_fault() {
        let complaints = complaints(root()).expect("the tree can be read");
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    #[test]
    fn each_image_of_rust_is_current() {
        let faults = |images: &[&str]| {
            let lines = images
                .iter()
                .map(|it| format!("    container:\n      image: {it}\n"));
            faults_of_images(&lines.collect::<String>(), "1.95")
        };
        let (current, newest) = (
            "docker.io/library/rust:1.95-bookworm",
            "docker.io/library/rust:bookworm",
        );
        assert_eq!(faults(&[current, newest, current]), [""; 0]);
        for old in [
            "docker.io/library/rust:1.94-bookworm",
            "'docker.io/library/rust:1.950-bookworm'",
            "docker.io/library/rust:1.95-trixie",
            "rust:1.95-bookworm",
            "rust:latest",
        ] {
            let found = faults(&[current, old]).join("\n");
            let image = old.trim_matches('\'');
            assert_eq!(found, format!("has the image {image}, needs {current}"));
        }
        assert!(faults(&[newest])[0].starts_with("lacks the image"));
        assert!(faults(&["debian:12"])[0].contains("has 0 without a version"));
    }

    #[test]
    fn missing_metadata_and_settings_are_faults() {
        let complete = "\
[package]
name = \"longhaul-a\"
description = \"A crate\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
publish.workspace = true
readme.workspace = true
keywords = [\"ftp\"]
categories = [\"network-programming\"]

[lints]
workspace = true
";
        let faults = |text: &str| faults(&text.parse().expect("a manifest"), "a");
        assert_eq!(faults(complete), Vec::<String>::new());
        let without = |line: &str| {
            let text = complete.replace(line, "");
            assert_ne!(text, complete, "{line}");
            faults(&text).join(", ")
        };
        for key in ["version", "edition", "license", "publish", "readme"] {
            let fault = without(&format!("\n{key}.workspace = true"));
            assert_eq!(fault, format!("lacks package.{key}.workspace = true"));
        }
        assert_eq!(
            without("name = \"longhaul-a\"\n"),
            "package.name must be \"longhaul-a\""
        );
        assert_eq!(
            without("[lints]\nworkspace = true\n"),
            "lacks lints.workspace = true"
        );
        assert_eq!(without("description = \"A crate\"\n"), "has no description");
        assert!(without("keywords = [\"ftp\"]\n").contains("0 keywords"));
        let many = complete.replace("\"ftp\"", "\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"");
        assert!(faults(&many)[0].contains("has 6 keywords"));
    }
}
