//! Captures of a site's packets, written to a pcap file.
//!
//! The emulator's thread copies the first bytes of each packet and passes the copies to a writing
//! thread in batches. If the disk is slower than the traffic, the emulator's thread drops copies
//! and counts them. A capture therefore never delays the traffic.

use std::{
    fmt,
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, TrySendError},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use pcap_file::{
    DataLink, Endianness, PcapError, TsResolution,
    pcap::{PcapHeader, PcapPacket, PcapWriter},
};
use serde::{Deserialize, Serialize};

use super::{config::Site, error::WanError, run::SegmentRun};

/// Settings of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureOptions {
    /// Number of bytes to keep of each packet, starting with its Ethernet header. The default is
    /// 128. After Ethernet (14), IPv6 (40) and UDP (8), more than 64 bytes remain for the payload.
    pub snap_bytes: u32,
    /// Number of packets after which the capture ends. The default is no limit.
    pub packets: Option<u64>,
}

/// The size of a finished capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureReport {
    /// Number of packets in the file.
    pub packets: u64,
    /// Number of packets that the file lacks because the disk was too slow.
    pub left_out: u64,
}

/// A running capture. Drop ends the capture.
#[derive(Debug)]
pub struct Capture {
    writer: Option<thread::JoinHandle<Result<u64, PcapError>>>,
    left_out: Arc<AtomicU64>,
    end: EndTap,
}

impl Capture {
    /// Returns whether the capture has ended without a call of [`finish`](Self::finish). Reasons
    /// are that the capture has all its packets, that the WAN was removed, or that the file cannot
    /// be written.
    pub fn has_ended(&self) -> bool {
        self.writer
            .as_ref()
            .is_none_or(|writer| writer.is_finished())
    }

    /// Ends the capture and completes the file.
    ///
    /// # Errors
    /// [`WanError::Io`] if the file could not be written. The file keeps the packets that were
    /// written before the error.
    pub fn finish(mut self) -> Result<CaptureReport, WanError> {
        let packets = self.end().map_err(failed)?;
        Ok(CaptureReport {
            packets,
            left_out: self.left_out.load(Ordering::Relaxed),
        })
    }

    fn end(&mut self) -> Result<u64, PcapError> {
        (self.end.0)();
        let Some(writer) = self.writer.take() else {
            return Ok(0);
        };
        writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.writer.is_some() {
            let _ = self.end();
        }
    }
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            snap_bytes: 128,
            packets: None,
        }
    }
}

/// Function that ends the tap of a capture. A tap copies packets in the emulator's thread. Packets
/// that the tap has already copied are still written. If the emulator's thread has ended, its taps
/// have ended, too.
pub(super) struct EndTap(pub(super) Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for EndTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndTap")
    }
}

/// Tap of a capture: copies packets in the emulator's thread.
#[derive(Debug)]
pub(super) struct CaptureTap {
    pub(super) site: Site,
    snap: usize,
    wanted: u64,
    /// Start of the capture in two forms: the time of the monotonic clock, and the time since 1970.
    /// Packet times are computed from the monotonic clock, and therefore never decrease.
    epoch: (Instant, Duration),
    batch: PacketBatch,
    batch_begun: Instant,
    batches: mpsc::SyncSender<PacketBatch>,
    left_out: Arc<AtomicU64>,
    scratch: Vec<u8>,
    is_writer_gone: bool,
}

/// Copies of consecutive packets.
#[derive(Debug, Default)]
struct PacketBatch {
    bytes: Vec<u8>,
    packets: Vec<CapturedPacket>,
}

/// Sizes of a packet in a batch, and the time at which the tap copied the packet.
#[derive(Debug)]
struct CapturedPacket {
    at: Duration,
    kept_bytes: usize,
    whole_bytes: usize,
}

/// Starts the thread that writes the captured packets.
pub(super) fn start(
    site: Site,
    file: impl Write + Send + 'static,
    options: CaptureOptions,
    end: EndTap,
) -> Result<(Capture, CaptureTap), WanError> {
    let header = PcapHeader {
        // Some readers refuse packets whose length on the wire exceeds this value.
        snaplen: LONGEST_SNAP,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::native(),
        ..PcapHeader::default()
    };
    let file = PcapWriter::with_header(BufWriter::new(file), header).map_err(failed)?;
    let (batches, inbox) = mpsc::sync_channel(BATCHES_WAITING);
    let writer = thread::Builder::new()
        .name("capture".to_owned())
        .spawn(move || write(file, &inbox))
        .map_err(WanError::io("starting a capture's thread"))?;
    let left_out = Arc::new(AtomicU64::new(0));
    let now = Instant::now();
    let tap = CaptureTap {
        site,
        snap: options.snap_bytes.min(LONGEST_SNAP) as usize,
        wanted: options.packets.unwrap_or(u64::MAX),
        epoch: (
            now,
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        ),
        batch: PacketBatch::default(),
        batch_begun: now,
        batches,
        left_out: Arc::clone(&left_out),
        scratch: Vec::new(),
        is_writer_gone: false,
    };
    let capture = Capture {
        writer: Some(writer),
        left_out,
        end,
    };
    Ok((capture, tap))
}

impl CaptureTap {
    /// Copies the packets of a run into the current batch.
    pub(super) fn note(&mut self, run: &SegmentRun, now: Instant) {
        let at = self.epoch.1 + now.saturating_duration_since(self.epoch.0);
        for packet in run.packets() {
            if self.wanted == 0 {
                return;
            }
            self.wanted -= 1;
            if self.batch.packets.is_empty() {
                self.batch_begun = now;
            }
            let whole_bytes = packet.write_packet(self.snap, &mut self.scratch);
            self.batch.bytes.extend_from_slice(&self.scratch);
            self.batch.packets.push(CapturedPacket {
                at,
                kept_bytes: self.scratch.len(),
                whole_bytes,
            });
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.hand_over();
            }
        }
    }

    /// Returns the time at which [`Self::turn`] must be called next. Returns `None` while no packet
    /// waits.
    pub(super) fn due(&self) -> Option<Instant> {
        let waits = !self.batch.packets.is_empty();
        waits.then(|| self.batch_begun + BATCH_TIME)
    }

    /// Sends the batch to the writing thread if the batch is old enough. Returns false if the
    /// capture has ended.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let is_last = self.wanted == 0;
        if is_last || self.due().is_some_and(|due| due <= now) {
            self.hand_over();
        }
        !is_last && !self.is_writer_gone
    }

    fn hand_over(&mut self) {
        if self.batch.packets.is_empty() {
            return;
        }
        let left_out = match self.batches.try_send(std::mem::take(&mut self.batch)) {
            Ok(()) => return,
            Err(TrySendError::Full(batch)) => batch.packets.len() as u64,
            Err(TrySendError::Disconnected(batch)) => {
                self.is_writer_gone = true;
                batch.packets.len() as u64
            }
        };
        self.left_out.fetch_add(left_out, Ordering::Relaxed);
    }
}

impl Drop for CaptureTap {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Writes batches until the tap is dropped. Returns the number of packets written.
fn write(
    mut file: PcapWriter<BufWriter<impl Write>>,
    batches: &mpsc::Receiver<PacketBatch>,
) -> Result<u64, PcapError> {
    let mut packets = 0;
    while let Ok(batch) = batches.recv() {
        let mut rest = &batch.bytes[..];
        for &CapturedPacket {
            at,
            kept_bytes,
            whole_bytes,
        } in &batch.packets
        {
            let (kept, after) = rest.split_at(kept_bytes);
            rest = after;
            file.write_packet(&PcapPacket::new(at, whole_bytes as u32, kept))?;
            packets += 1;
        }
    }
    file.into_writer().flush().map_err(PcapError::IoError)?;
    Ok(packets)
}

fn failed(error: PcapError) -> WanError {
    let source = match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    };
    WanError::io("writing captured packets")(source)
}

/// Longest frame in bytes, rounded up to tcpdump's snapshot length for whole packets.
const LONGEST_SNAP: u32 = 262_144;

/// Size at which a batch is sent to the writing thread. A batch holds several hundred packets.
const BATCH_BYTES: usize = 64 << 10;

/// Longest time that a packet waits until its batch is full.
const BATCH_TIME: Duration = Duration::from_millis(20);

/// Maximum number of batches that wait for the disk, 16 MB in total. At 1 Gbit/s, with 128 bytes of
/// each packet, the batches hold the packets of almost a second.
const BATCHES_WAITING: usize = 256;
