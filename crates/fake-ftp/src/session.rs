//! Control connection of one client, on which the server executes commands.

mod data;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use md5::{Digest as _, Md5};

use crate::{
    Behaviour, State,
    behaviour::{ReplyScript, ScriptEnd},
};

/// The server's state of one FTP session.
pub(crate) struct Session {
    control: BufReader<TcpStream>,
    state: Arc<Mutex<State>>,
    behaviour: Behaviour,
    /// Listener for the next data connection, after `PASV` or `EPSV`.
    passive: Option<TcpListener>,
    /// The client's address for the next data connection, after `PORT` or `EPRT`.
    active: Option<SocketAddr>,
    /// File offset for the next transfer, from `REST`.
    rest: usize,
    /// Path of the file to rename, from `RNFR`.
    from: Option<String>,
    /// Whether the client had sent no further command when the server sent the last final reply.
    /// Always false if the server does not record batches.
    client_waits: bool,
    /// Argument of the last `USER`.
    user: String,
}

impl Session {
    /// Serves a client until the client or the server ends the session. Refuses the connection if
    /// too many connections are open. Returns whether the connection counted as open.
    pub(crate) fn serve(client: TcpStream, state: Arc<Mutex<State>>, behaviour: Behaviour) -> bool {
        let has_room = {
            let mut state = state.lock().expect("whole");
            state.connections += 1;
            let open_max = behaviour.connections_max;
            let has_room = open_max.is_none_or(|it| state.open < it);
            state.open += usize::from(has_room);
            has_room
        };
        let mut session = Self {
            control: BufReader::new(client),
            state,
            behaviour,
            passive: None,
            active: None,
            rest: 0,
            from: None,
            client_waits: false,
            user: String::new(),
        };
        if has_room {
            session.talk();
        } else {
            session.say("421 too many connections");
        }
        has_room
    }

    /// Runs the script of the behaviour, if there is one. Otherwise sends the greeting and executes
    /// commands.
    fn talk(mut self) {
        let session = &mut self;
        if let Some(script) = session.behaviour.script.take() {
            return session.follow(&script);
        }
        session.greet();
        session.await_batch();
        while let Some(line) = session.next_line() {
            if !session.obey(&line) {
                return;
            }
            session.await_batch();
        }
    }

    /// Sends the replies of a script, and waits until the client closes the connection.
    fn follow(&mut self, script: &ReplyScript) {
        for (index, reply) in script.replies().iter().enumerate() {
            let is_greeting = index == 0;
            if !is_greeting && self.next_verb().is_none() {
                return;
            }
            self.say(reply);
        }
        if script.end() == ScriptEnd::Close {
            // If commands were still unread, closing the connection would reset it. The client may
            // already have disconnected.
            let _ = self.control.get_ref().shutdown(Shutdown::Write);
        }
        while self.next_verb().is_some() {}
    }

    /// Reads a command and records its verb.
    fn next_verb(&mut self) -> Option<()> {
        let line = self.next_line()?;
        let verb = line.split(' ').next().unwrap_or_default().to_owned();
        self.state().verbs.push(verb);
        Some(())
    }

    fn greet(&mut self) {
        let address = self.control.get_ref().peer_addr();
        let greeting = match (self.behaviour.greeting, self.behaviour.is_gateway) {
            (Some(greeting), _) => greeting.to_owned(),
            (None, true) => "220 Longhaul gateway: who to where?".to_owned(),
            (None, false) => match (self.behaviour.greets_with_address, address) {
                (true, Ok(address)) => format!("220 client {}", address.ip()),
                _ => "220 (vsFTPd 3.0.3)".to_owned(),
            },
        };
        self.say(&greeting);
    }

    /// Returns the next command, or `None` if the client has closed the connection.
    fn next_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = self.control.read_until(b'\n', &mut line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\r', '\n']).to_owned();
        read.is_ok_and(|it| it > 0).then_some(line)
    }

    /// If the client waits for a reply, starts a new batch for the next commands of the client.
    fn await_batch(&mut self) {
        if self.client_waits {
            // The client may already have disconnected.
            let _ = self.control.get_ref().peek(&mut [0]);
            thread::sleep(BATCH_GAP);
            self.state().batches.push(Vec::new());
        }
    }

    fn has_nothing_more(&self) -> bool {
        let client = self.control.get_ref();
        client.set_nonblocking(true).expect("a socket");
        let is_empty = client.peek(&mut [0]).is_err();
        client.set_nonblocking(false).expect("a socket");
        is_empty && self.control.buffer().is_empty()
    }

    fn say(&mut self, line: &str) {
        let is_final = !line.starts_with('1');
        let records_batches = self.behaviour.is_gateway || self.behaviour.records_batches;
        self.client_waits = records_batches && is_final && self.has_nothing_more();
        // The client may already have disconnected.
        let _ = self
            .control
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("whole")
    }

    /// Executes a command. Returns whether the connection stays open.
    fn obey(&mut self, line: &str) -> bool {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let path = argument
            .trim_start_matches("-a ")
            .trim_matches('/')
            .to_owned();
        let path = match (self.behaviour.trailing_blank, path.strip_suffix(' ')) {
            (Some(trailing_blank), Some(rest)) => format!("{rest}{trailing_blank}"),
            _ => path,
        };
        let mut state = self.state();
        state.verbs.push(verb.to_owned());
        if let Some(batch) = state.batches.last_mut() {
            batch.push(verb.to_owned());
        }
        drop(state);
        match self.behaviour.replies.get(verb) {
            Some(&"") => return true,
            Some(reply) => {
                self.say(reply);
                return true;
            }
            None => {}
        }
        match verb {
            "USER" => {
                argument.clone_into(&mut self.user);
                self.say("331 password");
            }
            "PASS" if self.behaviour.only_user.is_some_and(|it| it != self.user) => {
                self.say("530 Login incorrect");
            }
            "PASS" if self.behaviour.refuses_password.is_some() => {
                self.say(self.behaviour.refuses_password.expect("it is some"));
                return false;
            }
            "PASS" => {
                self.say("230 in");
                return !self.behaviour.ends_after_login;
            }
            "FEAT" => self.features(),
            "PWD" => self.say("257 \"/\""),
            "CWD" => {
                let is_there = path.is_empty() || self.state().directories.contains(&path);
                self.say(if is_there { "250 there" } else { "550 no" });
            }
            "MKD" => {
                let is_made = self.state().make_directory(path);
                self.say(if is_made { "257 \"made\"" } else { "550 no" });
            }
            "EPSV" | "PASV" => self.listen(verb),
            "PORT" | "EPRT" => self.take_port(argument),
            "REST" => {
                self.rest = argument.parse().expect("a number");
                self.say("350 go on");
            }
            "STOR" => self.store(path),
            "RETR" => self.retrieve(&path),
            "LIST" | "MLSD" => self.list(verb, &path),
            "XMD5" => self.hash(&path),
            "SIZE" => self.fact(&path, |(content, _)| content.len().to_string()),
            "MDTM" if !argument.starts_with("20") => self.fact(&path, |(_, time)| time.clone()),
            "MFMT" => {
                let (time, path) = argument.split_once(' ').expect("a time and a path");
                if let Some(file) = self.state().files.get_mut(path) {
                    file.1 = time.to_owned();
                }
                self.say("213 set");
            }
            "RNFR" => {
                self.from = Some(path);
                self.say("350 to what?");
            }
            "RNTO" => {
                let from = self.from.take().unwrap_or_default();
                if self.behaviour.refuses_replacing_rename && self.state().files.contains_key(&path)
                {
                    self.say("553 it is there");
                    return true;
                }
                let file = self.state().files.remove(&from);
                let is_there = file.is_some();
                self.state().files.extend(file.map(|it| (path, it)));
                self.say(if is_there { "250 renamed" } else { "550 no" });
                return !self.behaviour.ends_after_rename;
            }
            "DELE" => {
                let is_there = self.state().files.remove(&path).is_some();
                self.say(if is_there { "250 gone" } else { "550 no" });
            }
            "QUIT" => {
                self.say("221 bye");
                return false;
            }
            "TYPE" | "OPTS" | "STAT" => self.say("200 fine"),
            _ => self.say("502 what?"),
        }
        true
    }

    fn features(&mut self) {
        let listing = match self.behaviour.hides {
            Some(_) => "",
            None => " MLST type*;size*;modify*;\r\n",
        };
        let hashes = match self.behaviour.hash_suffix {
            Some(_) => " XMD5\r\n",
            None => "",
        };
        self.say(&format!(
            "211-can\r\n{listing}{hashes} SIZE\r\n MDTM\r\n MFMT\r\n REST STREAM\r\n EPSV\r\n211 end"
        ));
    }

    fn fact(&mut self, path: &str, fact: impl Fn(&(Vec<u8>, String)) -> String) {
        let refused = self.state().refused_questions;
        if refused > 0 {
            self.state().refused_questions = refused - 1;
            return self.say("450 not now");
        }
        let found = self.state().files.get(path).map(fact);
        self.say(&found.map_or("550 no such file".to_owned(), |it| format!("213 {it}")));
    }

    fn hash(&mut self, path: &str) {
        let behind = self.behaviour.hash_suffix;
        let hash = self
            .state()
            .files
            .get(path)
            .zip(behind)
            .map(|(file, behind)| {
                let digest = Md5::digest([&file.0[..], behind].concat());
                digest
                    .iter()
                    .map(|it| format!("{it:02X}"))
                    .collect::<String>()
            });
        self.say(&hash.map_or("550 no hash".to_owned(), |it| format!("250 {it}")));
    }
}

/// Longest time between two consecutive commands of one batch.
const BATCH_GAP: Duration = Duration::from_millis(10);
