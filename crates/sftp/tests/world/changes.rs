//! Sessions that read a file while it changes. Each byte of the file is the number of its last
//! change. A READ must not return a byte that is older than a change before the READ.

use std::collections::BTreeMap;

use bytes::Bytes;
use sftp::{
    EarlyReplies, NearSettings,
    packet::{Attrs, ExtendedRequest, OpenFlags, Request, Response, StatusCode},
};

use crate::{
    number,
    pair::Pair,
    rng::Rng,
    server::{Server, ServerTraits, text},
};

/// Pause in ms between two READs. After this pause, a READ shows the changes of other programs.
const AGE_MAX: u64 = 2001;

/// Time in ms after which a READ shows that a file has grown.
const END_AGE_MAX: u64 = 1001;

/// Request of the client that awaits its answer.
enum Sent {
    Open {
        may_write: bool,
    },
    Read {
        reader: Bytes,
        offset: u64,
        /// The file after all changes before the READ.
        file: Vec<u8>,
        /// Numbers of the truncations and of all changes before the READ.
        truncations: usize,
        change: u8,
    },
    Other,
}

struct Session {
    pair: Pair,
    sent: BTreeMap<u32, Sent>,
    /// Offsets of the next READs, by the handles of the readers.
    readers: BTreeMap<Bytes, u64>,
    writers: Vec<Bytes>,
    /// The file after all changes that the client has sent.
    file: Vec<u8>,
    truncations: usize,
    change: u8,
    reads: u64,
}

impl Session {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let early = [EarlyReplies::Off, EarlyReplies::Held, EarlyReplies::All];
        let traits = ServerTraits {
            has_limits: true,
            read_max: 65_536,
            delay_max: rng.pick(&[0, 3, 30]),
            is_sequential: true,
            has_short_reads: rng.one_in(4),
            ..ServerTraits::default()
        };
        let file = vec![1; rng.pick(&[0, 10, 100_000, 700_000])];
        let mut server = Server::new(traits);
        server.files.insert(text("/file"), file.clone());
        let settings = NearSettings {
            early: rng.pick(&early),
            read_ahead_max: rng.pick(&[0, 2 << 20, 64 << 20]),
            ..NearSettings::default()
        };
        let delay = rng.pick(&[0, 1, 20, 300]);
        Self {
            pair: Pair::new(settings, server, delay, rng),
            sent: BTreeMap::new(),
            readers: BTreeMap::new(),
            writers: Vec::new(),
            file,
            truncations: 0,
            change: 1,
            reads: 0,
        }
    }

    fn send(&mut self, request: &Request, sent: Sent) {
        let id = self.pair.send(request);
        self.sent.insert(id, sent);
    }

    fn pass(&mut self, time: u64) -> Result<(), String> {
        for _ in 0..time {
            self.pair.step();
            self.receive()?;
        }
        Ok(())
    }

    /// Waits for the answers to all requests.
    fn settle(&mut self) -> Result<(), String> {
        let last = self.pair.now + 1_000_000;
        while !self.sent.is_empty() {
            self.pass(1)?;
            if self.pair.now > last {
                return Err("no progress".to_owned());
            }
        }
        Ok(())
    }

    /// Waits for the answers to all requests, and until the server has executed the requests of the
    /// read-ahead. If the server answers such a READ with fewer bytes, the end of the file arrives
    /// later.
    fn drain(&mut self) -> Result<(), String> {
        self.settle()?;
        self.pass(500)?;
        while self.pair.is_busy() {
            self.pass(1)?;
        }
        self.settle()
    }

    fn receive(&mut self) -> Result<(), String> {
        while let Some((id, response)) = self.pair.next_answer() {
            if let Some(sent) = self.sent.remove(&id) {
                self.check(sent, response)?;
            }
        }
        Ok(())
    }

    fn check(&mut self, sent: Sent, response: Response) -> Result<(), String> {
        match (sent, response) {
            (Sent::Open { may_write: true }, Response::Handle(handle)) => {
                self.writers.push(handle);
            }
            (Sent::Open { may_write: false }, Response::Handle(handle)) => {
                self.readers.insert(handle, 0);
            }
            (
                Sent::Read {
                    reader,
                    offset,
                    file,
                    truncations,
                    change,
                },
                response,
            ) => {
                self.reads += 1;
                let fresh = file.get(offset as usize..).unwrap_or_default();
                match response {
                    Response::Data(data) => {
                        let data = data.into_bytes();
                        for (at, byte) in data.iter().enumerate() {
                            // Bytes behind the end that the file had at the time of the READ are
                            // from later changes.
                            let oldest = fresh.get(at).copied().unwrap_or(change + 1);
                            if *byte < oldest {
                                let at = offset + at as u64;
                                return Err(format!("byte {at} is of {byte}, not of {oldest}"));
                            }
                        }
                        // After a short answer, there is a gap before the READs that were sent
                        // together with this READ.
                        let end = offset + data.len() as u64;
                        self.readers.entry(reader).and_modify(|next| *next = end);
                    }
                    Response::Status(status) if status.code == StatusCode::EOF => {
                        if !fresh.is_empty() && truncations == self.truncations {
                            let missing = fresh.len();
                            return Err(format!("EOF at {offset}, before {missing} bytes"));
                        }
                        let end = self.file.len() as u64;
                        self.readers.entry(reader).and_modify(|next| *next = end);
                    }
                    response => return Err(format!("READ: {response:.100?}")),
                }
            }
            (Sent::Other, Response::Status(status)) if status.is_ok() => {}
            (_, response) => return Err(format!("the answer is {response:.100?}")),
        }
        Ok(())
    }

    fn open(&mut self, flags: OpenFlags) {
        let path = text("/file");
        let attrs = Attrs::default();
        let may_write = flags.contains(OpenFlags::WRITE);
        self.send(
            &Request::Open { path, flags, attrs },
            Sent::Open { may_write },
        );
    }

    /// Sends READs in sequence.
    fn read(&mut self, count: u64) {
        let readers: Vec<Bytes> = self.readers.keys().cloned().collect();
        if readers.is_empty() {
            return;
        }
        let reader = readers[self.pair.rng.below(readers.len() as u64) as usize].clone();
        let mut offset = self.readers[&reader];
        if self.pair.rng.one_in(8) {
            offset = self.pair.rng.below(self.file.len() as u64 + 1);
        }
        for _ in 0..count {
            let length = 32_768;
            let request = Request::Read {
                handle: reader.clone(),
                offset,
                length,
            };
            let sent = Sent::Read {
                reader: reader.clone(),
                offset,
                file: self.file.clone(),
                truncations: self.truncations,
                change: self.change,
            };
            self.send(&request, sent);
            offset += u64::from(length);
        }
        self.readers.insert(reader, offset);
    }

    fn write(&mut self) {
        let Some(handle) = self.writers.last().cloned() else {
            return;
        };
        let end = self.file.len() as u64;
        let offset = if self.pair.rng.one_in(2) {
            end
        } else {
            self.pair.rng.below(end + 1)
        };
        let length = self.pair.rng.between(1, 40_000);
        self.change += 1;
        let data = vec![self.change; length as usize];
        let new_end = end.max(offset + length) as usize;
        self.file.resize(new_end, 0);
        self.file[offset as usize..(offset + length) as usize].copy_from_slice(&data);
        let request = Request::Write {
            handle,
            offset,
            data: data.into(),
        };
        self.send(&request, Sent::Other);
    }

    fn truncate(&mut self) {
        let size = self.pair.rng.below(self.file.len() as u64 + 1);
        self.file.truncate(size as usize);
        self.truncations += 1;
        let attrs = Attrs {
            size: Some(size),
            ..Attrs::default()
        };
        let path = text("/file");
        let handle = self
            .writers
            .last()
            .filter(|_| size.is_multiple_of(2))
            .cloned();
        let request = match handle {
            Some(handle) => Request::FsetStat { handle, attrs },
            None => Request::SetStat { path, attrs },
        };
        self.send(&request, Sent::Other);
    }

    /// Copies the first half of the file onto its second half, if the second half is older.
    fn copy_data(&mut self) {
        let Some(to) = self.writers.last().cloned() else {
            return;
        };
        let Some((from, _)) = self.readers.first_key_value() else {
            return;
        };
        let half = self.file.len() / 2;
        let request = Request::Extended(ExtendedRequest::CopyData {
            from: from.clone(),
            from_offset: 0,
            length: half as u64,
            to,
            to_offset: half as u64,
        });
        let first = self.file[..half].to_vec();
        if first.iter().zip(&self.file[half..]).any(|(a, b)| a < b) || half == 0 {
            return;
        }
        self.file[half..2 * half].copy_from_slice(&first);
        self.send(&request, Sent::Other);
    }

    /// Runs random requests.
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..60 {
            match self.pair.rng.below(16) {
                0 if self.readers.len() < 3 => self.open(OpenFlags::READ),
                1 if self.writers.len() < 2 => self.open(OpenFlags::WRITE),
                2 if self.pair.rng.one_in(4) => {
                    self.file.clear();
                    self.truncations += 1;
                    self.open(OpenFlags::WRITE.union(OpenFlags::TRUNCATE));
                }
                3 => self.truncate(),
                4..8 => self.write(),
                8 => self.copy_data(),
                9 => {
                    // Another program changes the file, or appends to it.
                    self.drain()?;
                    self.change += 1;
                    let change = self.change;
                    let file = self.pair.server.files.get_mut(&text("/file"));
                    let file = file.expect("the file exists");
                    let appends = self.pair.rng.one_in(2);
                    if !appends {
                        file.fill(change);
                    }
                    file.extend_from_slice(&[change; 20_000]);
                    self.file.clone_from(file);
                    let age = if appends {
                        END_AGE_MAX + self.pair.delay
                    } else {
                        AGE_MAX
                    };
                    self.pass(age)?;
                }
                10 => {
                    let time = self.pair.rng.pick(&[1, 30, 700]);
                    self.pass(time)?;
                }
                11 => self.settle()?,
                _ => {
                    let count = self.pair.rng.between(1, 8);
                    self.read(count);
                }
            }
            if self.change > 250 {
                break;
            }
        }
        self.settle()
    }
}

#[test]
fn reads_return_no_byte_that_is_older_than_a_change_before_them() {
    let first = number("SIEGE_SEED", 0);
    let count = number("SIEGE_CASES", 3000).div_ceil(10);
    let mut failures = Vec::new();
    let (mut reads, mut read_ahead_bytes) = (0, 0);
    for seed in first..first + count {
        let mut session = Session::new(seed);
        if let Err(why) = session.run() {
            failures.push(format!("seed {seed}: {why}"));
        }
        reads += session.reads;
        read_ahead_bytes += session.pair.read_ahead_bytes;
        if failures.len() > 20 {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(reads > 20 * count, "{reads} READs have answers");
    assert!(
        read_ahead_bytes > 10_000 * count,
        "{read_ahead_bytes} bytes"
    );
}
