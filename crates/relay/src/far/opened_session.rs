//! Parameters of a session, as the near gateway requests them in the first message.

use ftp::session::{CommandId, SessionMode, far::DataOpener};
use link::{PeerId, RecvStream, SendStream};
use tokio::sync::mpsc;

use crate::{
    optimise::NegotiatedCoding,
    pairing::DataStream,
    wire::{MessageDecoder, Version},
};
use net::{target::HostPort, tls::ServerTls};

/// A session that a near gateway has requested with the first message of a stream.
pub(super) struct OpenedSession {
    pub(super) peer: PeerId,
    /// Protocol version of the messages on the stream.
    pub(super) version: Version,
    pub(super) session: u64,
    pub(super) target: HostPort,
    pub(super) logon: Option<(CommandId, Vec<u8>)>,
    pub(super) mode: SessionMode,
    pub(super) server_data: DataOpener,
    pub(super) tls: Option<ServerTls>,
    pub(super) coding: Option<NegotiatedCoding>,
    pub(super) send: SendStream,
    pub(super) recv: RecvStream,
    pub(super) decoder: MessageDecoder,
    pub(super) streams: mpsc::Receiver<DataStream>,
}
