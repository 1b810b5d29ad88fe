//! An FTP server that misbehaves as a test wants: real ones do so at moments that no test can choose.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use md5::{Digest as _, Md5};
use mover::{
    location::{Scheme, Server as Place},
    server::{Dial, Door, Password, Route},
};
use net::tls::Verify as VerifyTls;

/// What a server does otherwise than others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manners {
    /// Verbs that are refused, and the reply.
    pub(crate) refuses: BTreeMap<&'static str, &'static str>,
    /// `STOR` is refused where `REST` went ahead.
    pub(crate) refuses_to_append: bool,
    /// The success of an upload comes after its first byte.
    pub(crate) is_hasty: bool,
    /// Listings are those of `ls -la`, and this directory is listed without a line.
    pub(crate) hides: Option<&'static str>,
    /// This directory is not listed.
    pub(crate) unreadable: Option<&'static str>,
    /// Each directory has a directory `loop`, which is itself.
    pub(crate) has_loops: bool,
    /// The connection ends after the log-in.
    pub(crate) leaves_at_once: bool,
    /// The connection ends once a file has got its name.
    pub(crate) leaves_after_naming: bool,
    /// Each upload is followed by a reply that nothing asked for.
    pub(crate) babbles: bool,
    /// Makes MD5 hashes, of the file with this byte behind it.
    pub(crate) hashes: Option<&'static [u8]>,
    /// Takes nothing of an upload for so long,
    pub(crate) stalls: Duration,
    /// and names no port for as long.
    pub(crate) stalls_before: Duration,
    /// Time for half a megabyte of each download.
    pub(crate) slows_downloads: Duration,
    /// Additional time for half a megabyte of the second download.
    pub(crate) slows_second_download: Duration,
    /// Number of a download, and the half megabytes after which it breaks off.
    pub(crate) breaks_download: Option<(usize, usize)>,
    /// Says this to a download while another one is under way.
    pub(crate) refuses_second_download: Option<&'static str>,
    /// Takes `REST`, and sends each file from its beginning.
    pub(crate) ignores_offsets: bool,
    /// Number of questions about files that are refused for now after the first download.
    pub(crate) refuses_facts: usize,
    /// A file becomes another one while it is read.
    pub(crate) changes: Option<&'static str>,
    /// What becomes of a file that an upload would replace.
    pub(crate) overwrites: Overwrites,
    /// Ends a data connection on which bytes come before it has said that the upload begins.
    pub(crate) no_early_data: bool,
    /// It says late that an upload begins, and takes bytes before.
    pub(crate) begins_late: bool,
    /// Takes so many connections at a time.
    pub(crate) connections_max: Option<usize>,
    /// A connection has its room for so long after its end.
    pub(crate) ends_late: Duration,
    /// Says this to a password, and ends the connection.
    pub(crate) refuses_password: Option<&'static str>,
    /// It takes so long to connect to a client's port.
    pub(crate) connects_late: Duration,
    /// It is Pure-FTPd, by its greeting.
    pub(crate) is_pure: bool,
    /// A rename replaces nothing.
    pub(crate) keeps_names: bool,
    /// Longest name that it takes.
    pub(crate) name_bytes_max: Option<usize>,
    /// Takes names as text alone.
    pub(crate) wants_text: bool,
    /// Blanks at the end of a name become this.
    pub(crate) blank: Option<char>,
    /// What it sends of a file has no end.
    pub(crate) is_endless: bool,
    /// Notes the commands that come together, as a gateway does.
    pub(crate) notes_batches: bool,
    /// It is a front door, by its greeting and by how it is reached.
    pub(crate) is_gateway: bool,
}

/// What becomes of a file that an upload would replace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Overwrites {
    /// It is emptied when the upload begins.
    #[default]
    AtOnce,
    /// It is replaced when the upload has ended well.
    AtEnd,
    /// It stays, and the new one has another name.
    Aside,
    /// It stays, and the upload is refused.
    Never,
}

/// A server in memory.
#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    is_gateway: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<String, (Vec<u8>, String)>,
    pub(crate) directories: BTreeSet<String>,
    /// Verbs, in the order in which they came.
    pub(crate) verbs: Vec<String>,
    /// At a gateway, or where batches are noted, the same, those together that came without a wait for an answer.
    pub(crate) batches: Vec<Vec<String>>,
    /// Transfers behind which another one was commanded already.
    pub(crate) ahead: usize,
    pub(crate) connections: usize,
    /// Connections that have not ended.
    pub(crate) open: usize,
    /// Ports that clients have named, in the order in which they came.
    pub(crate) ports: Vec<u16>,
    pub(crate) downloads: usize,
    /// Those that are under way,
    pub(crate) downloading: usize,
    /// and those that were refused for that.
    pub(crate) refused: usize,
    /// Bytes of each download, by its number from 1.
    pub(crate) sent: BTreeMap<usize, usize>,
    /// Number of further questions about files that are refused for now.
    pub(crate) refuses_facts: usize,
    /// Number of further uploads that are refused.
    pub(crate) refuses_uploads: usize,
    /// The next uploads are broken off after so many bytes.
    pub(crate) breaks_after: VecDeque<usize>,
}

impl Scripted {
    pub(crate) fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State::default()));
        let server = Self {
            address,
            state: state.clone(),
            is_gateway: manners.is_gateway,
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (state, manners) = (state.clone(), manners.clone());
                let client = client.expect("a connection");
                thread::spawn(move || {
                    let open = client.try_clone().expect("a socket");
                    let ends_late = manners.ends_late;
                    Connection::serve(client, state.clone(), manners);
                    thread::sleep(ends_late);
                    state.lock().expect("whole").open -= 1;
                    // The client sees the end once there is room.
                    drop(open);
                });
            }
        });
        server
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    pub(crate) fn put(&self, path: &str, content: &[u8]) {
        let file = (content.to_vec(), "20260102030405".to_owned());
        self.state().files.insert(path.to_owned(), file);
    }

    pub(crate) fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.state().files.get(path).map(|it| it.0.clone())
    }

    fn route(&self) -> Route {
        match self.is_gateway {
            true => Route::Gateway(Door {
                host: self.address.ip().to_string(),
                port: self.address.port(),
                has_tls: true,
                is_ours: false,
                network: None,
            }),
            false => Route::Direct,
        }
    }

    pub(crate) fn dial(&self) -> Dial {
        Dial {
            server: Place {
                scheme: Scheme::Ftp,
                user: None,
                host: self.address.ip().to_string(),
                port: self.address.port(),
            },
            route: self.route(),
            user: "me".to_owned(),
            password: Password(b"x".to_vec()),
            verify: VerifyTls::Roots(None),
            is_active: false,
            patience: Duration::from_secs(5),
            stall_max: Duration::from_secs(5),
        }
    }
}

struct Connection {
    control: BufReader<TcpStream>,
    state: Arc<Mutex<State>>,
    manners: Manners,
    passive: Option<TcpListener>,
    active: Option<SocketAddr>,
    rest: usize,
    from: Option<String>,
    /// Nothing more had come when the last command was answered.
    client_waits: bool,
}

impl Connection {
    fn serve(client: TcpStream, state: Arc<Mutex<State>>, manners: Manners) {
        let open = {
            let mut state = state.lock().expect("whole");
            state.connections += 1;
            state.open += 1;
            state.open
        };
        let mut connection = Self {
            control: BufReader::new(client),
            state,
            manners,
            passive: None,
            active: None,
            rest: 0,
            from: None,
            client_waits: false,
        };
        if connection
            .manners
            .connections_max
            .is_some_and(|it| open > it)
        {
            return connection.say("421 too many connections");
        }
        let is_pure = connection.manners.is_pure;
        connection.say(match connection.manners.is_gateway {
            _ if is_pure => "220---------- Welcome to Pure-FTPd ----------\r\n220 in",
            true => "220 Longhaul gateway: who to where?",
            false => "220 (vsFTPd 3.0.3)",
        });
        let mut line = Vec::new();
        connection.await_batch();
        while connection
            .control
            .read_until(b'\n', &mut line)
            .is_ok_and(|it| it > 0)
        {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\r', '\n']).to_owned();
            line.clear();
            if !connection.obey(&text) {
                return;
            }
            connection.await_batch();
        }
    }

    /// Where the client waits for answers, the commands that it sends next are a batch.
    fn await_batch(&mut self) {
        if self.client_waits {
            // The client may have gone.
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
        let notes_batches = self.manners.is_gateway || self.manners.notes_batches;
        self.client_waits = notes_batches && is_final && self.has_nothing_more();
        // The client may have gone.
        let _ = self
            .control
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("whole")
    }

    /// Whether the connection goes on.
    fn obey(&mut self, line: &str) -> bool {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let path = argument
            .trim_start_matches("-a ")
            .trim_matches('/')
            .to_owned();
        let path = match (self.manners.blank, path.strip_suffix(' ')) {
            (Some(blank), Some(rest)) => format!("{rest}{blank}"),
            _ => path,
        };
        let mut state = self.state();
        state.verbs.push(verb.to_owned());
        if let Some(batch) = state.batches.last_mut() {
            batch.push(verb.to_owned());
        }
        drop(state);
        if let Some(reply) = self.manners.refuses.get(verb) {
            self.say(reply);
            return true;
        }
        match verb {
            "USER" => self.say("331 password"),
            "PASS" if self.manners.refuses_password.is_some() => {
                self.say(self.manners.refuses_password.expect("it is some"));
                return false;
            }
            "PASS" => {
                self.say("230 in");
                return !self.manners.leaves_at_once;
            }
            "FEAT" => self.features(),
            "PWD" => self.say("257 \"/\""),
            "CWD" => {
                let is_there = path.is_empty() || self.state().directories.contains(&path);
                self.say(if is_there { "250 there" } else { "550 no" });
            }
            "MKD" => {
                self.state().directories.insert(path);
                self.say("257 \"made\"");
            }
            "EPSV" | "PASV" => self.listen(verb),
            "PORT" => self.take_port(argument),
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
                if self.manners.keeps_names && self.state().files.contains_key(&path) {
                    self.say("553 it is there");
                    return true;
                }
                let file = self.state().files.remove(&from);
                let is_there = file.is_some();
                self.state().files.extend(file.map(|it| (path, it)));
                self.say(if is_there { "250 renamed" } else { "550 no" });
                return !self.manners.leaves_after_naming;
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
        let listing = match self.manners.hides {
            Some(_) => "",
            None => " MLST type*;size*;modify*;\r\n",
        };
        let hashes = match self.manners.hashes {
            Some(_) => " XMD5\r\n",
            None => "",
        };
        self.say(&format!(
            "211-can\r\n{listing}{hashes} SIZE\r\n MDTM\r\n MFMT\r\n REST STREAM\r\n EPSV\r\n211 end"
        ));
    }

    fn fact(&mut self, path: &str, fact: impl Fn(&(Vec<u8>, String)) -> String) {
        let refuses = self.state().refuses_facts;
        if refuses > 0 {
            self.state().refuses_facts = refuses - 1;
            return self.say("450 not now");
        }
        let found = self.state().files.get(path).map(fact);
        self.say(&found.map_or("550 no such file".to_owned(), |it| format!("213 {it}")));
    }

    fn hash(&mut self, path: &str) {
        let behind = self.manners.hashes;
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

    fn listen(&mut self, verb: &str) {
        thread::sleep(self.manners.stalls_before);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        self.passive = Some(listener);
        match verb {
            "EPSV" => self.say(&format!("229 here (|||{port}|)")),
            _ => self.say(&format!(
                "227 here (127,0,0,1,{},{})",
                port >> 8,
                port & 255
            )),
        }
    }

    fn take_port(&mut self, argument: &str) {
        let numbers: Vec<u16> = argument
            .split(',')
            .map(|it| it.parse().expect("a number"))
            .collect();
        let port = numbers[4] << 8 | numbers[5];
        self.state().ports.push(port);
        self.active = Some(SocketAddr::from(([127, 0, 0, 1], port)));
        self.say("200 fine");
    }

    fn data(&mut self) -> TcpStream {
        let begins_late = self.manners.begins_late;
        if !begins_late && !self.manners.no_early_data {
            self.say("150 here it comes");
        }
        let data = match (self.passive.take(), self.active.take()) {
            (Some(listener), _) => listener.accept().expect("the client connects").0,
            (_, Some(at)) => {
                thread::sleep(self.manners.connects_late);
                TcpStream::connect(at).expect("the client listens")
            }
            _ => panic!("no port was asked for: RFC 959 would have us connect to the client's own"),
        };
        if begins_late {
            thread::sleep(Duration::from_millis(100));
            self.say("150 here it comes");
        }
        data
    }

    fn note_ahead(&mut self) {
        let mut arrived = [0; 4096];
        let client = self.control.get_ref();
        client.set_nonblocking(true).expect("a socket");
        let count = client.peek(&mut arrived).unwrap_or(0);
        client.set_nonblocking(false).expect("a socket");
        let commanded = [self.control.buffer(), &arrived[..count]].concat();
        let commanded = String::from_utf8_lossy(&commanded);
        if commanded.contains("STOR") || commanded.contains("RETR") {
            self.state().ahead += 1;
        }
    }

    fn store(&mut self, path: String) {
        let rest = std::mem::take(&mut self.rest);
        let refuses = self.state().refuses_uploads;
        if refuses > 0 {
            self.state().refuses_uploads = refuses - 1;
            return self.say("553 not now");
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_too_long = self
            .manners
            .name_bytes_max
            .is_some_and(|it| name.len() > it);
        if is_too_long || self.manners.wants_text && name.contains('\u{fffd}') {
            return self.say("553 no such name");
        }
        if rest > 0 && self.manners.refuses_to_append {
            // From a distance: the client has sent bytes before it knows.
            thread::sleep(Duration::from_millis(50));
            return self.say("451 append is off");
        }
        let is_there = self.state().files.contains_key(&path);
        let mut path = path;
        match self.manners.overwrites {
            Overwrites::Never if rest == 0 && is_there => return self.say("550 it is there"),
            Overwrites::Aside if rest == 0 && is_there => path.push_str(".1"),
            _ => {}
        }
        let mut data = self.data();
        if self.manners.no_early_data {
            thread::sleep(Duration::from_millis(50));
            data.set_nonblocking(true).expect("a socket option");
            if data.peek(&mut [0]).is_ok_and(|count| count > 0) {
                return self.say("426 that was early");
            }
            data.set_nonblocking(false).expect("a socket option");
            self.say("150 here it comes");
        }
        let mut content = match rest {
            0 => Vec::new(),
            rest => self
                .state()
                .files
                .get(&path)
                .map(|it| it.0[..rest].to_vec())
                .unwrap_or_default(),
        };
        if self.manners.is_hasty {
            let mut first = [0];
            let _ = data.read(&mut first);
            content.push(first[0]);
            self.state()
                .files
                .insert(path, (content, "20200101000000".to_owned()));
            self.say("226 enough");
            thread::sleep(Duration::from_millis(200));
            return;
        }
        thread::sleep(self.manners.stalls);
        let breaks_after = self.state().breaks_after.pop_front();
        let mut taken = (&data).take(breaks_after.unwrap_or(usize::MAX) as u64);
        let is_whole = taken.read_to_end(&mut content).is_ok() && breaks_after.is_none();
        drop(data);
        if is_whole || rest > 0 || self.manners.overwrites != Overwrites::AtEnd {
            let file = (content, "20200101000000".to_owned());
            self.state().files.insert(path, file);
        }
        self.note_ahead();
        // As Pure-FTPd has it, and ProFTPD.
        self.say(if is_whole { "226 done" } else { "451 broken" });
        if self.manners.babbles {
            self.say("226 done, really");
        }
    }

    fn retrieve(&mut self, path: &str) {
        let mut rest = std::mem::take(&mut self.rest);
        if self.manners.ignores_offsets {
            rest = 0;
        }
        let Some(content) = self.state().files.get(path).map(|it| it.0.clone()) else {
            return self.say("550 no such file");
        };
        if let Some(reply) = self.manners.refuses_second_download {
            let mut state = self.state();
            if state.downloading > 0 {
                state.refused += 1;
                drop(state);
                self.passive = None;
                return self.say(reply);
            }
            drop(state);
        }
        let mut data = self.data();
        self.state().downloading += 1;
        self.state().downloads += 1;
        let number = self.state().downloads;
        let mut pause = self.manners.slows_downloads;
        if number == 2 {
            pause += self.manners.slows_second_download;
        }
        let mut chunks = content[rest.min(content.len())..].chunks(1 << 19);
        let breaks = self.manners.breaks_download.filter(|it| it.0 == number);
        let mut steps = 0;
        let is_whole = chunks.all(|chunk| {
            steps += 1;
            if breaks.is_some_and(|(_, after)| steps > after) {
                return false;
            }
            thread::sleep(pause);
            *self.state().sent.entry(number).or_default() += chunk.len();
            data.write_all(chunk).is_ok()
        });
        let mut is_endless = self.manners.is_endless;
        while is_endless {
            is_endless = data.write_all(&[b'z'; 65_536]).is_ok();
            *self.state().sent.entry(number).or_default() += 65_536;
        }
        drop(data);
        self.state().downloading -= 1;
        if number == 1 {
            self.state().refuses_facts = self.manners.refuses_facts;
        }
        if self.manners.changes.take_if(|it| *it == path).is_some() {
            let file = (b"another content".to_vec(), "20260506070809".to_owned());
            self.state().files.insert(path.to_owned(), file);
        }
        self.note_ahead();
        self.say(if is_whole { "226 done" } else { "426 broken" });
    }

    fn list(&mut self, verb: &str, path: &str) {
        if self.manners.unreadable == Some(path) {
            self.say("550 not you");
            return;
        }
        let straight = match self.manners.has_loops {
            true => path.replace("/loop", ""),
            false => path.to_owned(),
        };
        let path = straight.as_str();
        let prefix = match path {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let is_machine = verb == "MLSD";
        let mut lines = String::new();
        if !is_machine && self.manners.hides != Some(path) {
            lines.push_str("drwxr-xr-x 2 0 0 4096 Jan 02 03:04 .\r\n");
        }
        if self.manners.has_loops {
            lines.push_str("type=dir; loop\r\n");
        }
        let state = self.state();
        let is_hidden = self.manners.hides == Some(path);
        let below = |it: &str| -> Option<String> {
            let rest = it.strip_prefix(&prefix)?;
            (!rest.is_empty() && !rest.contains('/') && !is_hidden).then(|| rest.to_owned())
        };
        for name in state.directories.iter().filter_map(|it| below(it)) {
            lines.push_str(&match is_machine {
                true => format!("type=dir; {name}\r\n"),
                false => format!("drwxr-xr-x 2 0 0 4096 Jan 02 03:04 {name}\r\n"),
            });
        }
        for (path, (content, time)) in &state.files {
            let Some(name) = below(path) else { continue };
            let bytes = content.len();
            lines.push_str(&match is_machine {
                true => format!("type=file;size={bytes};modify={time}; {name}\r\n"),
                false => format!("-rw-r--r-- 1 0 0 {bytes} Jan 02 03:04 {name}\r\n"),
            });
        }
        drop(state);
        let mut data = self.data();
        let _ = data.write_all(lines.as_bytes());
        drop(data);
        self.say("226 done");
    }
}

/// Commands that are sent at once arrive within such a time.
const BATCH_GAP: Duration = Duration::from_millis(10);
