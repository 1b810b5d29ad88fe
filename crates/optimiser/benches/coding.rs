//! `cargo bench -p longhaul-optimiser --bench coding`: processor time of each stage of coding, in
//! seconds for each gigabyte of application data.
//!
//! One thread does all work. The bench prints the median, least and greatest processor time of five
//! runs. Other running programs affect the results only through the processor's caches. The content
//! is in memory, and changes with each run.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

use std::{collections::VecDeque, sync::Arc, time::Duration};

use anyhow::Result;
use bench_kit::{machine, options, table::Table};
use bytes::{Bytes, BytesMut};
use nix::time::{ClockId, clock_gettime};
use optimiser::{
    check::StreamCheck,
    chunk::{ChunkName, Cutter},
    decoder::{Decoder, DecoderEvent},
    encoder::{EncodeScope, Encoder, NoChunks, SenderChunks},
    zstd_block::{self, BLOCK_MAX},
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Measure the speed of the steps of coding, in seconds per gigabyte
#[derive(clap::Parser)]
#[command(bin_name = "cargo bench -p longhaul-optimiser --bench coding --")]
struct Options {
    /// Megabytes of content for each measurement
    #[arg(long, default_value_t = 200)]
    megabytes: usize,
}

/// A stand-in for a receiver that has every chunk.
struct Everything;

impl SenderChunks for Everything {
    fn receiver_may_have(&mut self, _name: &ChunkName) -> bool {
        true
    }

    fn keep_outstanding(&mut self, _chunks: &[Bytes]) -> bool {
        true
    }

    fn record_sent(&mut self, _name: ChunkName, _chunk: Bytes) {}
}

fn main() -> Result<()> {
    let options: Options = options::read();
    println!("{}; {} MB\n", machine::describe(), options.megabytes);
    let count = options.megabytes * 1_000_000;
    let (noise, text) = (noise(count), text(count));
    let cutter = Arc::new(Cutter::new(&[7; 32]));
    let mut rows = Vec::new();
    let mut row = |name: &str, work: &mut dyn FnMut()| {
        let mut taken: Vec<_> = (0..RUNS).map(|_| seconds(&mut *work)).collect();
        taken.sort_by(f64::total_cmp);
        let per_gb = |seconds: f64| format!("{:.2}", seconds / count as f64 * 1e9);
        rows.push(vec![
            name.to_owned(),
            per_gb(taken[RUNS / 2]),
            format!("{}..{}", per_gb(taken[0]), per_gb(taken[RUNS - 1])),
        ]);
    };
    row("XXH3 of all bytes", &mut || {
        StreamCheck::default().update(&noise)
    });
    row("cut into chunks (FastCDC)", &mut || {
        cut(&cutter, &noise, |_| ())
    });
    row("names of chunks (BLAKE3), cuts included", &mut || {
        cut(&cutter, &noise, |chunk| {
            std::hint::black_box(ChunkName::of(chunk));
        });
    });
    for level in [1, 3, 5] {
        row(&format!("zstd {level}, text"), &mut || {
            compress(&text, level)
        });
        row(&format!("zstd {level}, noise"), &mut || {
            compress(&noise, level)
        });
    }
    for (name, bytes) in [("noise", &noise), ("text", &text)] {
        row(&format!("encoder, compression, {name}"), &mut || {
            encode(bytes, true, None, &mut NoChunks, drop);
        });
        let cut = || Some(cutter.clone());
        row(
            &format!("encoder, compression and chunks, {name}"),
            &mut || {
                encode(bytes, true, cut(), &mut NoChunks, drop);
            },
        );
        row(&format!("encoder, all chunks known, {name}"), &mut || {
            encode(bytes, true, cut(), &mut Everything, drop);
        });
        for (what, chunks) in [("compression", None), ("compression and chunks", cut())] {
            let has_chunks = chunks.is_some();
            let mut frames = Vec::new();
            encode(bytes, true, chunks, &mut NoChunks, |frame| {
                frames.push(frame)
            });
            row(&format!("decoder, {what}, {name}"), &mut || {
                decode(&frames, has_chunks)
            });
        }
    }
    let head = ["stage", "s/GB", "least..most"];
    println!("{}", Table::new(&head, rows).text());
    Ok(())
}

fn cut(cutter: &Cutter, mut bytes: &[u8], each: impl Fn(&[u8])) {
    while let Some(length) = cutter.cut(bytes, true) {
        each(&bytes[..length]);
        bytes = &bytes[length..];
    }
}

fn compress(bytes: &[u8], level: i32) {
    for block in bytes.chunks(BLOCK_MAX) {
        std::hint::black_box(zstd_block::compress(block, level));
    }
}

fn encode(
    bytes: &[u8],
    compresses: bool,
    cutter: Option<Arc<Cutter>>,
    chunks: &mut dyn SenderChunks,
    mut frame: impl FnMut(Bytes),
) {
    let mut encoder = Encoder::new(compresses, cutter);
    let (mut buffer, mut out) = (BytesMut::new(), VecDeque::new());
    for piece in bytes.chunks(BLOCK_MAX) {
        buffer.extend_from_slice(piece);
        encoder.encode(&mut buffer, EncodeScope::Blocks, chunks, &mut out);
        out.drain(..).for_each(&mut frame);
    }
    encoder.encode(&mut buffer, EncodeScope::Rest, chunks, &mut out);
    out.drain(..).for_each(frame);
}

fn decode(frames: &[Bytes], reports_chunks: bool) {
    let (mut decoder, mut check) = (Decoder::new(reports_chunks), StreamCheck::default());
    for frame in frames {
        decoder.push(frame.clone());
        while let Some(event) = decoder.poll().expect("these are frames") {
            match event {
                DecoderEvent::Bytes(bytes) => check.update(&bytes),
                DecoderEvent::End(end) => assert_eq!(end, check.end()),
                _ => {}
            }
        }
    }
}

/// Measures the processor time of one run of `work`.
fn seconds(work: &mut dyn FnMut()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        Duration::from(time.expect("Linux has this clock"))
    };
    let before = now();
    work();
    (now() - before).as_secs_f64()
}

fn noise(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    Pcg64Mcg::seed_from_u64(SEED).fill(&mut bytes[..]);
    bytes
}

/// Generates text that resembles the lines of a log.
fn text(count: usize) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut bytes = Vec::with_capacity(count + 200);
    while bytes.len() < count {
        let (host, size, took) = (
            random.random_range(0..250_u32),
            random.random_range(100..90_000_u32),
            random.random_range(1..999_u32),
        );
        let line = format!(
            "10.0.3.{host} - - [27/Nov/2026:12:00:{:02} +0000] \"GET /archive/item/{size} HTTP/1.1\" 200 {size} \"-\" took {took} ms\n",
            host % 60
        );
        bytes.extend_from_slice(line.as_bytes());
    }
    bytes.truncate(count);
    bytes
}

const RUNS: usize = 5;
const SEED: u64 = 7;
