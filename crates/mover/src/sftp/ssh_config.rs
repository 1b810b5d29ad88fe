//! Configuration files for OpenSSH: `~/.ssh/config` and `/etc/ssh/ssh_config`.
//!
//! The parser evaluates the keywords that the mover needs. It ignores other keywords and invalid
//! lines. The first value of a keyword applies, as in OpenSSH. `Match` is evaluated for `all`,
//! `host`, `originalhost` and `user`. Sections with other conditions never apply. In particular,
//! the mover runs no commands from the file.

use std::{
    fs::File,
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
};

/// Settings of OpenSSH for all hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshConfig {
    home: PathBuf,
    agent: Option<PathBuf>,
    local_user: Option<String>,
    lines: Vec<Line>,
}

/// Settings of OpenSSH for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// Host name or IP address to which to connect.
    pub host: String,
    /// User name. `None` if the settings contain none.
    pub user: Option<String>,
    /// TCP port. `None` if the settings contain none.
    pub port: Option<u16>,
    /// Files with private keys. If the settings name none, these are the usual files in `~/.ssh`.
    pub identity_files: Vec<PathBuf>,
    /// Whether only the keys in `identity_files` may be offered.
    pub has_only_identity_files: bool,
    /// Socket of the agent. `None` if there is no agent.
    pub agent: Option<PathBuf>,
    /// Files of known hosts: first the user's files, and then the system's files.
    pub known_hosts: Vec<PathBuf>,
    /// Name of the host in the files of known hosts, if it differs from `host`.
    pub host_key_alias: Option<String>,
    /// Whether keys of unknown hosts are trusted (`accept-new`). A changed key is never trusted.
    pub accepts_new_keys: bool,
    /// Whether the settings require another host or a command for the connection (`ProxyJump`,
    /// `ProxyCommand`). The mover cannot connect in this way.
    pub has_proxy: bool,
}

/// A line of a file: a keyword and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    keyword: String,
    values: Vec<String>,
    /// Sections that contain the line. All of them must apply.
    sections: Vec<Section>,
}

/// Condition of the lines that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Section {
    /// `Host` with patterns for the host of the URL.
    Host(Vec<String>),
    /// `Match` with conditions: a name and a list of patterns.
    Match(Vec<(String, String)>),
    /// `Match` with a condition that the mover does not evaluate.
    Never,
}

impl SshConfig {
    /// Reads `~/.ssh/config` and `/etc/ssh/ssh_config`. Skips missing files. `home` is the home
    /// directory, `agent` is the value of `SSH_AUTH_SOCK`, and `local_user` is the user on this
    /// machine.
    ///
    /// # Errors
    /// A sentence about a file that exists and cannot be read.
    pub fn read(
        home: &Path,
        agent: Option<PathBuf>,
        local_user: Option<String>,
    ) -> Result<Self, String> {
        let mut config = Self {
            home: home.to_owned(),
            agent,
            local_user,
            lines: Vec::new(),
        };
        let folder = home.join(".ssh");
        config.read_file(&folder.join("config"), &folder, &[], 0)?;
        let folder = Path::new("/etc/ssh");
        config.read_file(&folder.join("ssh_config"), folder, &[], 0)?;
        Ok(config)
    }

    fn read_file(
        &mut self,
        path: &Path,
        folder: &Path,
        outer: &[Section],
        depth: usize,
    ) -> Result<(), String> {
        let failed = |error: io::Error| format!("{} cannot be read: {error}", path.display());
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let mut text = Vec::new();
        let read = file.take(FILE_MAX_BYTES).read_to_end(&mut text);
        read.map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        self.parse(&text, folder, outer, depth)
    }

    fn parse(
        &mut self,
        text: &str,
        folder: &Path,
        outer: &[Section],
        depth: usize,
    ) -> Result<(), String> {
        let mut section: Option<Section> = None;
        for line in text.lines() {
            let Some((keyword, values)) = split_line(line) else {
                continue;
            };
            match keyword.as_str() {
                "host" => section = Some(Section::Host(values)),
                "match" => section = Some(Section::of_match(&values)),
                "include" if depth < DEPTH_MAX => {
                    let sections = inside(outer, section.as_ref());
                    for pattern in values {
                        for path in self.included(&pattern, folder) {
                            self.read_file(&path, folder, &sections, depth + 1)?;
                        }
                    }
                }
                _ if self.lines.len() < LINES_MAX => self.lines.push(Line {
                    sections: inside(outer, section.as_ref()),
                    keyword,
                    values,
                }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the files that an `Include` names, in the order of their names.
    fn included(&self, pattern: &str, folder: &Path) -> Vec<PathBuf> {
        let path = folder.join(self.expand_home(pattern));
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Vec::new();
        };
        let name = name.to_string_lossy().into_owned();
        if !name.contains(['*', '?']) {
            return vec![path];
        }
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let names = entries.map(|it| it.file_name().to_string_lossy().into_owned());
        let is_shown = |it: &String| !it.starts_with('.') && matches(&name, it);
        let mut names: Vec<String> = names.filter(is_shown).take(INCLUDED_MAX).collect();
        names.sort();
        names.iter().map(|it| parent.join(it)).collect()
    }

    /// Returns the settings for a host. `host` is the name in the URL. `user` is the user in the
    /// URL.
    pub fn resolve(&self, host: &str, user: Option<&str>) -> SshHost {
        let mut found = Found::default();
        for line in &self.lines {
            let is_inside = line
                .sections
                .iter()
                .all(|section| section.applies(host, &found, user, self.local_user.as_deref()));
            if is_inside {
                found.take(&line.keyword, &line.values);
            }
        }
        let target = found.host_name.clone().unwrap_or_else(|| host.to_owned());
        let target = target.replace("%h", host).replace("%%", "%");
        let user = user.map(str::to_owned).or(found.user.clone());
        let tokens = Tokens {
            home: &self.home,
            original: host,
            host: &target,
            port: found.port.unwrap_or(22),
            user: user
                .as_deref()
                .or(self.local_user.as_deref())
                .unwrap_or_default(),
            local_user: self.local_user.as_deref().unwrap_or_default(),
        };
        let paths = |values: &[String]| -> Vec<PathBuf> {
            let values = values.iter().filter(|it| !it.eq_ignore_ascii_case("none"));
            values
                .map(|it| self.expand_home(&tokens.expand(it)))
                .collect()
        };
        let usual = |names: &[&str]| -> Vec<PathBuf> {
            names
                .iter()
                .map(|it| self.home.join(".ssh").join(it))
                .collect()
        };
        let identity_files = match &found.identity_files[..] {
            [] => usual(USUAL_KEYS),
            values => paths(values),
        };
        let of_user = found.user_known_hosts.as_deref().map(paths);
        let mut known_hosts = of_user.unwrap_or_else(|| usual(&["known_hosts", "known_hosts2"]));
        let of_system = found.global_known_hosts.as_deref().map(paths);
        known_hosts.extend(of_system.unwrap_or_else(|| {
            vec![
                "/etc/ssh/ssh_known_hosts".into(),
                "/etc/ssh/ssh_known_hosts2".into(),
            ]
        }));
        let agent = match found.identity_agent.as_deref() {
            None | Some("SSH_AUTH_SOCK") => self.agent.clone(),
            Some(none) if none.eq_ignore_ascii_case("none") => None,
            // The value is the name of an environment variable.
            Some(variable) if variable.starts_with('$') => self.agent.clone(),
            Some(path) => Some(self.expand_home(&tokens.expand(path))),
        };
        SshHost {
            identity_files,
            has_only_identity_files: found.has_only_identity_files.unwrap_or(false),
            agent,
            known_hosts,
            host_key_alias: found.host_key_alias.clone(),
            accepts_new_keys: found.accepts_new_keys.unwrap_or(false),
            has_proxy: found.has_proxy.unwrap_or(false),
            port: found.port,
            user: found.user.clone(),
            host: target,
        }
    }

    fn expand_home(&self, path: &str) -> PathBuf {
        match path.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => PathBuf::from(path),
        }
    }
}

/// Values for the tokens in paths, such as `%h`.
struct Tokens<'a> {
    home: &'a Path,
    original: &'a str,
    host: &'a str,
    port: u16,
    user: &'a str,
    local_user: &'a str,
}

impl Tokens<'_> {
    fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                expanded.push(letter);
                continue;
            }
            match letters.next() {
                Some('%') => expanded.push('%'),
                Some('d') => expanded.push_str(&self.home.to_string_lossy()),
                Some('h') => expanded.push_str(self.host),
                Some('n') => expanded.push_str(self.original),
                Some('p') => expanded.push_str(&self.port.to_string()),
                Some('r') => expanded.push_str(self.user),
                Some('u') => expanded.push_str(self.local_user),
                other => {
                    expanded.push('%');
                    expanded.extend(other);
                }
            }
        }
        expanded
    }
}

/// Values that apply to a host. A later value of the same keyword does not replace the first value.
#[derive(Debug, Default)]
struct Found {
    host_name: Option<String>,
    user: Option<String>,
    port: Option<u16>,
    identity_files: Vec<String>,
    has_only_identity_files: Option<bool>,
    identity_agent: Option<String>,
    user_known_hosts: Option<Vec<String>>,
    global_known_hosts: Option<Vec<String>>,
    host_key_alias: Option<String>,
    accepts_new_keys: Option<bool>,
    has_proxy: Option<bool>,
}

impl Found {
    fn take(&mut self, keyword: &str, values: &[String]) {
        let Some(first) = values.first() else {
            return;
        };
        let text = || first.clone();
        match keyword {
            "hostname" => drop(self.host_name.get_or_insert_with(text)),
            "user" => drop(self.user.get_or_insert_with(text)),
            "port" => self.port = self.port.or(first.parse().ok().filter(|it| *it > 0)),
            // The values of all lines apply, not only the value of the first line.
            "identityfile" if self.identity_files.len() < IDENTITY_FILES_MAX => {
                self.identity_files.push(text());
            }
            "identitiesonly" => {
                self.has_only_identity_files.get_or_insert(is_yes(first));
            }
            "identityagent" => drop(self.identity_agent.get_or_insert_with(text)),
            "userknownhostsfile" => {
                self.user_known_hosts.get_or_insert_with(|| values.to_vec());
            }
            "globalknownhostsfile" => {
                self.global_known_hosts
                    .get_or_insert_with(|| values.to_vec());
            }
            "hostkeyalias" => drop(self.host_key_alias.get_or_insert_with(text)),
            "stricthostkeychecking" => {
                // A changed key is refused in any case.
                let values = ["accept-new", "no", "off"];
                let accepts = values.iter().any(|it| first.eq_ignore_ascii_case(it));
                self.accepts_new_keys.get_or_insert(accepts);
            }
            "proxyjump" | "proxycommand" => {
                self.has_proxy
                    .get_or_insert(!first.eq_ignore_ascii_case("none"));
            }
            _ => {}
        }
    }
}

impl Section {
    fn of_match(values: &[String]) -> Self {
        let mut conditions = Vec::new();
        let mut values = values.iter();
        while let Some(name) = values.next() {
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "all" => {}
                "host" | "originalhost" | "user" | "localuser" => match values.next() {
                    Some(patterns) => conditions.push((name, patterns.clone())),
                    None => return Self::Never,
                },
                _ => return Self::Never,
            }
        }
        Self::Match(conditions)
    }

    fn applies(
        &self,
        original: &str,
        found: &Found,
        user: Option<&str>,
        local_user: Option<&str>,
    ) -> bool {
        match self {
            Self::Never => false,
            Self::Host(patterns) => {
                let patterns = patterns.iter().flat_map(|it| it.split(','));
                matches_list(patterns, original)
            }
            Self::Match(conditions) => conditions.iter().all(|(name, patterns)| {
                let value = match name.as_str() {
                    "host" => Some(found.host_name.as_deref().unwrap_or(original)),
                    "originalhost" => Some(original),
                    "user" => user.or(found.user.as_deref()).or(local_user),
                    _ => local_user,
                };
                value.is_some_and(|it| matches_list(patterns.split(','), it))
            }),
        }
    }
}

fn inside(outer: &[Section], section: Option<&Section>) -> Vec<Section> {
    outer.iter().chain(section).cloned().collect()
}

fn is_yes(value: &str) -> bool {
    value.eq_ignore_ascii_case("yes") || value.eq_ignore_ascii_case("true")
}

/// Splits a line into its keyword in lower case and its values. Returns `None` for empty lines and
/// comments.
fn split_line(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|it: char| it.is_whitespace() || it == '=');
    let (keyword, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    let mut values = Vec::new();
    let mut rest = rest.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (value, behind) = match rest.strip_prefix('"') {
            // OpenSSH refuses a line without the second quote.
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        values.push(value.to_owned());
        rest = behind.trim_start();
    }
    Some((keyword.to_ascii_lowercase(), values))
}

/// Returns whether a list of patterns matches a text. If a negated pattern matches the text, the
/// result is false.
fn matches_list<'a>(patterns: impl Iterator<Item = &'a str>, text: &str) -> bool {
    let mut has_match = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if matches(negated, text) => return false,
            Some(_) => {}
            None => has_match |= matches(pattern, text),
        }
    }
    has_match
}

/// Returns whether a pattern with `*` and `?` matches a text. The comparison ignores case.
fn matches(pattern: &str, text: &str) -> bool {
    ssh::matches_wildcards(pattern.as_bytes(), text.as_bytes())
}

/// Names of the usual key files in `~/.ssh`, in the order of OpenSSH.
const USUAL_KEYS: &[&str] = &[
    "id_rsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
];

/// Maximum depth of `Include`.
const DEPTH_MAX: usize = 16;

/// Maximum number of files of one pattern in `Include`.
const INCLUDED_MAX: usize = 256;

/// Maximum number of lines of all files.
const LINES_MAX: usize = 65_536;

/// Maximum number of key files of a host.
const IDENTITY_FILES_MAX: usize = 100;

/// Maximum length of a file in bytes.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(text: &str) -> SshConfig {
        let mut config = SshConfig {
            home: "/home/me".into(),
            agent: Some("/run/agent".into()),
            local_user: Some("me".to_owned()),
            lines: Vec::new(),
        };
        config
            .parse(text, Path::new("/home/me/.ssh"), &[], 0)
            .expect("no file is read");
        config
    }

    const TEXT: &str = r#"
# Values before the first section apply to all hosts.
IdentityFile ~/.ssh/all
Host files
    HostName = files.example.com
    User "file owner"
    Port 2222
    IdentityFile "~/.ssh/key of %r"
    UserKnownHostsFile ~/.ssh/known_files /etc/known
    StrictHostKeyChecking accept-new
    IdentitiesOnly yes   # only these

Host *.internal !bad.internal
    User internal
    HostKeyAlias inner
    StrictHostKeyChecking no
Match host files.example.com user "file owner"
    IdentityAgent none
Match exec "rm -rf /"
    User nobody
Host *
    User last
    Port 22
    HostName %h.domain
"#;

    #[test]
    fn the_first_value_that_applies_to_a_host_counts() {
        let config = config(TEXT);
        let files = config.resolve("files", None);
        assert_eq!(files.host, "files.example.com");
        assert_eq!(
            (files.user.as_deref(), files.port),
            (Some("file owner"), Some(2222))
        );
        let keys = ["/home/me/.ssh/all", "/home/me/.ssh/key of file owner"].map(PathBuf::from);
        assert_eq!(files.identity_files, keys);
        assert!(files.has_only_identity_files && files.accepts_new_keys);
        assert_eq!(
            files.known_hosts[..2],
            ["/home/me/.ssh/known_files", "/etc/known"].map(PathBuf::from)
        );
        assert_eq!(files.agent, None);
        let inner = config.resolve("a.internal", Some("root"));
        assert_eq!(inner.host, "a.internal.domain");
        assert_eq!(inner.user.as_deref(), Some("internal"));
        assert_eq!(inner.host_key_alias.as_deref(), Some("inner"));
        assert!(inner.accepts_new_keys);
        assert_eq!(inner.agent, Some("/run/agent".into()));
        let bad = config.resolve("bad.internal", None);
        assert_eq!(bad.user.as_deref(), Some("last"));
        assert!(!bad.accepts_new_keys && !bad.has_proxy);
    }

    #[test]
    fn without_settings_the_usual_files_count() {
        let host = config("").resolve("Files", None);
        assert_eq!(
            (host.host.as_str(), host.user, host.port),
            ("Files", None, None)
        );
        assert!(
            host.identity_files
                .contains(&"/home/me/.ssh/id_ed25519".into())
        );
        assert_eq!(host.known_hosts[0], Path::new("/home/me/.ssh/known_hosts"));
        assert!(!host.accepts_new_keys && !host.has_only_identity_files);
    }

    #[test]
    fn a_proxy_is_reported() {
        let config = config("Host a\nProxyJump none\nHost *\nProxyJump jump.example\n");
        assert!(!config.resolve("a", None).has_proxy);
        assert!(config.resolve("b", None).has_proxy);
    }

    #[test]
    fn included_files_apply_inside_their_section() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join(".ssh");
        std::fs::create_dir_all(folder.join("conf.d")).expect("a folder");
        let write =
            |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
        write(
            "config",
            "Host a*\nInclude conf.d/*.conf missing\nUser outer\nInclude config\n",
        );
        write("conf.d/1.conf", "User one\nHost ab\nPort 1\n");
        write("conf.d/2.conf", "User two\nHost x\nPort 2\n");
        let config = SshConfig::read(home.path(), None, None).expect("readable");
        assert_eq!(config.resolve("ab", None).user.as_deref(), Some("one"));
        assert_eq!(config.resolve("ab", None).port, Some(1));
        assert_eq!(config.resolve("ac", None).port, None);
        assert_eq!(config.resolve("x", None).port, None);
        assert_eq!(config.resolve("x", None).user, None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_has_settings(text: String, host: String) {
            let _ = config(&text).resolve(&host, None);
        }

        // The values contain no slash. Otherwise `Include` would read files of this machine.
        #[test]
        fn arbitrary_lines_have_settings(
            lines in prop::collection::vec(
                (
                    prop::sample::select(vec![
                        "Host", "Match", "Include", "HostName", "User", "Port", "IdentityFile",
                        "StrictHostKeyChecking", "IdentityAgent", "all", "host",
                    ]),
                    "[ =\t\"*?!%a-z0-9#,]{0,20}",
                ),
                0..20,
            ),
            host in "[a-z.%]{0,8}",
        ) {
            let text: Vec<String> = lines.iter().map(|(word, rest)| format!("{word} {rest}")).collect();
            let _ = config(&text.join("\n")).resolve(&host, Some("u"));
        }

        #[test]
        fn a_value_is_read_as_it_is_written(value in "[a-z0-9./ -]{1,20}") {
            let text = format!("Host h\nUser \"{value}\"");
            let user = config(&text).resolve("h", None).user;
            prop_assert_eq!(user, Some(value));
        }
    }
}
