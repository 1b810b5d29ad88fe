//! Questions about files, and changes to them, by commands alone.

use ftp::{
    client::Reply,
    listing::{Entry, Form, Kind, Listing, Modified, read_time, write_time},
    reply::{Class, Code},
};

use crate::names::{join, parent};

use super::{
    ServerError, Session,
    control::Sent,
    transfer::{Transfer, Verb},
};

/// What a server says of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Bytes; `None` where the server does not say.
    pub size_bytes: Option<u64>,
    /// When it was changed last; `None` where the server does not say.
    pub modified: Option<Modified>,
}

/// A listing under way.
pub struct Lister<'a> {
    transfer: Transfer<'a>,
    listing: Listing,
    /// The directory itself must be in the listing.
    shows_itself: bool,
    has_ended: bool,
}

impl Session {
    /// Size and time of a file. A file that is not there has none. One round trip.
    ///
    /// # Errors
    /// [`ServerError`] if the path cannot be sent, or the connection is lost.
    pub async fn facts(&mut self, path: &[u8]) -> Result<Facts, ServerError> {
        // Servers without FEAT may know both. They are asked, and a refusal is no fact.
        let size = self.control.send("SIZE", path)?;
        let modified = self.control.send("MDTM", path)?;
        let size_bytes = size_of(&self.control.last(size).await?);
        let modified = time_of(&self.control.last(modified).await?);
        self.tells_size |= size_bytes.is_some();
        Ok(Facts {
            size_bytes,
            modified,
        })
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
    async fn place_of(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, ServerError> {
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

    /// Makes a directory.
    ///
    /// # Errors
    /// [`ServerError`] if it cannot be made, also because it is there.
    pub async fn make_directory(&mut self, path: &[u8]) -> Result<(), ServerError> {
        self.control.run("MKD", path).await.map(drop)
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses.
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), ServerError> {
        self.control.run("DELE", path).await.map(drop)
    }

    /// Deletes an empty directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, also because it is not empty.
    pub async fn remove_directory(&mut self, path: &[u8]) -> Result<(), ServerError> {
        self.control.run("RMD", path).await.map(drop)
    }

    /// Renames a file; what has the name `to` is replaced. It is lost only when the new file has its name.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses.
    pub async fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), ServerError> {
        let refused = match self.rename_once(from, to).await {
            Err(ServerError::Refused {
                command: "RNTO",
                reply,
            }) if is_name_taken(&reply) => reply,
            result => return result,
        };
        // Some servers do not replace files by a rename, so the old one steps aside. Where that is refused, too, the
        // reason is another.
        let aside = [to, b".old"].concat();
        if self.rename_once(to, &aside).await.is_err() {
            return Err(ServerError::Refused {
                command: "RNTO",
                reply: refused,
            });
        }
        let renamed = self.rename_once(from, to).await;
        match renamed {
            Ok(()) => self.delete(&aside).await,
            Err(error) => {
                self.rename_once(&aside, to).await?;
                Err(error)
            }
        }
    }

    async fn rename_once(&mut self, from: &[u8], to: &[u8]) -> Result<(), ServerError> {
        let asked = [
            self.control.send("RNFR", from)?,
            self.control.send("RNTO", to)?,
        ];
        let [from, to] = asked;
        let from_reply = self.control.last(from).await?;
        let to_reply = self.control.last(to).await?;
        match from_reply.class() {
            Class::Intermediate if to_reply.is_completed() => Ok(()),
            Class::Intermediate => Err(to.refused(to_reply)),
            _ => Err(from.refused(from_reply)),
        }
    }

    /// Sets the time of a file, where the server can; returns whether it could.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn set_modified(&mut self, path: &[u8], unix_s: i64) -> Result<bool, ServerError> {
        match self.ask_set_modified(path, unix_s)? {
            Some(sent) => self.was_modified(sent).await,
            None => Ok(false),
        }
    }

    /// Waits for the change of a time; returns whether the server made it.
    pub(super) async fn was_modified(&mut self, sent: Sent) -> Result<bool, ServerError> {
        let reply = self.control.last(sent).await?;
        Ok(self.time_was_set(&reply))
    }

    /// Whether a reply says that a time was set. A server that does not take times by `MDTM` is not asked again.
    pub(super) fn time_was_set(&mut self, reply: &Reply) -> bool {
        if !reply.is_completed() && !self.features.set_modified {
            self.sets_time_by_mdtm = false;
        }
        reply.is_completed()
    }

    /// Puts the command that sets a time among those to be sent, where the server has one.
    ///
    /// # Errors
    /// [`ServerError::Unsendable`] if the path cannot be sent.
    pub(super) fn ask_set_modified(
        &mut self,
        path: &[u8],
        unix_s: i64,
    ) -> Result<Option<Sent>, ServerError> {
        let Some(time) = write_time(unix_s) else {
            return Ok(None);
        };
        let mut argument = time.into_bytes();
        argument.push(b' ');
        argument.extend_from_slice(path);
        let verb = match (self.features.set_modified, self.sets_time_by_mdtm) {
            (true, _) => "MFMT",
            // vsftpd takes a time in front of the name.
            (false, true) => "MDTM",
            (false, false) => return Ok(None),
        };
        self.control.send(verb, &argument).map(Some)
    }

    /// Begins a listing.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses.
    pub async fn list(&mut self, path: &[u8], now_unix_s: i64) -> Result<Lister<'_>, ServerError> {
        let (verb, form, argument) = if self.features.machine_listings {
            (Verb::MachineListing, Form::Machine, path.to_vec())
        } else {
            let form = Form::Human { now_unix_s };
            (Verb::Listing, form, self.list_argument(path))
        };
        let shows_itself = verb == Verb::Listing && self.lists_hidden_by_option;
        let transfer = self.transfer(verb, &argument, 0).await?;
        Ok(Lister {
            transfer,
            listing: Listing::new(form),
            shows_itself,
            has_ended: false,
        })
    }

    /// Asks for the times of the files of a directory that its listing does not tell to the second.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn refine_times(
        &mut self,
        directory: &[u8],
        entries: &mut [Entry],
    ) -> Result<(), ServerError> {
        if !self.features.modified {
            return Ok(());
        }
        let mut asked = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            // A name that cannot be sent cannot be moved either.
            if let Ok(sent) = self.control.send("MDTM", &join(directory, &entry.name)) {
                asked.push((at, sent));
            }
        }
        for (at, sent) in asked {
            let reply = self.control.last(sent).await?;
            entries[at].modified = time_of(&reply).or(entries[at].modified);
        }
        Ok(())
    }

    /// `LIST` takes options from some servers' point of view: a name must not look like one.
    fn list_argument(&self, path: &[u8]) -> Vec<u8> {
        let mut argument = Vec::new();
        if self.lists_hidden_by_option {
            argument.extend_from_slice(b"-a ");
        }
        if path.starts_with(b"-") {
            argument.extend_from_slice(b"./");
        }
        argument.extend_from_slice(path);
        argument.truncate(argument.trim_ascii_end().len().max(path.len()));
        argument
    }
}

impl Lister<'_> {
    /// The next entries; none at the end.
    ///
    /// # Errors
    /// [`ServerError`] if the listing broke off: what came before may not be all.
    pub async fn next(&mut self) -> Result<Vec<Entry>, ServerError> {
        let mut entries = Vec::new();
        let mut bytes = vec![0; 64 * 1024];
        while entries.is_empty() && !self.has_ended {
            let count = self.transfer.read(&mut bytes).await?;
            if count == 0 {
                self.listing.end();
                self.has_ended = true;
            } else {
                self.listing.push(&bytes[..count]);
            }
            entries.extend(std::iter::from_fn(|| self.listing.next_entry()));
        }
        Ok(entries)
    }

    /// Ends the listing; returns how many lines were not understood.
    ///
    /// # Errors
    /// [`ServerError`] if the server says that it broke off.
    pub async fn finish(self) -> Result<u64, ServerError> {
        let ended = self.transfer.finish().await?;
        if !ended.is_sure {
            return Err(ServerError::Cut);
        }
        if self.shows_itself && !self.listing.has_itself() {
            return Err(ServerError::Unlisted);
        }
        Ok(self.listing.not_understood())
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
fn quoted(text: &[u8]) -> Option<Vec<u8>> {
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

/// 550 and 553 may mean that the name is taken.
fn is_name_taken(reply: &Reply) -> bool {
    matches!(reply.code(), Code(550 | 553 | 521))
}

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
