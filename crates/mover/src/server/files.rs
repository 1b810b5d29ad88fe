//! Listings, and changes to files that need no data connection.

use ftp::{
    client::Reply,
    listing::{ListingEntry, ListingForm, ListingParser, write_time},
    reply::{ReplyClass, ReplyCode},
};

use crate::{
    names::{join, printable},
    part_name::{part_path, random_digits},
};

use super::{
    ServerError, Session,
    control::PendingReply,
    stat::time_of,
    transfer::{RunningTransfer, TransferVerb},
};

/// A listing in progress.
pub struct RunningListing<'a> {
    transfer: RunningTransfer<'a>,
    listing: ListingParser,
    /// Whether the listing must contain an entry for the directory itself.
    shows_itself: bool,
    has_ended: bool,
}

impl Session {
    /// Creates a directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, for example because the directory exists.
    pub async fn make_directory(&mut self, path: &[u8]) -> Result<(), ServerError> {
        self.control.run("MKD", path).await.map(drop)
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the deletion.
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), ServerError> {
        self.control.run("DELE", path).await.map(drop)
    }

    /// Deletes an empty directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses, for example because the directory is not empty.
    pub async fn remove_directory(&mut self, path: &[u8]) -> Result<(), ServerError> {
        self.control.run("RMD", path).await.map(drop)
    }

    /// Renames a file. If a file named `to` exists, it is replaced. The old file is deleted only
    /// after the new file has the name `to`.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses to rename the file.
    pub async fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), ServerError> {
        let refused = match self.rename_once(from, to).await {
            Err(ServerError::Refused {
                command: "RNTO",
                reply,
            }) if is_name_taken(&reply) => reply,
            result => return result,
        };
        // Some servers do not replace files by a rename, so the old file gets an unused name first.
        // If the server also refuses to rename the old file, the first refusal had another reason.
        let aside = part_path(to, random_digits(), ASIDE);
        if self.rename_once(to, &aside).await.is_err() {
            return Err(ServerError::Refused {
                command: "RNTO",
                reply: refused,
            });
        }
        let renamed = self.rename_once(from, to).await;
        match renamed {
            Ok(()) => match self.delete(&aside).await {
                Err(ServerError::Refused { reply, .. }) => {
                    let aside = printable(&aside);
                    tracing::warn!(aside, %reply, "the file that was replaced stays under this name");
                    Ok(())
                }
                deleted => deleted,
            },
            Err(error) => {
                if let Err(reason) = self.rename_once(&aside, to).await {
                    let (path, aside) = (printable(to), printable(&aside));
                    tracing::warn!(path, aside, %reason, "the file is under another name now");
                }
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
            ReplyClass::Intermediate if to_reply.is_completed() => Ok(()),
            ReplyClass::Intermediate => Err(to.refused(to_reply)),
            _ => Err(from.refused(from_reply)),
        }
    }

    /// Renames a part file to its final name. Also sets the modification time if the server
    /// supports that. Returns whether the time was set.
    ///
    /// If the server accepts pipelined commands, the function takes one round trip.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the name, or if the connection is lost.
    pub async fn name(
        &mut self,
        part: &[u8],
        path: &[u8],
        modified_unix_s: Option<i64>,
    ) -> Result<bool, ServerError> {
        let time = match modified_unix_s {
            Some(unix_s) => self.ask_set_modified(part, unix_s)?,
            None => None,
        };
        let named = match part == path {
            true => Ok(()),
            false => self.rename(part, path).await,
        };
        match (named, time) {
            (Ok(()), None) => Ok(false),
            (Ok(()), Some(time)) => {
                let reply = self.control.last(time).await?;
                Ok(self.time_was_set(&reply))
            }
            (Err(error), time) => {
                time.into_iter().for_each(|it| self.control.disregard(it));
                Err(error)
            }
        }
    }

    /// Returns whether a reply confirms that a modification time was set. If the server refuses
    /// times in `MDTM` commands, the session no longer sends times in `MDTM` commands.
    pub(super) fn time_was_set(&mut self, reply: &Reply) -> bool {
        if !reply.is_completed() && !self.features.set_modified {
            self.sets_time_by_mdtm = false;
        }
        reply.is_completed()
    }

    /// Queues the command that sets a modification time. Returns `None` if the server has no such
    /// command.
    ///
    /// # Errors
    /// [`ServerError::Unsendable`] if the path cannot be sent.
    pub(super) fn ask_set_modified(
        &mut self,
        path: &[u8],
        unix_s: i64,
    ) -> Result<Option<PendingReply>, ServerError> {
        let Some(time) = write_time(unix_s) else {
            return Ok(None);
        };
        let mut argument = time.into_bytes();
        argument.push(b' ');
        argument.extend_from_slice(path);
        let verb = match (self.features.set_modified, self.sets_time_by_mdtm) {
            (true, _) => "MFMT",
            // vsftpd accepts a time in front of the name in an `MDTM` command.
            (false, true) => "MDTM",
            (false, false) => return Ok(None),
        };
        self.control.send(verb, &argument).map(Some)
    }

    /// Starts the listing of a directory.
    ///
    /// # Errors
    /// [`ServerError`] if the server refuses the listing.
    pub async fn list(
        &mut self,
        path: &[u8],
        now_unix_s: i64,
    ) -> Result<RunningListing<'_>, ServerError> {
        let (verb, form, argument) = if self.features.machine_listings {
            (
                TransferVerb::MachineListing,
                ListingForm::Machine,
                path.to_vec(),
            )
        } else {
            let form = ListingForm::Human { now_unix_s };
            let argument = list_argument(path, self.lists_hidden_by_option);
            (TransferVerb::Listing, form, argument)
        };
        let shows_itself = verb == TransferVerb::Listing && self.lists_hidden_by_option;
        let transfer = self.transfer(verb, &argument, 0, false).await?;
        Ok(RunningListing {
            transfer,
            listing: ListingParser::new(form),
            shows_itself,
            has_ended: false,
        })
    }

    /// Queries precise modification times for the files of a directory. The function is used if the
    /// times in the directory's listing are less precise than one second.
    ///
    /// # Errors
    /// [`ServerError`] if the connection is lost.
    pub async fn refine_times(
        &mut self,
        directory: &[u8],
        entries: &mut [ListingEntry],
    ) -> Result<(), ServerError> {
        if !self.features.modified {
            return Ok(());
        }
        let mut asked = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            // If a name cannot be sent, the file cannot be moved at all, so its time is not needed.
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
}

impl RunningListing<'_> {
    /// Returns the next entries. The result is empty at the end of the listing.
    ///
    /// # Errors
    /// [`ServerError`] if the listing was interrupted. In this case, further entries may be
    /// missing.
    pub async fn next(&mut self) -> Result<Vec<ListingEntry>, ServerError> {
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

    /// Completes the listing. Returns the number of lines that could not be parsed.
    ///
    /// # Errors
    /// [`ServerError`] if the server reports that the listing was interrupted, or if the listing is
    /// incomplete.
    pub async fn finish(self) -> Result<u64, ServerError> {
        let ended = self.transfer.finish().await?;
        if !ended.is_sure {
            return Err(ServerError::Cut);
        }
        if self.shows_itself && !self.listing.lists_itself() {
            return Err(ServerError::Unlisted);
        }
        Ok(self.listing.unparsed_lines())
    }
}

/// Returns the argument of `LIST`. Some servers search the argument for options, so a name that
/// begins with `-` is preceded by `./`. Trailing blanks belong to the name and are kept.
fn list_argument(path: &[u8], lists_hidden_by_option: bool) -> Vec<u8> {
    let option: &[u8] = match (lists_hidden_by_option, path) {
        (false, _) => b"",
        (true, b"") => b"-a",
        (true, _) => b"-a ",
    };
    let here: &[u8] = if path.starts_with(b"-") { b"./" } else { b"" };
    [option, here, path].concat()
}

/// Suffix of the temporary name that an old file has while a new file replaces it.
const ASIDE: &[u8] = b".old";

/// Returns whether a reply may mean that a file with the new name exists. The codes 550 and 553 may
/// also have other reasons.
fn is_name_taken(reply: &Reply) -> bool {
    matches!(reply.code(), ReplyCode(550 | 553 | 521))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_of_a_listing_keeps_blanks_and_is_no_option() {
        for (path, has_option, expected) in [
            (&b""[..], true, &b"-a"[..]),
            (b"", false, b""),
            (b"dir ", true, b"-a dir "),
            (b" ", true, b"-a  "),
            (b"dir ", false, b"dir "),
            (b"-l", true, b"-a ./-l"),
            (b"-l", false, b"./-l"),
        ] {
            assert_eq!(list_argument(path, has_option), expected, "{path:?}");
        }
    }
}
