//! Versions of Longhaul. They consist of three numbers, and are ordered by the rules of Semantic
//! Versioning.
//!
//! Pre-releases are not supported, since Debian packages would sort them differently.

use std::{fmt, fs, path::Path, str::FromStr};

use anyhow::{Context, Result};

/// The version of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Reads the version of the workspace in the folder `root`.
    ///
    /// # Errors
    /// If `Cargo.toml` cannot be read, or contains no valid version.
    pub(crate) fn of_workspace(root: &Path) -> Result<Self> {
        let path = root.join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::in_manifest(&text).with_context(|| path.display().to_string())
    }

    fn in_manifest(text: &str) -> Result<Self> {
        let manifest: toml::Table = text.parse()?;
        let package = manifest.get("workspace").and_then(|it| it.get("package"));
        let version = package.and_then(|it| it.get("version"));
        let version = version.and_then(toml::Value::as_str);
        version.context("no workspace.package.version")?.parse()
    }

    /// Returns the three versions that may follow this one.
    pub(crate) fn successors(self) -> [Self; 3] {
        let Self {
            major,
            minor,
            patch,
        } = self;
        [
            Self {
                patch: patch + 1,
                ..self
            },
            Self {
                major,
                minor: minor + 1,
                patch: 0,
            },
            Self {
                major: major + 1,
                minor: 0,
                patch: 0,
            },
        ]
    }

    /// Returns the name of the git tag for this version.
    pub(crate) fn tag(self) -> String {
        format!("v{self}")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut parts = text.split('.').map(number);
            let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next()??);
            parts.next().is_none().then_some(Self {
                major,
                minor,
                patch,
            })
        };
        parse().with_context(|| format!("{text} is no version such as 0.2.0"))
    }
}

/// Parses decimal digits without a leading zero.
fn number(text: &str) -> Option<u32> {
    let is_canonical = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::Version;

    fn version(text: &str) -> Version {
        text.parse().expect("a version")
    }

    #[test]
    fn version_has_three_numbers_in_their_shortest_form() {
        assert_eq!(version("0.10.2").to_string(), "0.10.2");
        assert_eq!(version("1.0.0").tag(), "v1.0.0");
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "1.2.03",
            "1.2.+3",
            "1.2.-3",
            "1..3",
            "1.2.3-rc.1",
            "1.2.3 ",
            "1.2.4294967296",
        ] {
            let error = text.parse::<Version>().expect_err(text);
            assert!(error.to_string().contains("no version"), "{error}");
        }
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        assert!(version("0.9.0") < version("0.10.0"));
        assert!(version("0.10.0") < version("1.0.0"));
        assert!(version("1.0.1") > version("1.0.0"));
    }

    #[test]
    fn patch_minor_or_major_version_may_follow() {
        let successors = version("0.4.2").successors().map(|it| it.to_string());
        assert_eq!(successors, ["0.4.3", "0.5.0", "1.0.0"]);
    }

    #[test]
    fn version_of_the_workspace_is_read_from_its_table() {
        let text = "[package]\nversion = \"9.9.9\"\n[workspace.package]\nversion = \"0.3.0\"\n";
        let found = Version::in_manifest(text).expect("a version");
        assert_eq!(found, version("0.3.0"));
        assert!(Version::in_manifest("[package]\nversion = \"9.9.9\"\n").is_err());
    }
}
