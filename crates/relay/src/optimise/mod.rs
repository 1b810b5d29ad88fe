//! Coded streams. Coding (compression and deduplication) reduces the number of bytes on the link.
//!
//! The crate `optimiser` contains the coding itself. This module contains the writer
//! (`EncodingWriter`) and the reader (`DecodingReader`) of a coded link stream. Writer and reader
//! add to the `CodingCounters`.
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

pub use self::stores::{StoreName, StoresSettings};
pub(crate) use self::{
    coding_counters::{CodingCounters, CodingSnapshot, CodingTotals},
    decoding_reader::{CodedReadError, DecodingReader},
    encoding_writer::{EncodingWriter, FlushDelay},
    negotiated_coding::{DedupContext, NegotiatedCoding, StreamCoding},
    reference_store::{ReferenceKey, ReferenceStore},
    stores::{ChunkOwner, Stores},
};
