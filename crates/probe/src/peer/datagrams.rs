//! UDP port of the peer. The peer counts datagrams, echoes them, and records the clients'
//! addresses.

use std::{net::SocketAddr, sync::atomic::Ordering};

use super::{
    PeerContext,
    test_table::{TestKind, lock},
};
use crate::{
    datagram::{self, Header},
    udp,
};

pub(super) fn serve(shared: &PeerContext) {
    let mut buffer = vec![0; 1 << 16];
    while !shared.is_stopped.load(Ordering::Relaxed) {
        // The error is a timeout, or an ICMP error from a client's machine.
        let Ok(arrival) = udp::receive(&shared.udp, &mut buffer) else {
            continue;
        };
        let Some(from) = arrival.from else {
            continue;
        };
        take(shared, &mut buffer[..arrival.bytes], from, arrival.at_ns);
    }
}

fn take(shared: &PeerContext, bytes: &mut [u8], from: SocketAddr, at_ns: u64) {
    let Some(header) = Header::parse(bytes) else {
        return;
    };
    // An unknown sender gets no answer, so that attackers cannot use the peer as a reflector.
    let Some(test) = shared.table.find(header.id, from.ip()) else {
        return;
    };
    match (header.kind, &test.kind) {
        (datagram::DatagramPurpose::Echo, TestKind::Ping) => {
            let answer = Header {
                kind: datagram::DatagramPurpose::Answer,
                ..header
            };
            answer.write(bytes);
            // If the send buffer is full, the echo is lost, like a packet in a network.
            let _ = shared.udp.send_to(bytes, from);
        }
        (datagram::DatagramPurpose::Open, TestKind::Udp(side)) => lock(side).client = Some(from),
        (datagram::DatagramPurpose::Data, TestKind::Udp(side)) => {
            lock(side).arrive(&header, at_ns, bytes.len() as u64);
        }
        _ => {}
    }
}
