//! Examples of Rust code in the documentation of the crates.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Returns whether a Rust file in `folder` contains an example.
pub(super) fn exist(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        let found = if entry.file_type()?.is_dir() {
            exist(&path)?
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            has_example(&text)
        } else {
            false
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a doc comment of `text` contains a code block that rustdoc would compile: a
/// block between fences without the label `text`, or an indented block.
fn has_example(text: &str) -> bool {
    let mut is_in_fence = false;
    let mut is_after_blank = false;
    for line in text.lines() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(doc) = doc else {
            is_in_fence = false;
            is_after_blank = true;
            continue;
        };
        if let Some(label) = doc.trim_start().strip_prefix("```") {
            is_in_fence = !is_in_fence;
            if is_in_fence && label.trim() != "text" {
                return true;
            }
        } else if !is_in_fence && is_after_blank && doc.starts_with("     ") {
            return true;
        }
        is_after_blank = doc.trim().is_empty();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_rustdoc_compiles_are_examples() {
        let examples = [
            "/// ```\n/// assert!(true);\n/// ```\n",
            "    //! ```no_run\n    //! run();\n",
            "/// ```text\n/// a picture\n/// ```\n///\n/// ```rust\n",
            "/// A call:\n///\n///     call();\n",
        ];
        for text in examples {
            assert!(has_example(text), "{text}");
        }
        let others = [
            "/// Returns `a`.\n",
            "/// ```text\n///\n///     indented\n/// ```\n",
            "/// - an item\n///   with a second line\n",
            "// ```\nlet text = \"```\";\n",
        ];
        for text in others {
            assert!(!has_example(text), "{text}");
        }
    }
}
