//! Check that no two public types of the workspace have the same name. A name then denotes one type
//! everywhere.
//!
//! Test modules and binaries do not count.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use syn::{Ident, Item, Visibility};

use super::{children, crates};

/// For each public type name, the paths of the files that declare it. The paths are relative to the
/// root of the tree.
type Declarations = BTreeMap<String, Vec<String>>;

/// Returns a complaint for each name that several public types of the tree at `root` share.
pub(super) fn complaints(root: &Path) -> Result<Vec<String>> {
    let mut declarations = Declarations::new();
    for name in crates(root)? {
        read(root, &format!("crates/{name}/src"), &mut declarations)?;
    }
    let shared = declarations.iter().filter(|(_, files)| files.len() > 1);
    Ok(shared
        .map(|(name, files)| format!("public types share the name {name}: {}", files.join(", ")))
        .collect())
}

/// Adds the public types in a folder, whose path is relative to `root`.
fn read(root: &Path, folder: &str, declarations: &mut Declarations) -> Result<()> {
    for child in children(&root.join(folder))? {
        let name = child.strip_suffix(".rs").unwrap_or(&child);
        if ["tests", "bin", "main"].contains(&name) || name.ends_with("_tests") {
            continue;
        }
        let path = format!("{folder}/{child}");
        if root.join(&path).is_dir() {
            read(root, &path, declarations)?;
        } else if child.ends_with(".rs") {
            let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
            let file = syn::parse_file(&text).with_context(|| path.clone())?;
            for name in file.items.iter().filter_map(public_type) {
                let files = declarations.entry(name.to_string()).or_default();
                files.push(path.clone());
            }
        }
    }
    Ok(())
}

/// Returns the name of a public type. Returns `None` for every other item.
fn public_type(item: &Item) -> Option<&Ident> {
    let (visibility, name) = match item {
        Item::Struct(it) => (&it.vis, &it.ident),
        Item::Enum(it) => (&it.vis, &it.ident),
        Item::Union(it) => (&it.vis, &it.ident),
        Item::Trait(it) => (&it.vis, &it.ident),
        Item::Type(it) => (&it.vis, &it.ident),
        _ => return None,
    };
    matches!(visibility, Visibility::Public(_)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_types_count_and_all_other_items_do_not() {
        for (code, expected) in [
            ("pub struct A;", Some("A")),
            ("pub enum A {}", Some("A")),
            ("pub trait A {}", Some("A")),
            ("pub type A = u8;", Some("A")),
            ("struct A;", None),
            ("pub(crate) struct A;", None),
            ("pub fn a() {}", None),
        ] {
            let item: Item = syn::parse_str(code).expect("Rust");
            let name = public_type(&item).map(ToString::to_string);
            assert_eq!(name.as_deref(), expected, "{code}");
        }
    }

    #[test]
    fn two_types_of_one_name_are_named_with_their_files() {
        let root = tempfile::tempdir().expect("a folder");
        for (path, code) in [
            ("crates/a/src/lib.rs", "pub struct Page;"),
            ("crates/b/src/page.rs", "pub struct Page; pub struct Other;"),
            ("crates/b/src/tests.rs", "pub struct Other;"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            fs::write(path, code).expect("room");
        }
        let expected =
            "public types share the name Page: crates/a/src/lib.rs, crates/b/src/page.rs";
        assert_eq!(complaints(root.path()).expect("readable"), [expected]);
    }
}
