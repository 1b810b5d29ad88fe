//! Both halves with a link and a server, for tests that send each request by themselves.

use std::{collections::VecDeque, time::Duration};

use sftp::{
    FarSettings, NearSettings, SftpFar, SftpNear, ToFar, ToNear,
    packet::{Greeting, GreetingSource, PacketSplitter, Request, Response},
};

use crate::{rng::Rng, server::Server};

pub(crate) struct Pair {
    pub(crate) rng: Rng,
    /// Time in ms.
    pub(crate) now: u64,
    /// Delay of the link in one direction, in ms.
    pub(crate) delay: u64,
    pub(crate) near: SftpNear,
    far: SftpFar,
    pub(crate) server: Server,
    to_far: VecDeque<(u64, ToFar)>,
    to_near: VecDeque<(u64, ToNear)>,
    splitter: PacketSplitter,
    answers: VecDeque<(u32, Response)>,
    next_id: u32,
    pub(crate) read_ahead_bytes: u64,
}

impl Pair {
    /// Creates a session after its greeting.
    pub(crate) fn new(settings: NearSettings, server: Server, delay: u64, rng: Rng) -> Self {
        let mut pair = Self {
            rng,
            now: 0,
            delay,
            near: SftpNear::new(settings),
            far: SftpFar::new(FarSettings::default()),
            server,
            to_far: VecDeque::new(),
            to_near: VecDeque::new(),
            splitter: PacketSplitter::default(),
            answers: VecDeque::new(),
            next_id: 0,
            read_ahead_bytes: 0,
        };
        let greeting = Greeting {
            version: 3,
            extensions: Vec::new(),
        };
        for piece in greeting.encode(GreetingSource::Client) {
            let received = pair.near.receive_from_client(piece);
            received.expect("INIT is valid");
        }
        let mut version = None;
        while version.is_none() {
            pair.step_link();
            version = pair.near.next_client_bytes();
        }
        pair
    }

    /// Sends a request. Returns its id.
    pub(crate) fn send(&mut self, request: &Request) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        for piece in request.encode(id) {
            self.near.set_time(Duration::from_millis(self.now));
            let received = self.near.receive_from_client(piece);
            received.expect("the client follows the protocol");
        }
        self.collect();
        id
    }

    /// Returns the next answer for the client.
    pub(crate) fn next_answer(&mut self) -> Option<(u32, Response)> {
        self.answers.pop_front()
    }

    /// Sends a request, and waits for its answer.
    pub(crate) fn call(&mut self, request: &Request) -> Response {
        let sent = self.send(request);
        let last = self.now + 1_000_000;
        loop {
            match self.next_answer() {
                Some((id, response)) if id == sent => return response,
                Some((id, _)) => panic!("an answer to request {id}"),
                None => self.step(),
            }
            assert!(self.now < last, "no answer to {request:.100?}");
        }
    }

    /// Returns whether a message or a request is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.to_far.is_empty() || !self.to_near.is_empty() || self.server.next_due().is_some()
    }

    /// Lets 1 ms pass.
    pub(crate) fn step(&mut self) {
        self.step_link();
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(bytes) = self.near.next_client_bytes() {
            self.splitter.push(bytes);
            while let Some(packet) = self.splitter.next_packet().expect("packets are short") {
                let answer = Response::decode(packet).expect("answers are well formed");
                self.answers.push_back(answer);
            }
        }
        while self.near.next_event().is_some() {}
    }

    fn step_link(&mut self) {
        self.now += 1;
        self.near.set_time(Duration::from_millis(self.now));
        let due = self.now + self.delay;
        while let Some(message) = self.near.next_far_message() {
            let encoded = message.encode();
            let message = ToFar::decode(encoded.kind, encoded.into_body());
            let message = message.expect("the message reads back");
            self.to_far.push_back((due, message));
        }
        while let Some(message) = take(&mut self.to_far, self.now) {
            let received = self.far.receive_from_near(message);
            received.expect("the near half follows the protocol");
        }
        while let Some(bytes) = self.far.next_server_bytes() {
            self.server.receive(bytes, self.now, &mut self.rng);
        }
        self.server.run(self.now, &mut self.rng);
        while let Some(bytes) = self.server.output.pop_front() {
            let received = self.far.receive_from_server(bytes);
            received.expect("the server follows the protocol");
        }
        while let Some(message) = self.far.next_near_message() {
            self.to_near.push_back((due, message));
        }
        while let Some(message) = take(&mut self.to_near, self.now) {
            if let ToNear::ReadAhead { data, .. } = &message {
                self.read_ahead_bytes += data.len() as u64;
            }
            let received = self.near.receive_from_far(message);
            received.expect("the far half follows the protocol");
        }
    }
}

fn take<T>(messages: &mut VecDeque<(u64, T)>, now: u64) -> Option<T> {
    let is_due = messages.front().is_some_and(|(due, _)| *due <= now);
    let message = is_due.then(|| messages.pop_front())??;
    Some(message.1)
}
