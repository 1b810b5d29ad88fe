//! Queries of a server about files and directories.

use ftp::{
    client::Reply,
    listing::{EntryKind, ListingEntry, ModifiedTime, read_time},
};

use super::{ServerError, Session, control::PendingReply};
use crate::names::{join, parent};

/// Attributes of one file, as a server has reported them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Size in bytes. `None` if the server does not report it.
    pub size_bytes: Option<u64>,
    /// Time of the last modification. `None` if the server does not report it.
    pub modified: Option<ModifiedTime>,
}

/// Queries about one path. The queries were sent, and their replies have not arrived.
struct StatRequest {
    size: PendingReply,
    modified: PendingReply,
    /// Commands that change into the path and back, to show whether the path is a directory. `None`
    /// if the path is the login directory.
    there_and_back: Option<[PendingReply; 2]>,
}

impl Session {
    /// Returns the size and the modification time of a file, in one round trip. For a missing file,
    /// both values are `None`.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, or if the connection is lost.
    pub async fn stat(&mut self, path: &[u8]) -> Result<Stat, ServerError> {
        let asked = self.ask_facts(path)?;
        self.answered(asked).await
    }

    /// Returns the size and the modification time of an existing file, in one round trip.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, if the connection is lost, or if the server
    /// temporarily refuses a query.
    pub async fn recorded_stat(&mut self, path: &[u8]) -> Result<Stat, ServerError> {
        let asked = self.ask_facts(path)?;
        let mut replies = Vec::new();
        for sent in asked {
            replies.push((sent, self.control.last(sent).await?));
        }
        // Both replies are read first, so that the session stays usable.
        let refused = replies.iter().find(|(_, it)| it.is_temporary());
        if let Some((sent, reply)) = refused {
            return Err(sent.refused(reply.clone()));
        }
        Ok(self.stat_of(&replies[0].1, &replies[1].1))
    }

    /// Queues queries for the size and the modification time of a file. The queries are sent when a
    /// caller next waits for a reply.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent.
    pub(super) fn ask_facts(&mut self, path: &[u8]) -> Result<[PendingReply; 2], ServerError> {
        // A server without FEAT may still support both commands. If it refuses a command, that
        // attribute is missing.
        let size = self.control.send("SIZE", path)?;
        Ok([size, self.control.send("MDTM", path)?])
    }

    pub(super) async fn answered(&mut self, asked: [PendingReply; 2]) -> Result<Stat, ServerError> {
        let [size, modified] = asked;
        let size = self.control.last(size).await?;
        let modified = self.control.last(modified).await?;
        Ok(self.stat_of(&size, &modified))
    }

    fn stat_of(&mut self, size: &Reply, modified: &Reply) -> Stat {
        let size_bytes = size_of(size);
        self.tells_size |= size_bytes.is_some();
        Stat {
            size_bytes,
            modified: time_of(modified),
        }
    }

    /// Returns the entry of each path, or `None` for each path that does not exist. If the server
    /// accepts pipelined commands, the function takes one round trip.
    ///
    /// # Errors
    /// [`ServerError`] if a path cannot be sent, if the connection is lost, or if the server
    /// temporarily refuses a query. The function also returns this error if the server does not
    /// report its current directory.
    pub async fn look(
        &mut self,
        paths: &[&[u8]],
    ) -> Result<Vec<Option<ListingEntry>>, ServerError> {
        if !self.control.pipelines() {
            let mut found = Vec::new();
            for path in paths {
                found.push(match self.is_directory(path).await? {
                    true => Some(entry(EntryKind::Directory, Stat::default())),
                    false => self.stat(path).await?.entry(),
                });
            }
            return Ok(found);
        }
        let home = self.home().await?;
        let (mut asked, mut found) = (Vec::new(), Vec::new());
        for path in paths {
            asked.push(self.send_stat(path, &home)?);
        }
        for request in asked {
            found.push(self.receive_stat(request).await);
        }
        // All replies are read before an error is returned, because each query changes the
        // directory and then changes back.
        found.into_iter().collect()
    }

    fn send_stat(&mut self, path: &[u8], home: &[u8]) -> Result<StatRequest, ServerError> {
        let [size, modified] = self.ask_facts(path)?;
        let there_and_back = match path.is_empty() {
            true => None,
            false => Some([
                self.control.send("CWD", path)?,
                self.control.send("CWD", home)?,
            ]),
        };
        Ok(StatRequest {
            size,
            modified,
            there_and_back,
        })
    }

    async fn receive_stat(
        &mut self,
        request: StatRequest,
    ) -> Result<Option<ListingEntry>, ServerError> {
        let stat = self.answered([request.size, request.modified]).await?;
        let Some([there, back]) = request.there_and_back else {
            return Ok(Some(entry(EntryKind::Directory, Stat::default())));
        };
        let reply = self.control.last(there).await?;
        let is_back = self.control.last(back).await?.is_completed();
        if reply.is_temporary() {
            return Err(there.refused(reply));
        }
        match (reply.is_completed(), is_back) {
            (true, true) => Ok(Some(entry(EntryKind::Directory, Stat::default()))),
            // The session is in another directory now, where relative paths lead to other files.
            (true, false) => Err(self.control.useless(NOT_AT_HOME)),
            (false, _) => Ok(stat.entry()),
        }
    }

    /// Returns whether a directory with this path exists. The session's current directory stays the
    /// same.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost, if the server temporarily refuses the query, or
    /// if the server does not report its current directory.
    pub async fn is_directory(&mut self, path: &[u8]) -> Result<bool, ServerError> {
        if path.is_empty() {
            return Ok(true);
        }
        let home = self.home().await?;
        let sent = self.control.send("CWD", path)?;
        let reply = self.control.last(sent).await?;
        if reply.is_temporary() {
            return Err(sent.refused(reply));
        }
        if !reply.is_completed() {
            return Ok(false);
        }
        let back = self.control.ask("CWD", &home).await?;
        if back.is_completed() {
            Ok(true)
        } else {
            // The session is in another directory now, where relative paths lead to other files.
            Err(self.control.useless(NOT_AT_HOME))
        }
    }

    /// Resolves a symbolic link in `directory`: replaces the kind and the attributes of `link` with
    /// the target's kind and attributes.
    ///
    /// The entry stays a link if its target does not exist. The entry also stays a link if the
    /// target may be a parent directory. This case can be excluded only if the server reports the
    /// target's path.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn follow(
        &mut self,
        directory: &[u8],
        link: &mut ListingEntry,
    ) -> Result<(), ServerError> {
        let path = join(directory, &link.name);
        let Some(place) = self.place_of(&path).await? else {
            let stat = self.stat(&path).await?;
            if stat.size_bytes.is_some() {
                link.kind = EntryKind::File;
                link.size_bytes = stat.size_bytes;
                link.modified = stat.modified.or(link.modified);
            }
            return Ok(());
        };
        let as_directory = |it: &[u8]| [it.strip_suffix(b"/").unwrap_or(it), b"/"].concat();
        let mut above = directory;
        loop {
            let Some(there) = self.place_of(above).await? else {
                return Ok(());
            };
            let is_told = above != directory || place != join(&there, &link.name);
            if !is_told || as_directory(&there).starts_with(&as_directory(&place)) {
                return Ok(());
            }
            // Each directory in the path is checked, because the path may contain links.
            match parent(above) {
                Some(next) => above = next,
                None => break,
            }
        }
        link.kind = EntryKind::Directory;
        link.size_bytes = None;
        Ok(())
    }

    /// Returns the absolute path of a directory, as the server reports it. Returns `None` if `path`
    /// is not a directory.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost, or if the server does not return to the login
    /// directory.
    pub async fn place_of(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, ServerError> {
        let home = self.home().await?;
        if path.is_empty() {
            return Ok(Some(home));
        }
        let there = self.control.ask("CWD", path).await?;
        if !there.is_completed() {
            return Ok(None);
        }
        let place = self.control.ask("PWD", b"").await?;
        let back = self.control.ask("CWD", &home).await?;
        if !back.is_completed() {
            return Err(self.control.useless(NOT_AT_HOME));
        }
        Ok(quoted(place.text()))
    }

    /// Returns the login directory (the server's current directory after the log-in).
    async fn home(&mut self) -> Result<Vec<u8>, ServerError> {
        if let Some(home) = &self.home {
            return Ok(home.clone());
        }
        let sent = self.control.send("PWD", b"")?;
        let reply = self.control.done(sent).await?;
        let Some(home) = quoted(reply.text()) else {
            return Err(sent.refused(reply));
        };
        self.home = Some(home.clone());
        Ok(home)
    }
}

impl Stat {
    /// Returns the attributes that a listing entry contains.
    pub fn of(entry: &ListingEntry) -> Self {
        Self {
            size_bytes: entry.size_bytes,
            modified: entry.modified,
        }
    }

    /// Returns a file entry with these attributes. Returns `None` if both attributes are missing,
    /// because the file then does not exist.
    pub fn entry(self) -> Option<ListingEntry> {
        let is_there = self.size_bytes.is_some() || self.modified.is_some();
        is_there.then(|| entry(EntryKind::File, self))
    }
}

fn entry(kind: EntryKind, stat: Stat) -> ListingEntry {
    ListingEntry {
        name: Vec::new(),
        kind,
        size_bytes: stat.size_bytes,
        modified: stat.modified,
    }
}

/// Returns the text of a positive reply. Returns `None` for a negative reply.
fn number(reply: &Reply) -> Option<&str> {
    let text = std::str::from_utf8(reply.text()).ok()?.trim();
    reply.is_completed().then_some(text)
}

/// Returns the size in bytes from the reply to `SIZE`.
pub(super) fn size_of(reply: &Reply) -> Option<u64> {
    number(reply)?.parse().ok()
}

/// Returns the modification time from the reply to `MDTM`.
pub(super) fn time_of(reply: &Reply) -> Option<ModifiedTime> {
    read_time(number(reply)?.as_bytes())
}

/// Returns the quoted part of a reply. A quote character within that text is doubled (RFC 959,
/// appendix II).
pub(super) fn quoted(text: &[u8]) -> Option<Vec<u8>> {
    let open = text.iter().position(|it| *it == b'"')?;
    let mut name = Vec::new();
    let mut rest = text[open + 1..].iter().peekable();
    while let Some(byte) = rest.next() {
        if *byte == b'"' && rest.next_if_eq(&&b'"').is_none() {
            return Some(name);
        }
        name.push(*byte);
    }
    None
}

const NOT_AT_HOME: &str = "the server does not go back to the directory of the log-in";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_reply_stands_in_quotes() {
        let cases: [(&[u8], Option<&[u8]>); 4] = [
            (b"\"/home/me\" is the current directory", Some(b"/home/me")),
            (b"\"/a \"\"b\"\"\"", Some(b"/a \"b\"")),
            (b"\"/a", None),
            (b"/a", None),
        ];
        for (text, name) in cases {
            assert_eq!(quoted(text).as_deref(), name);
        }
    }
}
