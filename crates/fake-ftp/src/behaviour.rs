//! Deviations of the test server from the usual behaviour of FTP servers.

use std::{collections::BTreeMap, time::Duration};

/// Faults and special features of a test server. The default server has none.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// Fixed sequence of replies. With a script, the server executes no commands.
    pub script: Option<ReplyScript>,
    /// Greeting of the server. With `None`, the server sends the greeting of vsftpd or of a
    /// gateway.
    pub greeting: Option<&'static str>,
    /// Whether the greeting consists of `220 client` and the client's address.
    pub greets_with_address: bool,
    /// Fixed replies to commands, by verb. These commands have no effect. If a reply is empty, the
    /// server does not reply.
    pub replies: BTreeMap<&'static str, &'static str>,
    /// Whether the server refuses `STOR` after `REST`.
    pub refuses_to_append: bool,
    /// Whether the server confirms an upload after its first byte.
    pub confirms_early: bool,
    /// Directory that the server lists as empty, even without the entry `.`. If set, `FEAT` does
    /// not report `MLST`, so that clients use `LIST` in the format of `ls -la`.
    pub hides: Option<&'static str>,
    /// Directory that the server refuses to list.
    pub unreadable: Option<&'static str>,
    /// Whether each directory contains an entry `loop` that leads to the directory itself.
    pub has_loops: bool,
    /// Whether the server ends the connection after the log-in.
    pub ends_after_login: bool,
    /// Whether the server ends the connection after `RNTO`.
    pub ends_after_rename: bool,
    /// Whether the server sends a second final reply after each upload.
    pub confirms_twice: bool,
    /// Bytes that the server appends to a file before it computes the hash for `XMD5`. With `None`,
    /// the server does not support `XMD5`.
    pub hash_suffix: Option<&'static [u8]>,
    /// Delay before the server reads the bytes of an upload.
    pub upload_delay: Duration,
    /// Delay before the reply to `PASV` and `EPSV`.
    pub port_delay: Duration,
    /// Final reply to each upload, even if the upload failed.
    pub upload_reply: Option<&'static str>,
    /// Number of bytes that one step of a download sends. The default is half a megabyte.
    pub download_step_bytes: Option<usize>,
    /// Delay before each step of a download.
    pub download_step_delay: Duration,
    /// Additional delay before each step of the second download.
    pub second_download_step_delay: Duration,
    /// Download that the server aborts: its number, counted from 1, and the number of steps that
    /// the server sends before the abort.
    pub breaks_download: Option<(usize, usize)>,
    /// Reply to a download command during another download. With `None`, the server permits
    /// parallel downloads.
    pub refuses_parallel_download: Option<&'static str>,
    /// Whether the server accepts `REST`, but sends each file from its beginning.
    pub ignores_offsets: bool,
    /// Number of `SIZE` and `MDTM` commands that the server refuses temporarily after the first
    /// download.
    pub refused_questions: usize,
    /// Path of a file. After the first download of this file, the server replaces it by another
    /// file.
    pub replaces_after_download: Option<&'static str>,
    /// Handling of an existing file that has the name of an upload.
    pub overwrites: Overwrites,
    /// Whether the server ends a data connection if bytes arrive before the reply `150` is sent.
    pub rejects_early_data: bool,
    /// Whether the server sends the reply `150` late. The server accepts bytes that arrive before
    /// this reply.
    pub announces_late: bool,
    /// Maximum number of concurrent connections. Further connections get the reply `421`.
    pub connections_max: Option<usize>,
    /// Time for which a connection still counts as open after its end.
    pub close_delay: Duration,
    /// The only user who can log in. The server refuses the password of any other user.
    pub only_user: Option<&'static str>,
    /// Reply to `PASS`. After this reply the server ends the connection.
    pub refuses_password: Option<&'static str>,
    /// Delay before the server connects to the client's port.
    pub connect_delay: Duration,
    /// Whether the server refuses a rename that would replace a file.
    pub refuses_replacing_rename: bool,
    /// Maximum length in bytes of a name that the server accepts.
    pub name_bytes_max: Option<usize>,
    /// Whether the server refuses names that are not UTF-8.
    pub requires_utf8: bool,
    /// Character with which the server replaces a blank at the end of a name.
    pub trailing_blank: Option<char>,
    /// Whether the server sends more bytes after the end of each file, until the client closes the
    /// data connection.
    pub has_endless_downloads: bool,
    /// Whether the server records commands in [`State::batches`](crate::State::batches), as it does
    /// for a gateway.
    pub records_batches: bool,
    /// Whether the server behaves like the listener of a gateway.
    pub is_gateway: bool,
}

/// Handling of an existing file that has the name of an upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overwrites {
    /// The server replaces the file when the upload ends, even if the upload is incomplete.
    #[default]
    AtOnce,
    /// The server replaces the file after the upload has succeeded.
    AtEnd,
    /// The server keeps the file, and stores the upload under another name.
    Aside,
    /// The server keeps the file, and refuses the upload.
    Never,
}

/// Fixed sequence of replies, which do not depend on the client's commands.
#[derive(Debug, Clone)]
pub struct ReplyScript {
    /// The greeting, followed by one reply for each command. If the list is empty, the server sends
    /// no greeting.
    replies: Vec<String>,
    end: ScriptEnd,
}

/// Behaviour of the server after the last reply of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptEnd {
    /// The server closes the connection.
    Close,
    /// The server reads further commands, but does not reply.
    Silence,
}

impl ReplyScript {
    /// Creates a script. After its last reply the server closes the connection.
    pub fn then_close(replies: &[&str]) -> Self {
        Self::new(replies, ScriptEnd::Close)
    }

    /// Creates a script. After its last reply the server reads commands, but does not reply.
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
