//! Job: a source, a destination, and the options of the copy.

use std::sync::{Arc, OnceLock};

pub use crate::plan::RESUME_LEAST;
use crate::{
    fence::Fence,
    limit::RateLimit,
    location::{Location, Remote},
    names::{join, local},
    part_name::{digits_of, part_path},
    plan,
    server::{Dial, SessionPool},
    sftp::SftpDial,
    spool_sharing::SpoolSharing,
    web::WebDial,
};

/// A source, a destination, and the options for the copy.
#[derive(Debug)]
pub struct Job {
    /// Machine or server that has the source.
    pub source: JobSite,
    /// Machine or server that has the destination.
    pub destination: JobSite,
    /// Source paths, each with its destination path.
    pub roots: Vec<Root>,
    /// The files to copy, if another process has already listed them. If `None`, the job lists its
    /// source.
    pub files: Option<Vec<plan::File>>,
    /// Options for the selection of files.
    pub plan: plan::PlanOptions,
    /// Options for copying one file.
    pub moving: CopyOptions,
    /// State that several jobs share because they use the same gateway.
    pub sharing: Option<Arc<SpoolSharing>>,
    /// Pool of FTP sessions. If `None`, the job opens its own sessions.
    pub session_pool: Option<Arc<SessionPool>>,
    /// Check before each irreversible step. `None` if no other process can take over the job.
    pub fence: Option<Fence>,
}

/// Machine or server that has the files of a source or of a destination.
#[derive(Debug)]
pub enum JobSite {
    /// This machine.
    Local,
    /// An FTP server.
    Server(Box<Dial>),
    /// A web server. Only sources can be on a web server.
    Web(Box<WebDial>),
    /// An SFTP server.
    Sftp(Box<SftpDial>),
}

impl JobSite {
    /// Returns the server and the route to it, for display. Returns `None` for this machine.
    pub(crate) fn describe(&self) -> Option<String> {
        match self {
            Self::Local => None,
            Self::Server(dial) => Some(dial.describe()),
            Self::Web(dial) => Some(format!("the server {}", dial.server.place())),
            Self::Sftp(dial) => Some(dial.describe()),
        }
    }

    /// Returns whether the server is reached through a gateway.
    pub(crate) fn is_behind_gateway(&self) -> bool {
        match self {
            Self::Local | Self::Web(_) => false,
            Self::Server(dial) => dial.is_behind_gateway(),
            Self::Sftp(dial) => dial.is_behind_gateway(),
        }
    }

    fn location(&self, path: Vec<u8>) -> Location {
        match self {
            Self::Local => Location::Local(local(&path)),
            Self::Server(dial) => Location::Remote(Remote {
                server: dial.server.clone(),
                path,
            }),
            Self::Web(dial) => Location::Remote(Remote {
                server: dial.server.clone(),
                path,
            }),
            Self::Sftp(dial) => Location::Remote(Remote {
                server: dial.server.clone(),
                path,
            }),
        }
    }
}

/// A source file or source directory, and its destination.
#[derive(Debug, Clone)]
pub struct Root {
    /// Path of the root at the source.
    pub source: Vec<u8>,
    /// Path of the root at the destination.
    pub destination: RootTarget,
}

/// Destination path of a root (a file or directory that the user named).
#[derive(Debug, Clone)]
pub struct RootTarget {
    path: Vec<u8>,
    /// Name of the file within the directory `path`, if the root is a file. If the root is a
    /// directory, `path` is its destination.
    name_if_file: Vec<u8>,
    /// Whether `path` is empty or ends in a slash. Such a path is a directory, so no query of the
    /// destination is needed.
    is_directory: bool,
    found_directory: OnceLock<bool>,
    /// Source path and destination path of the root below which this file was found. `None` if the
    /// user named this file itself.
    found_below: Option<(Vec<u8>, Vec<u8>)>,
}

/// Options for copying one file.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Suffix of the temporary name of an incomplete file. If `None`, the mover writes each file
    /// directly under its final name.
    pub partial_suffix: Option<Vec<u8>>,
    /// Whether part files on this machine have unpredictable names. If false, their names have the
    /// same form as the names of parts at a server.
    pub has_random_parts: bool,
    /// Whether the job resumes an interrupted run.
    pub resumes: bool,
    /// Check of each file after the file was copied.
    pub verify: CopyVerification,
    /// Maximum rate of all lanes together, in bytes per second.
    pub rate_max: Option<RateLimit>,
    /// Handling of a file that grows during the copy.
    pub growing: GrowthHandling,
}

/// Handling of a file that grows while the mover reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthHandling {
    /// Copies the bytes that the file had when the copy began.
    Snapshot,
    /// Copies until a local file has not grown for 10 s. If the source is a server, the file is
    /// read once to its end, because a server's file cannot be followed.
    Follow,
}

/// Check of each file after the file was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyVerification {
    /// No check.
    None,
    /// Compares the sizes, and checks that the source has not changed.
    Size,
    /// Compares hashes that the source and the destination compute. If hashes are unavailable, the
    /// mover reads the content back from the destination and compares it.
    Hash,
    /// Reads the content back from the destination and compares it with the source.
    ReadBack,
}

impl RootTarget {
    /// Creates a destination path that the user has named.
    ///
    /// A directory is copied to `path`. A file is copied into the directory `path` under
    /// `name_if_file`, if `path` is a directory or ends in a slash. Otherwise the file is copied to
    /// `path`.
    pub fn new(path: Vec<u8>, name_if_file: Vec<u8>) -> Self {
        let is_directory = path.is_empty() || path.ends_with(b"/");
        Self {
            path,
            name_if_file,
            is_directory,
            found_directory: OnceLock::new(),
            found_below: None,
        }
    }

    /// Returns the destination path that applies if the root is a directory.
    pub fn directory(&self) -> &[u8] {
        &self.path
    }

    /// Returns whether the destination must be queried to determine if `path` is a directory.
    pub fn needs_look(&self) -> bool {
        !self.is_directory && self.found_directory.get().is_none()
    }

    /// Returns whether the destination already has the directory that will contain the root. The
    /// function is used for a root that is a file.
    pub(crate) fn is_in_found_directory(&self) -> bool {
        self.path.is_empty() || self.found_directory.get() == Some(&true)
    }

    /// Records whether `path` is a directory at the destination.
    pub fn found(&self, is_directory: bool) {
        // The value may be set already. A repeated query has the same result.
        let _ = self.found_directory.set(is_directory);
    }

    /// Returns the destination path that applies if the root is a file.
    pub fn file(&self) -> Vec<u8> {
        if self.is_directory || self.found_directory.get() == Some(&true) {
            join(&self.path, &self.name_if_file)
        } else {
            self.path.clone()
        }
    }
}

impl Job {
    /// Returns the location of a file at the source: a local path or a URL.
    pub fn source(&self, root: usize, below: &plan::RelativePath) -> Location {
        self.source.location(self.source_path(root, below))
    }

    /// Returns the location of a file at the destination: a local path or a URL.
    pub fn destination(&self, root: usize, below: &plan::RelativePath) -> Location {
        let path = self.destination_path(root, below);
        self.destination.location(path)
    }

    /// Returns whether names with line breaks are copied. Such names are copied if the source or
    /// the destination is an SFTP server, and neither of them is an FTP server.
    pub(crate) fn carries_line_breaks(&self) -> bool {
        let ends = [&self.source, &self.destination];
        let has = |is_it: fn(&JobSite) -> bool| ends.iter().any(|it| is_it(it));
        has(|it| matches!(it, JobSite::Sftp(_))) && !has(|it| matches!(it, JobSite::Server(_)))
    }

    /// Returns the source paths and the destination paths that the user has named. Symbolic links
    /// below a source path are followed only if the job follows links.
    pub(crate) fn anchors(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let pairs = self
            .roots
            .iter()
            .map(|root| match &root.destination.found_below {
                Some(pair) => pair.clone(),
                None => (root.source.clone(), root.destination.path.clone()),
            });
        pairs.unzip()
    }

    /// Restricts the job to these files. Each file is given by the number of its root and the path
    /// below that root.
    ///
    /// # Panics
    /// If the job has no root of that number.
    pub fn narrow(&mut self, files: &[(usize, plan::RelativePath)]) {
        let roots = files.iter().map(|(root, below)| {
            let Some(name) = below.names().last() else {
                return self.roots[*root].clone();
            };
            let mut target = RootTarget::new(self.destination_path(*root, below), name.clone());
            let above = &self.roots[*root];
            target.found_below = Some((above.source.clone(), above.destination.path.clone()));
            // The file's destination was checked when the file was found.
            target.found(false);
            Root {
                source: self.source_path(*root, below),
                destination: target,
            }
        });
        self.roots = roots.collect();
    }

    /// Returns the names that incomplete files with this suffix may have at the destination.
    ///
    /// If a root is a file, its destination path may be a directory or the new name of the file.
    /// The result contains the names for both cases.
    ///
    /// # Panics
    /// If the job has no root of that number.
    pub fn parts(&self, files: &[(usize, plan::RelativePath)], suffix: &[u8]) -> Vec<Vec<u8>> {
        let moving = CopyOptions {
            partial_suffix: Some(suffix.to_vec()),
            ..self.moving.clone()
        };
        let mut parts = Vec::new();
        for (root, below) in files {
            let source = self.source_path(*root, below);
            let target = &self.roots[*root].destination;
            if below.names().is_empty() && target.needs_look() {
                let within = join(&target.path, &target.name_if_file);
                parts.push(moving.partial(&source, &within));
            }
            let destination = self.destination_path(*root, below);
            parts.push(moving.partial(&source, &destination));
        }
        parts
    }

    /// Returns the source path of a file or directory below a root.
    pub fn source_path(&self, root: usize, below: &plan::RelativePath) -> Vec<u8> {
        let root = &self.roots[root].source;
        below
            .names()
            .iter()
            .fold(root.clone(), |path, name| join(&path, name))
    }

    /// Returns the destination path of a file or directory below a root.
    ///
    /// The root is a directory that contains the file, or the root is the file itself.
    pub fn destination_path(&self, root: usize, below: &plan::RelativePath) -> Vec<u8> {
        let target = &self.roots[root].destination;
        if below.names().is_empty() {
            return target.file();
        }
        let names = below.names().iter();
        names.fold(target.directory().to_vec(), |path, name| join(&path, name))
    }

    /// Returns the destination path of a directory.
    pub fn destination_directory(&self, directory: &plan::Directory) -> Vec<u8> {
        let path = self.roots[directory.root].destination.directory().to_vec();
        let names = directory.path.names().iter();
        names.fold(path, |path, name| join(&path, name))
    }
}

impl CopyOptions {
    /// Returns the temporary name of an incomplete file at a server. The name consists of the file
    /// name, eight digits that represent the source, and the suffix.
    ///
    /// No other file, and no incomplete file from another source, has this name. The journal also
    /// uses such names as keys of local part files.
    pub fn partial(&self, source: &[u8], destination: &[u8]) -> Vec<u8> {
        let Some(suffix) = &self.partial_suffix else {
            return destination.to_vec();
        };
        part_path(destination, digits_of(source), suffix)
    }
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            partial_suffix: Some(b".part".to_vec()),
            has_random_parts: true,
            resumes: true,
            verify: CopyVerification::Size,
            rate_max: None,
            growing: GrowthHandling::Snapshot,
        }
    }
}
