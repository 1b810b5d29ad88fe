//! `cargo bench -p longhaul-optimiser --bench store`: speed of the chunk store, and memory of its
//! index.
//!
//! The bench measures the index alone, for a store of 100 GB and for a store of 1 TB with chunks of
//! 16 KiB. It also measures a real store of `--gigabytes` GB in a temporary folder. Each figure
//! comes from one run. A random number generator makes the names for the index, and the figures
//! include the time of the generator. Before a cold read, the kernel drops the files from its page
//! cache.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

use std::{
    fs, hint, io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bench_kit::{
    machine::{self, Moment, ProcessTime},
    options, scratch,
    table::Table,
};
use bytes::Bytes;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use optimiser::{
    chunk::ChunkName,
    store::{
        IdentitySeed, Store, StoreSettings,
        index::{ChunkIndex, RecordLocation},
    },
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Measure the chunk store: memory and speed of its index, and speed of a store on the disk
#[derive(clap::Parser)]
#[command(bin_name = "cargo bench -p longhaul-optimiser --bench store --")]
struct Options {
    /// Gigabytes of content to write to the store on the disk; 0 omits the measurement of that
    /// store
    #[arg(long, default_value_t = 1.0)]
    gigabytes: f64,
    /// Folder for the store [default: a temporary folder]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Omit the measurement of the index
    #[arg(long)]
    no_index: bool,
}

fn main() -> Result<()> {
    let options: Options = options::read();
    println!("{}; seed {SEED}, one run of each\n", machine::describe());
    let (moment, before) = (Moment::now()?, ProcessTime::own()?);
    if !options.no_index {
        let rows = [("100 GB", 1e11), ("1 TB", 1e12)].map(|(size, bytes)| index(size, bytes));
        let head = [
            "index for",
            "entries",
            "bytes/entry",
            "memory",
            "resident",
            "inserts/s",
            "slowest 100",
            "hits/s",
            "misses/s",
            "false hits",
            "segment by names",
            "segment by a pass",
        ];
        println!("{}", Table::new(&head, rows).text());
    }
    if options.gigabytes > 0.0 {
        let folder = match &options.folder {
            Some(folder) => folder.join("longhaul-store-bench"),
            None => scratch::folder("store")?,
        };
        let rows = store(&folder, options.gigabytes);
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let head = ["a store on the disk", "seconds", "chunks/s", "MB/s"];
        println!("{}", Table::new(&head, rows?).text());
    }
    println!("{}", moment.load_since(ProcessTime::own()? - before)?);
    Ok(())
}

/// Measures an index for `bytes` bytes of chunks, and returns the row of its figures.
fn index(size: &str, bytes: f64) -> Vec<String> {
    let entries = (bytes / CHUNK_BYTES as f64) as u64;
    let resident_before = resident_bytes();
    let index = ChunkIndex::new(&[7; 16], entries);
    let (mut slowest, begun) = (Duration::ZERO, Instant::now());
    for group in 0..entries.div_ceil(100) {
        let begun = Instant::now();
        for n in group * 100..entries.min(group * 100 + 100) {
            index.insert(&name(n), location(n));
        }
        slowest = slowest.max(begun.elapsed());
    }
    let inserts = entries as f64 / begun.elapsed().as_secs_f64();
    assert!(index.entries() > entries - 10, "names are different");
    let resident = resident_bytes() - resident_before;
    let (hits, found) = look_ups(&index, |n| n.wrapping_mul(PRIME) % entries);
    assert_eq!(found, LOOK_UPS);
    let (misses, false_hits) = look_ups(&index, |n| entries + n);

    let begun = Instant::now();
    for n in 0..SEGMENT_CHUNKS {
        index.remove(&name(n), location(n));
    }
    let by_names = begun.elapsed();
    let begun = Instant::now();
    index.remove_segment(location(SEGMENT_CHUNKS).segment);
    let by_pass = begun.elapsed();
    let memory = index.memory_bytes();
    vec![
        size.to_owned(),
        format!("{:.1} million", entries as f64 / 1e6),
        format!("{:.2}", memory as f64 / entries as f64),
        format!("{:.0} MB", memory as f64 / 1e6),
        format!("{:.0} MB", resident as f64 / 1e6),
        format!("{:.1} million", inserts / 1e6),
        format!("{:.0} µs", slowest.as_secs_f64() * 1e6),
        format!("{:.1} million", hits / 1e6),
        format!("{:.1} million", misses / 1e6),
        format!("{false_hits} of {LOOK_UPS}"),
        format!("{:.2} ms", by_names.as_secs_f64() * 1e3),
        format!("{:.0} ms", by_pass.as_secs_f64() * 1e3),
    ]
}

/// Returns the number of look-ups per second, and the number of hits.
fn look_ups(index: &ChunkIndex, which: impl Fn(u64) -> u64) -> (f64, u64) {
    let begun = Instant::now();
    let found = (0..LOOK_UPS).filter(|n| index.contains(&name(which(*n))));
    let found = hint::black_box(found.count() as u64);
    (LOOK_UPS as f64 / begun.elapsed().as_secs_f64(), found)
}

/// Measures a store in `folder`, and returns the rows of its figures.
fn store(folder: &Path, gigabytes: f64) -> Result<Vec<Vec<String>>> {
    let chunks = Chunks::new((gigabytes * 1e9) as u64 / CHUNK_BYTES as u64);
    let mut rows = Vec::new();
    let mut row = |what: &str, chunks: u64, took: Duration| {
        let seconds = took.as_secs_f64();
        let rate = chunks as f64 / seconds;
        rows.push(vec![
            what.to_owned(),
            format!("{seconds:.3}"),
            format!("{rate:.0}"),
            format!("{:.0}", rate * CHUNK_BYTES as f64 / 1e6),
        ]);
    };

    fs::create_dir_all(folder)?;
    let (plain, begun) = (folder.join("plain"), Instant::now());
    let file = fs::File::create(&plain)?;
    for batch in 0..chunks.count / 64 {
        let bytes: Vec<u8> = (0..64)
            .flat_map(|n| chunks.content(batch * 64 + n))
            .collect();
        file.write_all_at(&bytes, batch * bytes.len() as u64)?;
    }
    row("write a plain file", chunks.count, begun.elapsed());
    fs::remove_file(&plain)?;

    let begun = Instant::now();
    for n in 0..chunks.count {
        hint::black_box(chunks.make(n));
    }
    row("make chunks and their names", chunks.count, begun.elapsed());

    let (store, begun) = (open(folder)?, Instant::now());
    for n in 0..chunks.count {
        // The bench waits for the queue. A gateway would drop the chunk instead.
        while n % 64 == 0 && store.counts().queue_bytes > QUEUE_BYTES / 2 {
            thread::sleep(Duration::from_micros(100));
        }
        let (name, content) = chunks.make(n);
        store.put(name, content);
    }
    store.settle();
    row("make and put", chunks.count, begun.elapsed());
    ensure!(store.counts().written == chunks.count, "none is dropped");

    for is_cold in [false, true] {
        let state = if is_cold { "cold" } else { "cached" };
        for (what, in_order) in [("in order", true), ("at random", false)] {
            if is_cold {
                forget_files(folder)?;
            }
            // Cold random reads can take long.
            let count = if in_order {
                chunks.count
            } else {
                chunks.count.min(50_000)
            };
            let mut random = Pcg64Mcg::seed_from_u64(SEED);
            let names: Vec<ChunkName> = (0..count)
                .map(|n| {
                    if in_order {
                        n
                    } else {
                        random.random_range(0..chunks.count)
                    }
                })
                .map(|n| chunks.make(n).0)
                .collect();
            let begun = Instant::now();
            for name in &names {
                let found = store.get(name, CHUNK_BYTES);
                ensure!(found.is_some(), "a chunk is lost");
            }
            row(&format!("get {what}, {state}"), count, begun.elapsed());
        }
    }
    drop(store);

    for is_cold in [false, true] {
        let state = if is_cold { "cold" } else { "cached" };
        if is_cold {
            forget_files(folder)?;
        }
        let took = rebuild(folder, chunks.count)?;
        row(
            &format!("rebuild from footers, {state}"),
            chunks.count,
            took,
        );
        for segment in segments(folder)? {
            let file = fs::File::options().write(true).open(segment)?;
            file.set_len(file.metadata()?.len() - 1)?;
        }
        if is_cold {
            forget_files(folder)?;
        }
        let took = rebuild(folder, chunks.count)?;
        row(&format!("rebuild by scan, {state}"), chunks.count, took);
    }
    Ok(rows)
}

/// Measures the time from opening a store until its index contains all chunks.
fn rebuild(folder: &Path, chunks: u64) -> Result<Duration> {
    let begun = Instant::now();
    let store = open(folder)?;
    store.settle();
    let took = begun.elapsed();
    let counts = store.counts();
    ensure!(counts.entries == chunks, "{counts:?}");
    Ok(took)
}

fn open(folder: &Path) -> Result<Store> {
    let settings = StoreSettings {
        folder: folder.to_owned(),
        size_max_bytes: 1 << 40,
        queue_max_bytes: QUEUE_BYTES as usize,
        pause: Duration::from_secs(30),
        seed: [7; 16],
    };
    let fresh = IdentitySeed {
        id: [1; 16],
        secret: [2; 32],
    };
    Ok(Store::open(settings, fresh)?)
}

fn segments(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "segment");
    Ok(paths.filter(is_segment).collect())
}

/// Makes the kernel write the segment files to the disk and drop them from its page cache.
fn forget_files(folder: &Path) -> Result<()> {
    for segment in segments(folder)? {
        let file = fs::File::open(segment)?;
        file.sync_all()?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}

/// Generator of chunks. All chunks differ in their first bytes.
struct Chunks {
    count: u64,
    common: Vec<u8>,
}

impl Chunks {
    fn new(count: u64) -> Self {
        let mut common = vec![0; CHUNK_BYTES];
        Pcg64Mcg::seed_from_u64(SEED).fill_bytes(&mut common);
        Self { count, common }
    }

    fn content(&self, n: u64) -> Vec<u8> {
        let mut content = self.common.clone();
        content[..8].copy_from_slice(&n.to_le_bytes());
        content
    }

    fn make(&self, n: u64) -> (ChunkName, Bytes) {
        let content = self.content(n);
        (ChunkName::of(&content), content.into())
    }
}

fn name(n: u64) -> ChunkName {
    let mut name = [0; 32];
    Pcg64Mcg::seed_from_u64(n).fill_bytes(&mut name);
    ChunkName(name)
}

fn location(n: u64) -> RecordLocation {
    RecordLocation {
        segment: (n / SEGMENT_CHUNKS) as u16,
        offset: ((n % SEGMENT_CHUNKS) * 16_384 + 64) as u32,
    }
}

/// Returns the resident memory of this process without mapped files (`proc_pid_statm(5)`).
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut fields = statm
        .split(' ')
        .map_while(|field| field.parse::<u64>().ok());
    fields.nth(1).unwrap_or(0) * 4096
}

const SEED: u64 = 20_261_127;
const CHUNK_BYTES: usize = 16 * 1024;
const QUEUE_BYTES: u64 = 16 * 1024 * 1024;

/// Number of chunks in one segment of the measured index.
const SEGMENT_CHUNKS: u64 = 4096;

const LOOK_UPS: u64 = 10_000_000;

/// Large prime factor that spreads consecutive numbers over the index.
const PRIME: u64 = 1_000_000_007;
