//! What a server has under a path.

use ftp::{
    client::Reply,
    listing::{Entry, Kind, Modified, read_time},
};

use super::{ServerError, Session, control::Sent};
use crate::names::{join, parent};

/// What a server says of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Bytes; `None` where the server does not say.
    pub size_bytes: Option<u64>,
    /// When it was changed last; `None` where the server does not say.
    pub modified: Option<Modified>,
}

/// What a server has been asked of one path.
struct Look {
    size: Sent,
    modified: Sent,
    /// Into what may be a directory, and back; `None` for the directory of the log-in.
    there_and_back: Option<[Sent; 2]>,
}

impl Session {
    /// Size and time of a file. A file that is not there has none. One round trip.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, or the connection is lost.
    pub async fn facts(&mut self, path: &[u8]) -> Result<Facts, ServerError> {
        let asked = self.ask_facts(path)?;
        self.answered(asked).await
    }

    /// Size and time of a file that was there before. One round trip.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, the connection is lost, or the server refuses one of them for now.
    pub async fn stated_facts(&mut self, path: &[u8]) -> Result<Facts, ServerError> {
        let asked = self.ask_facts(path)?;
        let mut replies = Vec::new();
        for sent in asked {
            replies.push((sent, self.control.last(sent).await?));
        }
        // Not before both have been answered.
        let refused = replies.iter().find(|(_, it)| it.is_temporary());
        if let Some((sent, reply)) = refused {
            return Err(sent.refused(reply.clone()));
        }
        Ok(self.facts_of(&replies[0].1, &replies[1].1))
    }

    /// Asks for size and time of a file: the commands go out with the next one that is waited for.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent.
    pub(super) fn ask_facts(&mut self, path: &[u8]) -> Result<[Sent; 2], ServerError> {
        // Servers without FEAT may know both. They are asked, and a refusal is no fact.
        let size = self.control.send("SIZE", path)?;
        Ok([size, self.control.send("MDTM", path)?])
    }

    pub(super) async fn answered(&mut self, asked: [Sent; 2]) -> Result<Facts, ServerError> {
        let [size, modified] = asked;
        let size = self.control.last(size).await?;
        let modified = self.control.last(modified).await?;
        Ok(self.facts_of(&size, &modified))
    }

    fn facts_of(&mut self, size: &Reply, modified: &Reply) -> Facts {
        let size_bytes = size_of(size);
        self.tells_size |= size_bytes.is_some();
        Facts {
            size_bytes,
            modified: time_of(modified),
        }
    }

    /// What has each of these paths; `None` for nothing. One round trip, if the server takes commands ahead.
    ///
    /// # Errors
    /// [`ServerError`] if a path cannot be sent, the connection is lost, or the server does not say where it is.
    pub async fn look(&mut self, paths: &[&[u8]]) -> Result<Vec<Option<Entry>>, ServerError> {
        if !self.control.pipelines() {
            let mut found = Vec::new();
            for path in paths {
                found.push(match self.is_directory(path).await? {
                    true => Some(entry(Kind::Directory, Facts::default())),
                    false => self.facts(path).await?.entry(),
                });
            }
            return Ok(found);
        }
        let home = self.home().await?;
        let (mut asked, mut found) = (Vec::new(), Vec::new());
        for path in paths {
            asked.push(self.ask_look(path, &home)?);
        }
        for look in asked {
            found.push(self.seen(look).await);
        }
        // Not before all have been answered: each leads away and back.
        found.into_iter().collect()
    }

    fn ask_look(&mut self, path: &[u8], home: &[u8]) -> Result<Look, ServerError> {
        let [size, modified] = self.ask_facts(path)?;
        let there_and_back = match path.is_empty() {
            true => None,
            false => Some([
                self.control.send("CWD", path)?,
                self.control.send("CWD", home)?,
            ]),
        };
        Ok(Look {
            size,
            modified,
            there_and_back,
        })
    }

    async fn seen(&mut self, look: Look) -> Result<Option<Entry>, ServerError> {
        let facts = self.answered([look.size, look.modified]).await?;
        let Some([there, back]) = look.there_and_back else {
            return Ok(Some(entry(Kind::Directory, Facts::default())));
        };
        let reply = self.control.last(there).await?;
        let is_back = self.control.last(back).await?.is_completed();
        if reply.is_temporary() {
            return Err(there.refused(reply));
        }
        match (reply.is_completed(), is_back) {
            (true, true) => Ok(Some(entry(Kind::Directory, Facts::default()))),
            // From elsewhere, names without a slash in front would be others.
            (true, false) => Err(self.control.useless(NOT_AT_HOME)),
            (false, _) => Ok(facts.entry()),
        }
    }

    /// Whether there is a directory with this name. The session stays in the directory of the log-in.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost, or the server does not say where it is.
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
            // From elsewhere, names without a slash in front would be others.
            Err(self.control.useless(NOT_AT_HOME))
        }
    }

    /// Finds out what a symbolic link in `directory` leads to. It stays a link where that is nothing, and where it may be a
    /// directory above: only a server that tells where a link leads shows that.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn follow(&mut self, directory: &[u8], link: &mut Entry) -> Result<(), ServerError> {
        let path = join(directory, &link.name);
        let Some(place) = self.place_of(&path).await? else {
            let facts = self.facts(&path).await?;
            if facts.size_bytes.is_some() {
                link.kind = Kind::File;
                link.size_bytes = facts.size_bytes;
                link.modified = facts.modified.or(link.modified);
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
            // Also those above that were reached by a link themselves.
            match parent(above) {
                Some(next) => above = next,
                None => break,
            }
        }
        link.kind = Kind::Directory;
        link.size_bytes = None;
        Ok(())
    }

    /// Where a directory is, as the server says it; `None` for what is none.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost, or the server does not go back to the directory of the log-in.
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

    /// The directory of the log-in.
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

impl Facts {
    /// What an entry of a listing says.
    pub fn of(entry: &Entry) -> Self {
        Self {
            size_bytes: entry.size_bytes,
            modified: entry.modified,
        }
    }

    /// The file with these facts; `None` if the server knows of none.
    pub fn entry(self) -> Option<Entry> {
        let is_there = self.size_bytes.is_some() || self.modified.is_some();
        is_there.then(|| entry(Kind::File, self))
    }
}

fn entry(kind: Kind, facts: Facts) -> Entry {
    Entry {
        name: Vec::new(),
        kind,
        size_bytes: facts.size_bytes,
        modified: facts.modified,
    }
}

/// The text of a success that is one word.
fn number(reply: &Reply) -> Option<&str> {
    let text = std::str::from_utf8(reply.text()).ok()?.trim();
    reply.is_completed().then_some(text)
}

/// The answer to `SIZE`.
pub(super) fn size_of(reply: &Reply) -> Option<u64> {
    number(reply)?.parse().ok()
}

/// The answer to `MDTM`.
pub(super) fn time_of(reply: &Reply) -> Option<Modified> {
    read_time(number(reply)?.as_bytes())
}

/// What stands in quotes; a quote within is doubled (RFC 959, appendix II).
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
