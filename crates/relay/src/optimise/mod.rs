//! Coded streams. Coding (compression and deduplication) reduces the number of bytes on the link.
//!
//! The crate `optimiser` contains the coding itself. This module contains the writer
//! (`EncodingWriter`) and the reader (`DecodingReader`) of a coded link stream. They use the
//! `StreamEncoder` and the `StreamDecoder`, which add to the `CodingCounters`. Services with other
//! framing use these two directly.
//!
//! Two gateways can deduplicate if both have chunk stores (`Stores`). The gateways negotiate the
//! coding of each session (`NegotiatedCoding`). The writer then sends references to chunks in its
//! own store. The reader loads these chunks from its store, and requests missing chunks
//! (`ChunkFetcher`). The writer's gateway keeps referenced chunks in memory until they are
//! acknowledged (`ReferenceStore`), and replies to requests (`chunk_server`).
#![allow(
    clippy::disallowed_methods,
    reason = "measures how long coding takes, and what else is waited for"
)]

mod chunk_fetcher;
pub(crate) mod chunk_server;
mod coding_counters;
mod decoding_reader;
mod encoding_writer;
mod negotiated_coding;
mod reference_store;
mod stores;
mod stream_decoder;
mod stream_encoder;

pub use self::{
    chunk_fetcher::FetchError,
    coding_counters::{CodingCounters, CodingSnapshot},
    negotiated_coding::{NegotiatedCoding, StreamCoding},
    stores::{StoreName, StoresSettings},
    stream_decoder::{CodedReadError, StreamDecoder},
    stream_encoder::{FlushDelay, StreamEncoder},
};
pub(crate) use self::{
    coding_counters::CodingTotals,
    decoding_reader::DecodingReader,
    encoding_writer::EncodingWriter,
    negotiated_coding::DedupContext,
    reference_store::{ReferenceKey, ReferenceStore},
    stores::{ChunkOwner, Stores},
};
