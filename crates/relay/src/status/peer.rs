//! Status of a peer, computed from the link's snapshot.

use std::time::Duration;

use link::PeerState;

use super::PeerStatus;
use crate::time::unix_s;

pub(super) fn peer_status(peer: &link::PeerSnapshot) -> PeerStatus {
    let (state, attempts, since) = match peer.state {
        PeerState::NeverAnswered { attempts } => ("never-answered", attempts, None),
        PeerState::Refused => ("refused", 0, None),
        PeerState::Dismissed => ("dismissed", 0, None),
        PeerState::Connecting => ("connecting", 0, None),
        PeerState::Up { since } => ("up", 0, Some(since)),
        PeerState::Silent { since } => ("silent", 0, Some(since)),
    };
    let ms = |time: Option<Duration>| time.map(|t| t.as_secs_f64() * 1e3);
    PeerStatus {
        name: peer.name.clone(),
        state: state.to_owned(),
        attempts,
        since_unix_s: since.map(unix_s),
        endpoint: peer.endpoint.map(|e| e.to_string()),
        last_answer_unix_s: peer.last_answer.map(unix_s),
        rtt_ms: ms(peer.rtt),
        base_rtt_ms: ms(peer.base_rtt),
        queue_delay_ms: ms(peer.queue_delay),
        loss: peer.loss,
        send_bits_per_s: peer.send_rate.as_bits_per_s(),
        receive_bits_per_s: peer.receive_rate.as_bits_per_s(),
        allowed_bits_per_s: peer.allowed_rate.as_bits_per_s(),
        sent_datagrams: peer.sent.datagrams,
        sent_bytes: peer.sent.bytes.bytes(),
        sent_payload_bytes: peer.sent.payload.bytes(),
        received_datagrams: peer.received.datagrams,
        received_bytes: peer.received.bytes.bytes(),
        received_payload_bytes: peer.received.payload.bytes(),
        packets_lost: peer.packets_lost,
        retransmitted_bytes: peer.payload_retransmitted.bytes(),
        streams_open: peer.streams_open as u64,
        controller_state: peer.controller_state.to_owned(),
    }
}
