//! A job: what is to be copied, and how.

use std::sync::{Arc, OnceLock};

pub use crate::plan::RESUME_LEAST;
use crate::{
    fence::Fence,
    limit::RateLimit,
    location::{Location, Remote},
    names::{join, local},
    part_name::{digits_of, part_path},
    plan,
    server::{Dial, Kept},
    sharing::Sharing,
    web::WebDial,
};

/// What is to be copied, and how.
#[derive(Debug)]
pub struct Job {
    /// Where the sources are.
    pub source: Site,
    /// Where the destination is.
    pub destination: Site,
    /// Sources and destinations in pairs.
    pub roots: Vec<Root>,
    /// The files, where they were found before; `None`: they are looked for.
    pub files: Option<Vec<plan::File>>,
    /// What is moved and what is kept.
    pub plan: plan::Options,
    /// How files are moved.
    pub moving: Moving,
    /// What other jobs move through the same gateway.
    pub sharing: Option<Arc<Sharing>>,
    /// Where sessions come from and go to; `None`: they are this job's alone.
    pub kept: Option<Arc<Kept>>,
    /// Is asked before each step that cannot be undone. `None`: no other process takes the job over.
    pub fence: Option<Fence>,
}

/// A place with files.
#[derive(Debug)]
pub enum Site {
    /// This machine.
    Local,
    /// An FTP server.
    Server(Box<Dial>),
    /// A web server, as a source.
    Web(Box<WebDial>),
}

impl Site {
    /// The server and the way to it, for people. `None` for this machine.
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

/// A file or directory, and what becomes of it.
#[derive(Debug, Clone)]
pub struct Root {
    /// At the source.
    pub source: Vec<u8>,
    /// At the destination.
    pub destination: Target,
}

/// Where a root goes.
#[derive(Debug, Clone)]
pub struct Target {
    path: Vec<u8>,
    /// A file goes into the directory that `path` names; a directory becomes that one.
    name_if_file: Vec<u8>,
    /// `path` is a directory in any case.
    is_directory: bool,
    found_directory: OnceLock<bool>,
    /// The roots of source and destination below which this one was found.
    found_below: Option<(Vec<u8>, Vec<u8>)>,
}

/// How files are moved.
#[derive(Debug, Clone)]
pub struct Moving {
    /// What a file is called until it is whole; `None`: it has its own name from the beginning.
    pub partial_suffix: Option<Vec<u8>>,
    /// Parts of this machine have names that nobody can foretell. Else they are called as those at a server.
    pub has_random_parts: bool,
    /// Goes on where an earlier run was interrupted.
    pub resumes: bool,
    /// What is compared once a file has been moved.
    pub verify: Verify,
    /// Most bytes a second, over all lanes.
    pub rate_max: Option<RateLimit>,
    /// What is moved of a file that grows meanwhile.
    pub growing: Growing,
}

/// What is moved of a file that grows while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growing {
    /// The bytes that it had at the beginning.
    Snapshot,
    /// All, until it has not grown for a while. A server's file is read to the end that it has then.
    Follow,
}

/// What is compared once a file has been moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Nothing.
    None,
    /// The size, and that the source is still what it was.
    Size,
    /// The content, by hashes that both ends make; read back where they make none.
    Hash,
    /// The content, read back from the destination.
    ReadBack,
}

impl Target {
    /// A target that a user has named: a directory becomes `path`; a file becomes `path`, or goes into it under its own
    /// name if `path` is a directory or ends in a slash.
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

    /// The path of the root's destination if it is a directory.
    pub fn directory(&self) -> &[u8] {
        &self.path
    }

    /// Whether only the destination knows if `path` is a directory.
    pub fn needs_look(&self) -> bool {
        !self.is_directory && self.found_directory.get().is_none()
    }

    /// Whether the destination has the directory in which the root goes if it is a file.
    pub(crate) fn is_in_found_directory(&self) -> bool {
        self.path.is_empty() || self.found_directory.get() == Some(&true)
    }

    /// The destination has, or has not, a directory with this path.
    pub fn found(&self, is_directory: bool) {
        // Two attempts of the same probe see the same.
        let _ = self.found_directory.set(is_directory);
    }

    /// The path of the root's destination if it is a file.
    pub fn file(&self) -> Vec<u8> {
        if self.is_directory || self.found_directory.get() == Some(&true) {
            join(&self.path, &self.name_if_file)
        } else {
            self.path.clone()
        }
    }
}

impl Job {
    /// The source of a file: a path of this machine or a URL.
    pub fn source(&self, root: usize, below: &plan::RelativePath) -> Location {
        self.source.location(self.source_path(root, below))
    }

    /// The destination of a file: a path of this machine or a URL.
    pub fn destination(&self, root: usize, below: &plan::RelativePath) -> Location {
        let path = self.destination_path(root, below);
        self.destination.location(path)
    }

    /// The paths that a user has named, of sources and of destinations: no link below them is followed.
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

    /// Leaves these files alone to be moved, each by its root and its path below that.
    ///
    /// # Panics
    /// If the job has no such root.
    pub fn narrow(&mut self, files: &[(usize, plan::RelativePath)]) {
        let roots = files.iter().map(|(root, below)| {
            let Some(name) = below.names().last() else {
                return self.roots[*root].clone();
            };
            let mut target = Target::new(self.destination_path(*root, below), name.clone());
            let above = &self.roots[*root];
            target.found_below = Some((above.source.clone(), above.destination.path.clone()));
            // What has the file's name was looked at when the file was found.
            target.found(false);
            Root {
                source: self.source_path(*root, below),
                destination: target,
            }
        });
        self.roots = roots.collect();
    }

    /// What files are called at the destination until they are whole, where parts have this suffix. A root that is a file may
    /// go into a directory with the root's name, or become that name: both are told.
    ///
    /// # Panics
    /// If the job has no such root.
    pub fn parts(&self, files: &[(usize, plan::RelativePath)], suffix: &[u8]) -> Vec<Vec<u8>> {
        let moving = Moving {
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

    /// The source's path of something below a root.
    pub fn source_path(&self, root: usize, below: &plan::RelativePath) -> Vec<u8> {
        let root = &self.roots[root].source;
        below
            .names()
            .iter()
            .fold(root.clone(), |path, name| join(&path, name))
    }

    /// The destination's path of something below a root that is a directory, or of the root itself if it is a file.
    pub fn destination_path(&self, root: usize, below: &plan::RelativePath) -> Vec<u8> {
        let target = &self.roots[root].destination;
        if below.names().is_empty() {
            return target.file();
        }
        let names = below.names().iter();
        names.fold(target.directory().to_vec(), |path, name| join(&path, name))
    }

    /// The destination's path of a directory.
    pub fn destination_directory(&self, directory: &plan::Directory) -> Vec<u8> {
        let path = self.roots[directory.root].destination.directory().to_vec();
        let names = directory.path.names().iter();
        names.fold(path, |path, name| join(&path, name))
    }
}

impl Moving {
    /// What a file is called at a server until it is whole: its name, eight digits that stand for its source, and the suffix. No
    /// other file has this name, and a part of another source neither. The journal knows parts of this machine by such a name,
    /// too.
    pub fn partial(&self, source: &[u8], destination: &[u8]) -> Vec<u8> {
        let Some(suffix) = &self.partial_suffix else {
            return destination.to_vec();
        };
        part_path(destination, digits_of(source), suffix)
    }
}

impl Default for Moving {
    fn default() -> Self {
        Self {
            partial_suffix: Some(b".part".to_vec()),
            has_random_parts: true,
            resumes: true,
            verify: Verify::Size,
            rate_max: None,
            growing: Growing::Snapshot,
        }
    }
}
