//! Data connections for uploads, downloads and listings.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use super::Session;
use crate::{Overwrites, Upload};

impl Session {
    pub(super) fn listen(&mut self, verb: &str) {
        thread::sleep(self.behaviour.port_delay);
        let own = self.control.get_ref().local_addr().expect("connected").ip();
        let listener = TcpListener::bind((own, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        self.passive = Some(listener);
        match (verb, own) {
            ("EPSV", _) => self.say(&format!("229 here (|||{port}|)")),
            (_, IpAddr::V4(own)) => {
                let own = own.to_string().replace('.', ",");
                self.say(&format!("227 here ({own},{},{})", port >> 8, port & 255));
            }
            _ => self.say("522 use EPSV"),
        }
    }

    pub(super) fn take_port(&mut self, argument: &str) {
        let at = port_of_client(argument).expect("an address");
        self.state().ports.push(at.port());
        self.active = Some(at);
        self.say("200 fine");
    }

    fn data(&mut self) -> TcpStream {
        let announces_late = self.behaviour.announces_late;
        if !announces_late && !self.behaviour.rejects_early_data {
            self.say("150 here it comes");
        }
        let data = match (self.passive.take(), self.active.take()) {
            (Some(listener), _) => listener.accept().expect("the client connects").0,
            (_, Some(at)) => {
                thread::sleep(self.behaviour.connect_delay);
                TcpStream::connect(at).expect("the client listens")
            }
            _ => panic!("no port was asked for: RFC 959 would have us connect to the client's own"),
        };
        if announces_late {
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

    pub(super) fn store(&mut self, path: String) {
        let rest = std::mem::take(&mut self.rest);
        let refused = self.state().refused_uploads;
        if refused > 0 {
            self.state().refused_uploads = refused - 1;
            return self.say("553 not now");
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_too_long = self
            .behaviour
            .name_bytes_max
            .is_some_and(|it| name.len() > it);
        if is_too_long || self.behaviour.requires_utf8 && name.contains('\u{fffd}') {
            return self.say("553 no such name");
        }
        if rest > 0 && self.behaviour.refuses_to_append {
            // Before this reply arrives, the client sends bytes, like a client with a long
            // round-trip time.
            thread::sleep(Duration::from_millis(50));
            return self.say("451 append is off");
        }
        let is_there = self.state().files.contains_key(&path);
        let mut path = path;
        match self.behaviour.overwrites {
            Overwrites::Never if rest == 0 && is_there => return self.say("550 it is there"),
            Overwrites::Aside if rest == 0 && is_there => path.push_str(".1"),
            _ => {}
        }
        let mut data = self.data();
        if self.behaviour.rejects_early_data {
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
        if self.behaviour.confirms_early {
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
        thread::sleep(self.behaviour.upload_delay);
        let breaks_after = self.state().breaks_after.pop_front();
        let end = self.read_upload(&data, breaks_after.unwrap_or(usize::MAX), &mut content);
        let is_whole = end.is_ok() && breaks_after.is_none();
        drop(data);
        if is_whole || rest > 0 || self.behaviour.overwrites != Overwrites::AtEnd {
            let file = (content, "20200101000000".to_owned());
            self.state().files.insert(path, file);
        }
        self.note_ahead();
        // Pure-FTPd and ProFTPD send the same codes.
        let reply = if is_whole { "226 done" } else { "451 broken" };
        self.say(self.behaviour.upload_reply.unwrap_or(reply));
        if self.behaviour.confirms_twice {
            self.say("226 done, really");
        }
    }

    /// Appends at most `most` bytes of an upload to `content`, and records the progress of the
    /// upload.
    fn read_upload(
        &self,
        mut data: &TcpStream,
        most: usize,
        content: &mut Vec<u8>,
    ) -> Result<(), io::ErrorKind> {
        let number = {
            let mut state = self.state();
            state.uploads.push(Upload::default());
            state.uploads.len() - 1
        };
        let mut buffer = vec![0; 64 * 1024];
        let mut left = most;
        let end = loop {
            let size = left.min(buffer.len());
            match data.read(&mut buffer[..size]) {
                Ok(0) => break Ok(()),
                Ok(count) => {
                    content.extend_from_slice(&buffer[..count]);
                    left -= count;
                    self.state().uploads[number].bytes += count;
                }
                Err(error) => break Err(error.kind()),
            }
        };
        self.state().uploads[number].end = Some(end);
        end
    }

    pub(super) fn retrieve(&mut self, path: &str) {
        let mut rest = std::mem::take(&mut self.rest);
        if self.behaviour.ignores_offsets {
            rest = 0;
        }
        let Some(content) = self.state().files.get(path).map(|it| it.0.clone()) else {
            return self.say("550 no such file");
        };
        if let Some(reply) = self.behaviour.refuses_parallel_download {
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
        let mut pause = self.behaviour.download_step_delay;
        if number == 2 {
            pause += self.behaviour.second_download_step_delay;
        }
        let step_bytes = self.behaviour.download_step_bytes.unwrap_or(1 << 19);
        let mut chunks = content[rest.min(content.len())..].chunks(step_bytes);
        let breaks = self.behaviour.breaks_download.filter(|it| it.0 == number);
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
        let mut has_endless_downloads = self.behaviour.has_endless_downloads;
        while has_endless_downloads {
            has_endless_downloads = data.write_all(&[b'z'; 65_536]).is_ok();
            *self.state().sent.entry(number).or_default() += 65_536;
        }
        drop(data);
        self.state().downloading -= 1;
        if number == 1 {
            self.state().refused_questions = self.behaviour.refused_questions;
        }
        if self
            .behaviour
            .replaces_after_download
            .take_if(|it| *it == path)
            .is_some()
        {
            let file = (b"another content".to_vec(), "20260506070809".to_owned());
            self.state().files.insert(path.to_owned(), file);
        }
        self.note_ahead();
        self.say(if is_whole { "226 done" } else { "426 broken" });
    }

    pub(super) fn list(&mut self, verb: &str, path: &str) {
        if self.behaviour.unreadable == Some(path) {
            self.say("550 not you");
            return;
        }
        let straight = match self.behaviour.has_loops {
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
        if !is_machine && self.behaviour.hides != Some(path) {
            lines.push_str("drwxr-xr-x 2 0 0 4096 Jan 02 03:04 .\r\n");
        }
        if self.behaviour.has_loops {
            lines.push_str("type=dir; loop\r\n");
        }
        let state = self.state();
        let is_hidden = self.behaviour.hides == Some(path);
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

/// Parses the client's address from the argument of `PORT` or `EPRT`.
fn port_of_client(argument: &str) -> Option<SocketAddr> {
    if let Some(extended) = argument.strip_prefix('|') {
        let mut parts = extended.split('|').skip(1);
        let ip: IpAddr = parts.next()?.parse().ok()?;
        return Some(SocketAddr::new(ip, parts.next()?.parse().ok()?));
    }
    let numbers: Vec<u8> = argument.split(',').flat_map(str::parse).collect();
    let [a, b, c, d, high, low] = numbers.try_into().ok()?;
    let port = u16::from_be_bytes([high, low]);
    Some(SocketAddr::from(([a, b, c, d], port)))
}
