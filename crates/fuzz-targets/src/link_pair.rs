//! Fuzz target: two endpoints that have each other's keys, and a hostile network between them.
//!
//! The network loses, repeats, reorders, corrupts and truncates datagrams. It also changes the
//! address of an endpoint, and lets time pass. One endpoint may also restart, or encrypt payloads
//! that no correct peer sends.
//!
//! Invariants: the endpoints do not panic. The bytes read from a stream always equal the first
//! bytes that were written to the stream. When the network works again, every finished stream
//! arrives completely, unless an endpoint has abandoned the stream.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::OnceLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use link::{Endpoint, EndpointEvent, Identity, StreamClass, StreamKey, StreamRead};

use crate::{Tape, link_datagrams::endpoint};

/// Maximum number of datagrams in flight in one direction. Further datagrams are lost.
const UNDER_WAY_MAX: usize = 64;
const STREAM_BYTES_MAX: usize = 64 << 10;
/// One-way delay while the network works.
const DELAY: Duration = Duration::from_millis(20);
/// Maximum number of steps until all streams have arrived. The steps take 80 s in total. An
/// endpoint needs less time to replace a lost connection.
const STEPS_MAX: usize = 4_000;

struct Datagram {
    from: SocketAddr,
    bytes: Vec<u8>,
}

/// A stream that an endpoint has opened. The first byte of the stream is its index.
struct Stream {
    side: usize,
    key: StreamKey,
    written: usize,
    is_finished: bool,
    /// Whether the stream was reset, stopped, or lost with its connection.
    is_void: bool,
    read: usize,
    has_ended: bool,
}

struct SimWorld {
    now: Instant,
    sides: [Endpoint; 2],
    addresses: [SocketAddr; 2],
    under_way: [VecDeque<Datagram>; 2],
    streams: Vec<Stream>,
    /// Incoming streams. The key contains the index of the endpoint that reads the stream.
    incoming: HashMap<(usize, StreamKey), Option<usize>>,
    /// Whether an endpoint has deliberately violated the protocol. The only remaining check is that
    /// no endpoint panics.
    is_tainted: bool,
    instance: u64,
    /// Whether the second endpoint has the protocol version of the previous release.
    has_version_2: bool,
}

/// Runs one input, which is a sequence of events.
pub fn run(data: &[u8]) {
    play(data);
}

/// Runs `data`. Returns the number of streams that arrived completely.
pub(crate) fn play(data: &[u8]) -> usize {
    let mut tape = Tape::new(data);
    let options = tape.byte();
    let mut world = SimWorld::new(options & 2 != 0);
    if options & 1 == 0 {
        // Most inputs test more if the connection is up before the first event.
        world.settle(60, |world| world.sides[0].is_up(0));
    }
    for _ in 0..300 {
        if tape.is_over() {
            break;
        }
        world.step(&mut tape);
    }
    if !world.is_tainted {
        let done = world.settle(STEPS_MAX, SimWorld::is_done);
        assert!(done, "a finished stream has not arrived");
    }
    world
        .streams
        .iter()
        .filter(|stream| stream.has_ended)
        .count()
}

impl SimWorld {
    fn new(has_version_2: bool) -> Self {
        let now = Instant::now();
        let addresses = [([10, 77, 0, 1], 4810).into(), ([10, 77, 0, 2], 4810).into()];
        Self {
            now,
            sides: [0, 1].map(|side| make(side, 1, has_version_2, now)),
            addresses,
            under_way: Default::default(),
            streams: Vec::new(),
            incoming: HashMap::new(),
            is_tainted: false,
            instance: 1,
            has_version_2,
        }
    }

    fn step(&mut self, tape: &mut Tape<'_>) {
        let instruction = tape.byte();
        let side = usize::from(instruction & 1);
        let queue = &mut self.under_way[side];
        match instruction >> 1 & 31 {
            0..=2 => self.transmit(side),
            3..=6 => self.deliver(side),
            7 => drop(queue.pop_front()),
            8 => queue.clear(),
            9 => {
                if let Some(first) = queue.front() {
                    let copy = Datagram {
                        from: first.from,
                        bytes: first.bytes.clone(),
                    };
                    queue.push_back(copy);
                }
            }
            10 => {
                if let Some(first) = queue.front_mut() {
                    let at = usize::from(tape.short()) % first.bytes.len();
                    first.bytes[at] ^= 1 << (tape.byte() % 8);
                }
            }
            11 => {
                if let Some(first) = queue.front_mut() {
                    let len = 1 + usize::from(tape.short()) % first.bytes.len();
                    first.bytes.truncate(len);
                }
            }
            12 => {
                if !queue.is_empty() {
                    let by = tape.below(queue.len());
                    queue.rotate_left(by);
                }
            }
            13 | 14 => self.pass(Duration::from_micros(50 << tape.below(8))),
            15 => self.pass(Duration::from_millis(1 << tape.below(13))),
            16..=18 => self.open(side, tape),
            19 => self.write(tape),
            20 => {
                if let Some(stream) = pick(&mut self.streams, tape) {
                    stream.is_finished = true;
                    self.sides[stream.side].finish(stream.key);
                }
            }
            21 => {
                if let Some(stream) = pick(&mut self.streams, tape) {
                    stream.is_void = true;
                    self.sides[stream.side].reset(stream.key, u32::from(tape.byte()));
                }
            }
            22 => {
                let keys: Vec<_> = self.incoming.iter().map(|(key, of)| (*key, *of)).collect();
                if !keys.is_empty() {
                    let ((side, key), of) = keys[tape.below(keys.len())];
                    self.sides[side].stop(key, u32::from(tape.byte()));
                    match of {
                        Some(index) => self.streams[index].is_void = true,
                        // No byte has identified the stream yet, so any stream may be the stopped
                        // one.
                        None => self.streams.iter_mut().for_each(|s| s.is_void = true),
                    }
                }
            }
            23 | 24 => {
                let mut datagram = Vec::new();
                let payload = tape.slice();
                if self.sides[side].seal_payload(0, payload, &mut datagram, self.now) {
                    self.is_tainted = true;
                    let from = self.addresses[side];
                    self.sides[1 - side].handle_datagram(&mut datagram, from, self.now);
                    self.events(1 - side);
                }
            }
            25 => {
                let mut noise = tape.slice().to_vec();
                let from = self.addresses[1 - side];
                self.sides[side].handle_datagram(&mut noise, from, self.now);
            }
            26 => self.addresses[side].set_port(4000 + u16::from(tape.byte() % 4)),
            27 if tape.byte().is_multiple_of(8) => self.restart(side),
            28..=29 => {
                for _ in 0..8 {
                    self.round();
                }
            }
            _ => self.round(),
        }
    }

    /// Runs a working network until `done` returns true, for at most `steps` steps. Returns the
    /// last result of `done`.
    fn settle(&mut self, steps: usize, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..steps {
            if done(self) {
                return true;
            }
            self.round();
        }
        done(self)
    }

    fn is_done(&self) -> bool {
        // An empty stream cannot be identified, because it has no first byte.
        let is_done = |stream: &Stream| {
            stream.is_void || !stream.is_finished || stream.written == 0 || stream.has_ended
        };
        self.streams.iter().all(is_done)
    }

    /// Delivers all datagrams in flight, sends all datagrams that are due, and lets time pass.
    fn round(&mut self) {
        for side in [0, 1] {
            while !self.under_way[side].is_empty() {
                self.deliver(side);
            }
        }
        for side in [0, 1] {
            self.transmit(side);
        }
        self.pass(DELAY);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for side in [0, 1] {
            self.sides[side].handle_timeout(self.now);
            self.events(side);
        }
    }

    fn transmit(&mut self, side: usize) {
        let mut out = Vec::new();
        for _ in 0..UNDER_WAY_MAX {
            out.clear();
            let Some(transmit) = self.sides[side].poll_transmit(&mut out, 8, self.now) else {
                break;
            };
            if transmit.to.ip() != self.addresses[1 - side].ip() {
                continue;
            }
            for bytes in out.chunks(transmit.segment_bytes) {
                if self.under_way[side].len() < UNDER_WAY_MAX
                    && transmit.to == self.addresses[1 - side]
                {
                    let (from, bytes) = (self.addresses[side], bytes.to_vec());
                    self.under_way[side].push_back(Datagram { from, bytes });
                }
            }
        }
        let _ = self.sides[side].next_timeout(self.now);
    }

    fn deliver(&mut self, from: usize) {
        if let Some(mut datagram) = self.under_way[from].pop_front() {
            let to = 1 - from;
            self.sides[to].handle_datagram(&mut datagram.bytes, datagram.from, self.now);
            self.events(to);
        }
    }

    fn open(&mut self, side: usize, tape: &mut Tape<'_>) {
        let class = if tape.byte() & 1 == 0 {
            StreamClass::Bulk
        } else {
            StreamClass::Control
        };
        if self.streams.len() >= 255 {
            return;
        }
        let Some(key) = self.sides[side].open(0, class, self.now) else {
            return;
        };
        self.streams.push(Stream {
            side,
            key,
            written: 0,
            is_finished: false,
            is_void: false,
            read: 0,
            has_ended: false,
        });
        self.append(self.streams.len() - 1, usize::from(tape.short()));
    }

    fn write(&mut self, tape: &mut Tape<'_>) {
        if !self.streams.is_empty() {
            let index = tape.below(self.streams.len());
            self.append(index, usize::from(tape.short()));
        }
    }

    fn append(&mut self, index: usize, len: usize) {
        let stream = &mut self.streams[index];
        if stream.is_finished || stream.written + len > STREAM_BYTES_MAX || len == 0 {
            return;
        }
        let data: Bytes = (stream.written..stream.written + len)
            .map(|at| byte_of(index, at))
            .collect();
        stream.written += len;
        self.sides[stream.side].write(stream.key, data);
    }

    fn restart(&mut self, side: usize) {
        self.instance += 1;
        self.sides[side] = make(side, self.instance, self.has_version_2, self.now);
        for stream in &mut self.streams {
            stream.is_void = true;
        }
        self.incoming.clear();
    }

    fn events(&mut self, side: usize) {
        while let Some(event) = self.sides[side].poll_event() {
            match event {
                EndpointEvent::Resolve { peer } => {
                    let address = Some(self.addresses[1 - side]);
                    self.sides[side].set_address(peer, address, self.now);
                }
                EndpointEvent::Incoming { key, .. } => {
                    self.incoming.insert((side, key), None);
                    self.read(side, key);
                }
                EndpointEvent::Readable { key } => self.read(side, key),
                EndpointEvent::Lost { key, .. } => {
                    let of = self.incoming.get(&(side, key)).copied().flatten();
                    for (index, stream) in self.streams.iter_mut().enumerate() {
                        stream.is_void |=
                            of == Some(index) || (stream.side == side && stream.key == key);
                    }
                }
                EndpointEvent::Connected { .. }
                | EndpointEvent::Remember
                | EndpointEvent::SendDone { .. }
                | EndpointEvent::Stopped { .. } => {}
            }
        }
    }

    fn read(&mut self, side: usize, key: StreamKey) {
        loop {
            match self.sides[side].read(key, 4096, self.now) {
                StreamRead::Data(data) => {
                    if !self.is_tainted {
                        self.check(side, key, &data);
                    }
                }
                StreamRead::End => {
                    let of = self.incoming.get(&(side, key)).copied().flatten();
                    if let Some(index) = of.filter(|_| !self.is_tainted) {
                        let stream = &mut self.streams[index];
                        assert!(stream.is_finished, "an end that was not written");
                        assert_eq!(stream.read, stream.written, "the end before the last byte");
                        stream.has_ended = true;
                    }
                    self.sides[side].finish(key);
                    return;
                }
                StreamRead::Corrupt => {
                    assert!(self.is_tainted, "count or hash did not agree");
                    return;
                }
                StreamRead::Blocked | StreamRead::Reset(_) | StreamRead::Gone => return,
            }
        }
    }

    fn check(&mut self, side: usize, key: StreamKey, data: &[u8]) {
        let Some(of) = self.incoming.get_mut(&(side, key)) else {
            return;
        };
        let index = *of.get_or_insert(usize::from(data[0]));
        let stream = &mut self.streams[index];
        assert_ne!(stream.side, side, "a stream comes from the other side");
        for byte in data {
            assert_eq!(*byte, byte_of(index, stream.read), "at {}", stream.read);
            stream.read += 1;
        }
        assert!(stream.read <= stream.written, "more than was written");
    }
}

fn pick<'a>(streams: &'a mut [Stream], tape: &mut Tape<'_>) -> Option<&'a mut Stream> {
    if streams.is_empty() {
        return None;
    }
    let index = tape.below(streams.len());
    streams.get_mut(index)
}

/// Returns the byte at position `at` of stream `index`. The first byte is the index of the stream,
/// and all later bytes depend on it.
fn byte_of(index: usize, at: usize) -> u8 {
    if at == 0 {
        index as u8
    } else {
        (at as u32)
            .wrapping_mul(2_654_435_761)
            .wrapping_add(index as u32 * 97)
            .to_be_bytes()[0]
    }
}

fn make(side: usize, instance: u64, has_version_2: bool, now: Instant) -> Endpoint {
    static KEYS: OnceLock<[Identity; 2]> = OnceLock::new();
    let keys = KEYS.get_or_init(|| [[1; 32], [2; 32]].map(Identity::from_seed));
    let peer = keys[1 - side].public_key();
    let mut endpoint = endpoint(
        &keys[side],
        &[peer],
        side == 0,
        instance << 1 | side as u64,
        now,
    );
    if has_version_2 && side == 1 {
        endpoint.speak_version_2();
    }
    endpoint
}

/// Returns first inputs for the fuzzer. They contain transfers over a good and a bad network, a
/// restart, a changed address and ended streams. They also contain an incorrect peer and a peer of
/// the previous release.
pub fn seeds() -> Vec<Vec<u8>> {
    let op = |number: u8, side: u8, rest: &[u8]| [&[number << 1 | side], rest].concat();
    let open = |side: u8| op(16, side, &[0, 0x20, 0]);
    let small = |side: u8| op(16, side, &[1, 0, 200]);
    let finish = op(20, 0, &[0]);
    let rounds = op(28, 0, &[]);
    let bad = [
        op(0, 0, &[]),
        op(7, 0, &[]),
        op(9, 0, &[]),
        op(12, 0, &[3]),
        op(10, 0, &[0, 40, 3]),
        op(11, 0, &[0, 90]),
        op(3, 0, &[]),
        op(13, 0, &[4]),
        op(0, 1, &[]),
        op(8, 1, &[]),
        op(15, 0, &[9]),
    ]
    .concat();
    let good = [&open(0)[..], &finish, &rounds, &open(1), &small(1), &rounds].concat();
    let mut seeds = vec![
        [&[0], &good[..]].concat(),
        [&[1], &rounds[..], &open(0), &bad, &finish, &bad].concat(),
        [
            &[0],
            &open(0)[..],
            &bad,
            &op(26, 0, &[1]),
            &rounds,
            &finish,
            &rounds,
        ]
        .concat(),
        [
            &[0],
            &open(0)[..],
            &rounds,
            &op(27, 1, &[0]),
            &rounds,
            &open(0),
            &rounds,
        ]
        .concat(),
        [&[0], &open(0)[..], &rounds, &op(21, 0, &[0, 1]), &rounds].concat(),
        [&[0], &open(0)[..], &rounds, &op(22, 0, &[0, 1]), &rounds].concat(),
        [&[2], &good[..]].concat(),
        [&[3], &rounds[..], &open(0), &bad, &finish, &bad].concat(),
    ];
    for payload in link::fuzzing::payloads() {
        if let Ok(len) = u8::try_from(payload.len())
            && link::fuzzing::decode_frames(&payload) == 1
        {
            let sealed = op(23, 0, &[&[len], &payload[..]].concat());
            for options in [0, 2] {
                seeds.push([&[options], &open(1)[..], &rounds, &sealed, &rounds].concat());
            }
        }
    }
    seeds
}
