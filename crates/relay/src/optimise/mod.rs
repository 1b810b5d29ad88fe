//! Coded streams: fewer bytes on the link than the application's.
//!
//! The crate `optimiser` contains the coding itself. This module contains the ends of a link stream
//! that may be coded. The `EncodingWriter` takes bytes, the `DecodingReader` returns them, and
//! both count in `CodingCounters`.
//!
//! If both gateways have chunk stores (`Stores`, negotiated for each session in a
//! `NegotiatedCoding`), the writer refers to chunks in its own store. The reader takes them from
//! its store, and requests missing ones (`ChunkFetcher`). The writer's gateway keeps them until
//! they are acknowledged (`ReferenceStore`), and answers requests (`chunk_server`).
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
