//! The thread that moves packets between the sites. It reads frames, passes their packets through
//! the emulated paths, and writes frames.
//!
//! The thread waits for frames and for the next arrival with nanosecond timeouts. It has real-time
//! priority if the system permits it. After each delivery, the thread waits at least for the time
//! [`WanConfig::coalesce`](super::WanConfig) before it delivers the next packet. At high rates,
//! several packets then leave as one frame.

use std::{
    io::{self, IoSlice, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        socket::{MsgFlags, recv},
        uio::writev,
    },
};
use wansim::{Duplex, PathConfig};

use super::{
    capture::{self, Capture, CaptureOptions, CaptureTap, EndTap},
    config::{Direction, Site, WanConfig},
    error::WanError,
    frame::{Frame, FrameSegment},
    report::{BusyMeter, OverloadCounters, WanReport},
    run::SegmentRun,
    sys,
};

/// Handle of the running thread. Drop stops the thread.
#[derive(Debug)]
pub(super) struct Emulator {
    orders: OrderSender,
    thread: Option<thread::JoinHandle<()>>,
}

/// Sender of orders to the emulator's thread.
#[derive(Debug, Clone)]
struct OrderSender {
    sender: mpsc::Sender<ThreadOrder>,
    wake: Arc<EventFd>,
}

/// An order to the emulator's thread.
enum ThreadOrder {
    Configure(Direction, Box<PathConfig>, mpsc::Sender<()>),
    Report(mpsc::Sender<WanReport>),
    Capture(u64, Box<CaptureTap>, mpsc::Sender<()>),
    EndCapture(u64),
    Stop,
}

impl Emulator {
    /// Starts the thread. `sockets` are the packet sockets of site A's wire and of site B's wire.
    pub(super) fn start(sockets: [OwnedFd; 2], config: &WanConfig) -> Result<Self, WanError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags)
            .map_err(WanError::io("making an event descriptor"))?;
        let wake = Arc::new(wake);
        let (sender, inbox) = mpsc::channel();
        let (config, thread_wake) = (config.clone(), Arc::clone(&wake));
        let thread = thread::Builder::new()
            .name("wan".to_owned())
            .spawn(move || EmulatorLoop::new(sockets, &config, inbox, thread_wake).run())
            .map_err(WanError::io("starting the emulator's thread"))?;
        Ok(Self {
            orders: OrderSender { sender, wake },
            thread: Some(thread),
        })
    }

    /// Changes the settings of one direction. The new settings apply when the function returns.
    pub(super) fn configure(&self, direction: Direction, config: PathConfig) {
        self.ask(|reply| ThreadOrder::Configure(direction, Box::new(config), reply));
    }

    /// Returns the current settings and the counters so far.
    pub(super) fn report(&self) -> WanReport {
        self.ask(ThreadOrder::Report)
    }

    /// Starts a capture at a site. The capture is running when the function returns.
    pub(super) fn capture(
        &self,
        site: Site,
        file: impl Write + Send + 'static,
        options: CaptureOptions,
    ) -> Result<Capture, WanError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let orders = self.orders.clone();
        let end = EndTap(Box::new(move || {
            orders.give(ThreadOrder::EndCapture(number))
        }));
        let (capture, tap) = capture::start(site, file, options, end)?;
        self.ask(|reply| ThreadOrder::Capture(number, Box::new(tap), reply));
        Ok(capture)
    }

    fn ask<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> ThreadOrder) -> T {
        let (reply, answer) = mpsc::channel();
        self.orders.give(order(reply));
        answer
            .recv()
            .expect("the emulator's thread runs until it is dropped")
    }
}

impl OrderSender {
    fn give(&self, order: ThreadOrder) {
        // If the thread has ended, its answer is missing.
        let _ = self.sender.send(order);
        let _ = self.wake.write(1);
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.orders.give(ThreadOrder::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the emulator's thread.
struct EmulatorLoop {
    sockets: [OwnedFd; 2],
    paths: Duplex<FrameSegment>,
    coalesce: Duration,
    inbox: mpsc::Receiver<ThreadOrder>,
    wake: Arc<EventFd>,
    last_flush: Option<Instant>,
    last_receive: Option<Instant>,
    buffer: FrameBuffer,
    /// Buffer for headers, and for corrupted packets.
    scratch: Vec<u8>,
    load: [OverloadCounters; 2],
    meter: BusyMeter,
    /// Taps of the running captures, each with the number of its capture.
    taps: Vec<(u64, CaptureTap)>,
}

impl EmulatorLoop {
    fn new(
        sockets: [OwnedFd; 2],
        config: &WanConfig,
        inbox: mpsc::Receiver<ThreadOrder>,
        wake: Arc<EventFd>,
    ) -> Self {
        let path = |direction: Direction| {
            let index = direction.index();
            (
                config.paths[index].clone(),
                config.seed.wrapping_add(index as u64),
            )
        };
        Self {
            sockets,
            paths: Duplex::new([path(Direction::AToB), path(Direction::BToA)], config.radio),
            coalesce: config.coalesce,
            inbox,
            wake,
            last_flush: None,
            last_receive: None,
            buffer: FrameBuffer::default(),
            scratch: Vec::new(),
            load: [OverloadCounters::default(); 2],
            meter: BusyMeter::start(sys::make_real_time()),
            taps: Vec::new(),
        }
    }

    fn run(mut self) {
        loop {
            let ready = self.wait();
            self.meter.woke(Instant::now());
            if ready[2] && !self.obey() {
                return;
            }
            for direction in Direction::BOTH {
                if ready[direction.from().index()] {
                    self.receive(direction);
                }
            }
            let now = Instant::now();
            if self.next_flush().is_some_and(|at| at <= now) {
                self.flush(now);
            }
            self.taps.retain_mut(|(_, tap)| tap.turn(now));
            self.meter.sleeps(Instant::now());
        }
    }

    /// Waits for frames, for orders, or for the time of the next arrival. Returns whether socket A,
    /// socket B and the wake-up descriptor are ready.
    fn wait(&self) -> [bool; 3] {
        let flush = self.next_flush();
        let now = Instant::now();
        // In a dense stream, a wake-up for each frame would take more time than the frame itself.
        if let Some(rest) = self.last_receive.map(|last| last + RECEIVE_GAP)
            && rest > now
        {
            let rest = flush.map_or(rest, |flush| flush.min(rest));
            let _ = ppoll(
                &mut [],
                Some(rest.saturating_duration_since(now).into()),
                None,
            );
        }
        let taps = self.taps.iter().filter_map(|(_, tap)| tap.due());
        let next = flush.into_iter().chain(taps).min();
        let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
        let readable = PollFlags::POLLIN;
        let [a, b] = &self.sockets;
        let mut fds = [a.as_fd(), b.as_fd(), self.wake.as_fd()].map(|fd| PollFd::new(fd, readable));
        match ppoll(&mut fds, timeout.map(Into::into), None) {
            Ok(_) => fds.map(|fd| fd.any().unwrap_or(false)),
            // A signal interrupted the call, so no descriptor is known to be ready.
            Err(_) => [false; 3],
        }
    }

    /// Returns the later of two times: the time at which the next packet is due, and the end of the
    /// coalescing time. Returns `None` without packets.
    fn next_flush(&self) -> Option<Instant> {
        let due = self.paths.next_arrival()?;
        Some(
            self.last_flush
                .map_or(due, |last| due.max(last + self.coalesce)),
        )
    }

    /// Executes the queued orders. Returns false if the thread must end.
    fn obey(&mut self) -> bool {
        let _ = self.wake.read();
        while let Ok(order) = self.inbox.try_recv() {
            // The thread that sent the order has possibly stopped waiting for the reply.
            match order {
                ThreadOrder::Configure(direction, config, reply) => {
                    let path_direction = direction.path_direction();
                    self.paths
                        .configure(path_direction, *config, Instant::now());
                    let _ = reply.send(());
                }
                ThreadOrder::Report(reply) => {
                    let report = self.report();
                    let _ = reply.send(report);
                }
                ThreadOrder::Capture(number, tap, reply) => {
                    self.taps.push((number, *tap));
                    let _ = reply.send(());
                }
                ThreadOrder::EndCapture(number) => self.taps.retain(|(tap, _)| *tap != number),
                ThreadOrder::Stop => return false,
            }
        }
        true
    }

    fn report(&mut self) -> WanReport {
        for site in Site::BOTH {
            // Frames from site A travel in the direction A to B.
            let dropped = sys::packets_dropped(self.sockets[site.index()].as_fd()).unwrap_or(0);
            self.load[site.index()].receive_drops += dropped;
        }
        self.paths.catch_up(Instant::now());
        self.meter.report(&self.paths, &self.load)
    }

    /// Reads frames from a site, and passes their packets to the path. Reads at most
    /// [`FRAMES_PER_TURN`] frames, so that the opposite site does not wait long.
    fn receive(&mut self, direction: Direction) {
        let index = direction.index();
        for _ in 0..FRAMES_PER_TURN {
            // `EAGAIN` means that no further frame is available now. Other errors may last, for
            // example while an interface is down.
            let Ok(bytes) = self.buffer.receive(&self.sockets[index]) else {
                return;
            };
            let load = &mut self.load[index];
            load.frames_in += 1;
            let Some(frame) = bytes.and_then(|bytes| Frame::read(bytes).ok()) else {
                load.malformed += 1;
                continue;
            };
            if !frame.crosses_wan() {
                load.local += 1;
                continue;
            }
            let now = Instant::now();
            self.last_receive = Some(now);
            let frame = Rc::new(frame);
            for index in 0..frame.segments() {
                let segment = FrameSegment {
                    frame: Rc::clone(&frame),
                    index,
                    flipped_bit: None,
                };
                for (_, tap) in &mut self.taps {
                    if tap.site == direction.from() {
                        tap.note(&SegmentRun::new(segment.clone()), now);
                    }
                }
                self.paths.send(direction.path_direction(), segment, now);
            }
        }
    }

    /// Delivers all packets that are due.
    fn flush(&mut self, now: Instant) {
        self.last_flush = Some(now);
        for direction in Direction::BOTH {
            let path_direction = direction.path_direction();
            let due = self.paths.next_arrival_of(path_direction);
            let delivered = self.paths.counters(path_direction).delivered;
            let mut run: Option<SegmentRun> = None;
            while let Some(segment) = self.paths.poll(path_direction, now) {
                let next = match &mut run {
                    Some(run) => run.extend(segment),
                    None => Some(segment),
                };
                if let Some(segment) = next
                    && let Some(ended) = run.replace(SegmentRun::new(segment))
                {
                    self.emit(direction, &ended);
                }
            }
            if let Some(run) = run {
                self.emit(direction, &run);
            }
            if let Some(due) = due {
                let packets = self.paths.counters(path_direction).delivered - delivered;
                let late = now
                    .saturating_duration_since(due)
                    .saturating_sub(self.coalesce);
                self.load[direction.index()].delivered_late(packets, late);
            }
        }
    }

    fn emit(&mut self, direction: Direction, run: &SegmentRun) {
        let site = direction.from().other();
        let to = &self.sockets[site.index()];
        let frame = run.render(&mut self.scratch);
        let parts = [&frame.vnet[..], frame.header, frame.payload].map(IoSlice::new);
        let load = &mut self.load[direction.index()];
        match writev(to, &parts) {
            Ok(_) => {
                load.frames_out += 1;
                let taps = self.taps.iter_mut().map(|(_, tap)| tap);
                for tap in taps.filter(|tap| tap.site == site) {
                    tap.note(run, Instant::now());
                }
            }
            Err(_) => load.send_failures += 1,
        }
    }
}

/// Buffer for received frames. The frames are slices of the buffer, so that no bytes are copied.
#[derive(Default)]
struct FrameBuffer {
    room: BytesMut,
}

impl FrameBuffer {
    /// Receives the next frame. Returns `None` for a frame that was too long.
    fn receive(&mut self, socket: &OwnedFd) -> io::Result<Option<Bytes>> {
        if self.room.len() < LONGEST_FRAME {
            self.room = BytesMut::zeroed(BUFFER_BYTES);
        }
        let fd = socket.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let length = loop {
            match recv(fd, &mut self.room[..LONGEST_FRAME], flags) {
                Err(Errno::EINTR) => {}
                result => break result?,
            }
        };
        Ok((length <= LONGEST_FRAME).then(|| self.room.split_to(length).freeze()))
    }
}

/// Minimum time between two reads of the sockets while frames arrive. The first frame after a pause
/// is read at once. All further frames are read with a delay of at most this time.
const RECEIVE_GAP: Duration = Duration::from_micros(100);

/// Maximum number of frames read from one site before the thread reads from the opposite site.
const FRAMES_PER_TURN: usize = 64;

/// Longest frame in bytes, rounded up. A frame consists of a `virtio_net_hdr`, an Ethernet header
/// with a VLAN tag, and an IP packet.
const LONGEST_FRAME: usize = 66 << 10;

/// Size of the receive buffer in bytes. The end of the buffer stays unused if it is too short for a
/// frame. The unused end is a small fraction of the buffer.
const BUFFER_BYTES: usize = 1 << 20;
