//! Job: its source, its destination, and the options of the copy.

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
    spool_sharing::SpoolSharing,
    web::WebDial,
};

/// A source, a destination, and the options for the copy between them.
#[derive(Debug)]
pub struct Job {
    /// The site of the source.
    pub source: JobSite,
    /// The site of the destination.
    pub destination: JobSite,
    /// Sources and destinations in pairs.
    pub roots: Vec<Root>,
    /// The files, if they were found before. `None` makes the job list its source.
    pub files: Option<Vec<plan::File>>,
    /// Options for the choice of files.
    pub plan: plan::PlanOptions,
    /// Options for the copy of one file.
    pub moving: CopyOptions,
    /// State shared with other jobs that use the same gateway.
    pub sharing: Option<Arc<SpoolSharing>>,
    /// Pool of sessions. `None` gives the job sessions of its own.
    pub session_pool: Option<Arc<SessionPool>>,
    /// Check before each irreversible step. `None` if no other process takes the job over.
    pub fence: Option<Fence>,
}

/// Site of files.
#[derive(Debug)]
pub enum JobSite {
    /// This machine.
    Local,
    /// An FTP server.
    Server(Box<Dial>),
    /// A web server, as a source.
    Web(Box<WebDial>),
}

impl JobSite {
    /// Returns the server and its route, for display. `None` for this machine.
    pub(crate) fn whom(&self) -> Option<String> {
        match self {
            Self::Local => None,
            Self::Server(dial) => Some(dial.whom()),
            Self::Web(dial) => Some(format!("the server {}", dial.server.place())),
        }
    }

    /// Whether a gateway is between this machine and the server.
    pub(crate) fn is_behind_gateway(&self) -> bool {
        matches!(self, Self::Server(dial) if dial.is_behind_gateway())
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
        }
    }
}

/// A file or a directory, and its destination.
#[derive(Debug, Clone)]
pub struct Root {
    /// Path at the source.
    pub source: Vec<u8>,
    /// Path at the destination.
    pub destination: RootTarget,
}

/// Destination of a root.
#[derive(Debug, Clone)]
pub struct RootTarget {
    path: Vec<u8>,
    /// Name for a file within the directory that `path` names. A directory becomes `path` itself.
    name_if_file: Vec<u8>,
    /// Whether `path` is a directory in any case.
    is_directory: bool,
    found_directory: OnceLock<bool>,
    /// Roots of source and destination below which this root was found.
    found_below: Option<(Vec<u8>, Vec<u8>)>,
}

/// Options for the copy of one file.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// Suffix of a file until it is complete. `None` writes it under its final name.
    pub partial_suffix: Option<Vec<u8>>,
    /// Parts on this machine have unpredictable names. Otherwise they are named as at a server.
    pub has_random_parts: bool,
    /// Resumes an interrupted run.
    pub resumes: bool,
    /// Comparison after a file has been copied.
    pub verify: CopyVerification,
    /// Maximum number of bytes a second, over all lanes.
    pub rate_max: Option<RateLimit>,
    /// Treatment of a file that grows during the copy.
    pub growing: GrowthHandling,
}

/// Treatment of a file that grows while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthHandling {
    /// Copies the bytes that the file had at the beginning.
    Snapshot,
    /// Copies until the file has not grown for a while. A server's file is read to its end at that
    /// time.
    Follow,
}

/// Comparison after a file has been copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyVerification {
    /// No comparison.
    None,
    /// Compares the size, and checks that the source is unchanged.
    Size,
    /// Compares hashes of the content that both ends compute. Without such hashes, the content is
    /// read back.
    Hash,
    /// Compares the content, read back from the destination.
    ReadBack,
}

impl RootTarget {
    /// Creates a target that the user has named.
    ///
    /// A directory becomes `path`. A file becomes `path`, or goes into it under its own name if
    /// `path` is a directory or ends in a slash.
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

    /// Returns the path of the root's destination if it is a directory.
    pub fn directory(&self) -> &[u8] {
        &self.path
    }

    /// Whether only the destination can report if `path` is a directory.
    pub fn needs_look(&self) -> bool {
        !self.is_directory && self.found_directory.get().is_none()
    }

    /// Whether the destination has the directory into which the root goes if it is a file.
    pub(crate) fn is_in_found_directory(&self) -> bool {
        self.path.is_empty() || self.found_directory.get() == Some(&true)
    }

    /// Records whether the destination has a directory with this path.
    pub fn found(&self, is_directory: bool) {
        // Two attempts of the same query have the same result.
        let _ = self.found_directory.set(is_directory);
    }

    /// Returns the path of the root's destination if it is a file.
    pub fn file(&self) -> Vec<u8> {
        if self.is_directory || self.found_directory.get() == Some(&true) {
            join(&self.path, &self.name_if_file)
        } else {
            self.path.clone()
        }
    }
}

impl Job {
    /// Returns the source of a file: a path of this machine or a URL.
    pub fn source(&self, root: usize, below: &plan::RelativePath) -> Location {
        self.source.location(self.source_path(root, below))
    }

    /// Returns the destination of a file: a path of this machine or a URL.
    pub fn destination(&self, root: usize, below: &plan::RelativePath) -> Location {
        let path = self.destination_path(root, below);
        self.destination.location(path)
    }

    /// Returns the user's paths of sources and of destinations. No link below them is followed.
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

    /// Reduces the job to these files, each given by its root and its path below that root.
    ///
    /// # Panics
    /// If the job has no such root.
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

    /// Returns the names that incomplete files may have at the destination, for parts with this
    /// suffix.
    ///
    /// A root that is a file may go into a directory with the root's name, or become that name. The
    /// result contains both.
    ///
    /// # Panics
    /// If the job has no such root.
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

    /// Returns the source's path of a file or directory below a root.
    pub fn source_path(&self, root: usize, below: &plan::RelativePath) -> Vec<u8> {
        let root = &self.roots[root].source;
        below
            .names()
            .iter()
            .fold(root.clone(), |path, name| join(&path, name))
    }

    /// Returns the destination's path of a file or directory below a root.
    ///
    /// The root is a directory, or the file itself.
    pub fn destination_path(&self, root: usize, below: &plan::RelativePath) -> Vec<u8> {
        let target = &self.roots[root].destination;
        if below.names().is_empty() {
            return target.file();
        }
        let names = below.names().iter();
        names.fold(target.directory().to_vec(), |path, name| join(&path, name))
    }

    /// Returns the destination's path of a directory.
    pub fn destination_directory(&self, directory: &plan::Directory) -> Vec<u8> {
        let path = self.roots[directory.root].destination.directory().to_vec();
        let names = directory.path.names().iter();
        names.fold(path, |path, name| join(&path, name))
    }
}

impl CopyOptions {
    /// Returns the name of an incomplete file at a server: its name, eight digits that represent
    /// its source, and the suffix.
    ///
    /// No other file has this name, and no part of another source. The journal identifies parts of
    /// this machine by such a name, too.
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
