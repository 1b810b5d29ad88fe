//! Check for import circles within a crate. Sibling modules must not import each other in a circle.
//!
//! A module and its children count as one module, so imports between them form no circle. Test
//! modules do not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use syn::{ItemMod, UseTree, visit::Visit};

use super::{children, crates};

/// Complaints about known circles. These circles may stay until a planned change removes them.
const KNOWN: &[&str] = &[];

/// The names of the modules on the path from the crate root to a module.
type ModulePath = Vec<String>;

/// Returns a complaint for each import circle in the crates of the tree at `root`, except the
/// circles in [`KNOWN`]. Also returns a complaint for each known circle that no longer exists.
pub(super) fn complaints(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for name in crates(root)? {
        let source = root.join("crates").join(&name).join("src");
        let mut modules = BTreeMap::new();
        read(&source, &ModulePath::new(), &mut modules)?;
        for (folder, circle) in circles(&modules) {
            let place: String = folder.iter().map(|part| format!("/{part}")).collect();
            let circle: Vec<_> = circle.iter().map(String::as_str).collect();
            let circle = circle.join(", ");
            complaints.push(format!(
                "crates/{name}/src{place}: {circle} import each other"
            ));
        }
    }
    let is_known = |complaint: &String| KNOWN.contains(&complaint.as_str());
    let gone = KNOWN
        .iter()
        .filter(|known| !complaints.iter().any(|complaint| complaint == *known));
    let gone: Vec<_> = gone
        .map(|known| format!("no longer true, take it out of the known circles: {known}"))
        .collect();
    complaints.retain(|complaint| !is_known(complaint));
    Ok([complaints, gone].concat())
}

/// Reads the files of a folder. Adds, for each module, the paths that its code mentions.
fn read(
    folder: &Path,
    at: &ModulePath,
    modules: &mut BTreeMap<ModulePath, Vec<ModulePath>>,
) -> Result<()> {
    for child in children(folder)? {
        let path = folder.join(&child);
        let name = child.strip_suffix(".rs").unwrap_or(&child);
        if name == "tests" || name.ends_with("_tests") {
            continue;
        }
        let mut module = at.clone();
        if !["lib", "main", "mod"].contains(&name) {
            module.push(name.to_owned());
        }
        if path.is_dir() {
            read(&path, &module, modules)?;
        } else if child.ends_with(".rs") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
            let mut named = Named::default();
            named.visit_file(&file);
            let entry: &mut Vec<ModulePath> = modules.entry(module).or_default();
            entry.extend(named.paths);
        }
    }
    Ok(())
}

/// Visitor that collects the paths in a file.
#[derive(Default)]
struct Named {
    paths: Vec<ModulePath>,
}

impl<'ast> Visit<'ast> for Named {
    /// Visits a module unless it is a test module.
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Ident>()
                    .is_ok_and(|condition| condition == "test")
        };
        if !module.attrs.iter().any(is_test) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_use_tree(&mut self, tree: &'ast UseTree) {
        self.expand(tree, ModulePath::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts = path.segments.iter().map(|part| part.ident.to_string());
        self.paths.push(parts.collect());
        syn::visit::visit_path(self, path);
    }
}

impl Named {
    fn expand(&mut self, tree: &UseTree, mut before: ModulePath) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.expand(&path.tree, before);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.expand(tree, before.clone());
                }
            }
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.paths.push(before);
            }
            UseTree::Rename(rename) => {
                before.push(rename.ident.to_string());
                self.paths.push(before);
            }
            UseTree::Glob(_) => self.paths.push(before),
        }
    }
}

/// Returns the module to which `path` refers in the code of the module `from`. The longest possible
/// prefix of the path names this module.
fn resolve(
    path: &[String],
    from: &ModulePath,
    modules: &BTreeMap<ModulePath, Vec<ModulePath>>,
) -> Option<ModulePath> {
    let (mut at, mut rest) = (from.clone(), path);
    match path.first().map(String::as_str) {
        Some("crate") => {
            at.clear();
            rest = &path[1..];
        }
        Some("self") => rest = &path[1..],
        Some("super") => {
            while rest.first().is_some_and(|part| part == "super") {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        // The name is a child of this module, or it comes from elsewhere.
        _ => {}
    }
    for part in rest {
        at.push(part.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

/// Returns the circles among the children of each module, with the path of the parent module.
fn circles(modules: &BTreeMap<ModulePath, Vec<ModulePath>>) -> Vec<(ModulePath, BTreeSet<String>)> {
    let mut arrows: BTreeMap<ModulePath, BTreeSet<(String, String)>> = BTreeMap::new();
    for (from, paths) in modules {
        for to in paths.iter().filter_map(|path| resolve(path, from, modules)) {
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                let between = arrows.entry(from[..common].to_vec()).or_default();
                between.insert((a.clone(), b.clone()));
            }
        }
    }
    let mut circles = Vec::new();
    for (folder, arrows) in arrows {
        let names: BTreeSet<&String> = arrows.iter().map(|(from, _)| from).collect();
        let mut told = BTreeSet::new();
        for name in names {
            let circle: BTreeSet<String> = reached(&arrows, name)
                .into_iter()
                .filter(|other| reached(&arrows, other).contains(name))
                .collect();
            if !circle.is_empty() && told.insert(circle.clone()) {
                circles.push((folder.clone(), circle));
            }
        }
    }
    circles
}

/// Returns the modules to which a path of one or more arrows leads from `name`.
fn reached(arrows: &BTreeSet<(String, String)>, name: &String) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut left = vec![name];
    while let Some(at) = left.pop() {
        for (_, to) in arrows.iter().filter(|(from, _)| from == at) {
            if seen.insert(to.clone()) {
                left.push(to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> BTreeMap<ModulePath, Vec<ModulePath>> {
        let read = |(module, text): &(&str, &str)| {
            let module: ModulePath = module.split_terminator('/').map(str::to_owned).collect();
            let mut named = Named::default();
            named.visit_file(&syn::parse_file(text).expect("Rust"));
            (module, named.paths)
        };
        files.iter().map(read).collect()
    }

    #[test]
    fn a_circle_of_neighbours_is_found_at_its_level() {
        let modules = modules(&[
            ("", "mod a; mod b;"),
            ("a", "use crate::b::X; mod one; mod two;"),
            ("a/one", "use super::two::Y;"),
            ("a/two", "fn f() { super::one::g() }"),
            ("b", "use super::a::{self, one::Z};"),
        ]);
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(
            circles(&modules),
            [
                (vec![], names(&["a", "b"])),
                (vec!["a".to_owned()], names(&["one", "two"])),
            ]
        );
    }

    #[test]
    fn parents_children_and_tests_make_no_circle() {
        let modules = modules(&[
            (
                "",
                "mod a; use a::X; #[cfg(test)] mod tests { use crate::a::Y; }",
            ),
            ("a", "use crate::Root; mod one; use one::Z;"),
            (
                "a/one",
                "use super::Parent; #[cfg(test)] mod tests { use crate::b::Q; }",
            ),
            ("b", "use crate::a::one::Z;"),
        ]);
        assert_eq!(circles(&modules), []);
    }
}
