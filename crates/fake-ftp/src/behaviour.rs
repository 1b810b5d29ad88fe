//! Deviations of a server from the usual behaviour.

use std::{collections::BTreeMap, time::Duration};

/// Faults and peculiarities of a server. The default has none.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// Replies in a fixed order, in place of everything else.
    pub script: Option<ReplyScript>,
    /// Greeting. The default is that of vsftpd, or that of a gateway.
    pub greeting: Option<&'static str>,
    /// Greets with `220 client` and the client's address.
    pub greets_with_address: bool,
    /// Fixed replies to verbs, which then have no effect. An empty reply stands for silence.
    pub replies: BTreeMap<&'static str, &'static str>,
    /// Refuses `STOR` after `REST`.
    pub refuses_to_append: bool,
    /// Confirms an upload after its first byte.
    pub confirms_early: bool,
    /// Lists as `ls -la` does, and this directory as empty.
    pub hides: Option<&'static str>,
    /// Refuses to list this directory.
    pub unreadable: Option<&'static str>,
    /// Lists in each directory a directory `loop`, which is the same directory.
    pub has_loops: bool,
    /// Ends the connection after the log-in.
    pub ends_after_login: bool,
    /// Ends the connection after `RNTO`.
    pub ends_after_rename: bool,
    /// Sends a second final reply after each upload.
    pub confirms_twice: bool,
    /// Supports `XMD5`. The hash is that of the file with these bytes appended.
    pub hash_suffix: Option<&'static [u8]>,
    /// Delay before the server reads the bytes of an upload.
    pub upload_delay: Duration,
    /// Delay before the reply to `PASV` and `EPSV`.
    pub port_delay: Duration,
    /// Final reply to each upload, whether it succeeded or not.
    pub upload_reply: Option<&'static str>,
    /// Bytes of a step of a download. The default is half a megabyte.
    pub download_step_bytes: Option<usize>,
    /// Delay before each step of a download.
    pub download_step_delay: Duration,
    /// Additional delay before each step of the second download.
    pub second_download_step_delay: Duration,
    /// Number of a download, from 1, and the steps after which it breaks off.
    pub breaks_download: Option<(usize, usize)>,
    /// Reply to a download while another one is in progress.
    pub refuses_parallel_download: Option<&'static str>,
    /// Accepts `REST`, and sends each file from its beginning.
    pub ignores_offsets: bool,
    /// Number of `SIZE` and `MDTM` commands that get a temporary refusal after the first download.
    pub refused_questions: usize,
    /// Replaces this file by another one after its first download.
    pub replaces_after_download: Option<&'static str>,
    /// Treatment of a file that an upload replaces.
    pub overwrites: Overwrites,
    /// Ends a data connection on which bytes arrive before the reply `150`.
    pub rejects_early_data: bool,
    /// Sends the reply `150` late, and reads bytes before it.
    pub announces_late: bool,
    /// Number of connections at a time. Further ones get `421`.
    pub connections_max: Option<usize>,
    /// Time for which an ended connection still counts.
    pub close_delay: Duration,
    /// The only account. The password of any other one is refused.
    pub only_user: Option<&'static str>,
    /// Reply to `PASS`, after which the connection ends.
    pub refuses_password: Option<&'static str>,
    /// Delay before the server connects to the client's port.
    pub connect_delay: Duration,
    /// Refuses a rename that would replace a file.
    pub refuses_replacing_rename: bool,
    /// Longest name that the server accepts, in bytes.
    pub name_bytes_max: Option<usize>,
    /// Refuses names that are not UTF-8.
    pub requires_utf8: bool,
    /// Character that takes the place of a blank at the end of a name.
    pub trailing_blank: Option<char>,
    /// Sends bytes after the end of each file, until the client closes.
    pub has_endless_downloads: bool,
    /// Records commands in batches, as for a gateway.
    pub records_batches: bool,
    /// Behaves as the listener of a gateway.
    pub is_gateway: bool,
}

/// Treatment of a file that an upload replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overwrites {
    /// The file is emptied when the upload begins.
    #[default]
    AtOnce,
    /// The file is replaced when the upload has succeeded.
    AtEnd,
    /// The file stays, and the upload gets another name.
    Aside,
    /// The file stays, and the upload is refused.
    Never,
}

/// Replies that do not depend on the commands.
#[derive(Debug, Clone)]
pub struct ReplyScript {
    /// The greeting, and then the reply to each command in turn. Without a greeting the server is
    /// silent.
    replies: Vec<String>,
    end: ScriptEnd,
}

/// Reaction to commands after the last reply of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptEnd {
    /// The server closes the connection after the last reply.
    Close,
    /// The server reads further commands and does not reply.
    Silence,
}

impl ReplyScript {
    /// Script after which the server closes the connection.
    pub fn then_close(replies: &[&str]) -> Self {
        Self::new(replies, ScriptEnd::Close)
    }

    /// Script after which the server is silent.
    pub fn then_silence(replies: &[&str]) -> Self {
        Self::new(replies, ScriptEnd::Silence)
    }

    fn new(replies: &[&str], end: ScriptEnd) -> Self {
        let replies = replies.iter().map(|&it| it.to_owned()).collect();
        Self { replies, end }
    }

    pub(crate) fn replies(&self) -> &[String] {
        &self.replies
    }

    pub(crate) fn end(&self) -> ScriptEnd {
        self.end
    }
}
