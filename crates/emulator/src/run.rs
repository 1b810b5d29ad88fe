//! Runs of segments. A run is a sequence of consecutive segments of one super-packet. The segments
//! leave at the same time, and are written as one frame.
//!
//! A network card splits super-packets in this way, and a receiver's kernel joins consecutive
//! packets (LRO). The headers are adapted to the segments of the run. The payload is sent from the
//! original buffer.

use std::{ops::Range, rc::Rc};

use super::{
    checksum,
    frame::{
        ETHERNET_BYTES, Frame, FrameSegment, GSO_ECN, IpVersion, LONGEST_HEADER, Layout,
        NEEDS_CHECKSUM, Transport, VnetHeader,
    },
};

/// Consecutive segments of one frame.
#[derive(Debug)]
pub(super) struct SegmentRun {
    frame: Rc<Frame>,
    first: u32,
    count: u32,
    flipped_bit: Option<u32>,
}

/// A frame in three slices, which are sent in this order.
#[derive(Debug)]
pub(super) struct RenderedFrame<'a> {
    pub(super) vnet: [u8; VnetHeader::BYTES],
    pub(super) header: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl SegmentRun {
    pub(super) fn new(segment: FrameSegment) -> Self {
        let FrameSegment {
            frame,
            index,
            flipped_bit,
        } = segment;
        Self {
            frame,
            first: index,
            count: 1,
            flipped_bit,
        }
    }

    /// Adds a segment to the run. Returns the segment if it does not continue the run. A corrupted
    /// segment forms its own run, since only its own checksum can reveal the error.
    pub(super) fn extend(&mut self, segment: FrameSegment) -> Option<FrameSegment> {
        let continues = Rc::ptr_eq(&self.frame, &segment.frame)
            && segment.index == self.first + self.count
            && self.flipped_bit.is_none()
            && segment.flipped_bit.is_none();
        if !continues {
            return Some(segment);
        }
        self.count += 1;
        None
    }

    /// Returns the packets of the run, each as a separate run.
    pub(super) fn packets(&self) -> impl Iterator<Item = Self> {
        (self.first..self.first + self.count).map(|index| Self {
            frame: Rc::clone(&self.frame),
            first: index,
            count: 1,
            flipped_bit: self.flipped_bit,
        })
    }

    /// Writes the first `most` bytes of a run of one packet, in the form that the packet has on the
    /// wire. Returns the complete length of the packet. The checksum is complete only if all bytes
    /// are written.
    pub(super) fn write_packet(&self, most: usize, packet: &mut Vec<u8>) -> usize {
        assert_eq!(self.count, 1, "a run of one packet");
        if self.flipped_bit.is_some() {
            self.write_corrupted(packet);
            let whole_bytes = packet.len();
            packet.truncate(most);
            return whole_bytes;
        }
        let (payload, checksum) = match &self.frame.layout {
            Some(layout) => {
                self.write_header(layout, packet);
                let start = layout.transport_start;
                let field = start + checksum_offset(layout.transport);
                (self.payload(layout), Some((start, field)))
            }
            None => {
                packet.clear();
                (
                    0..self.frame.bytes.len(),
                    self.frame.vnet.partial_checksum(),
                )
            }
        };
        let whole_bytes = packet.len() + payload.len();
        let room = most.saturating_sub(packet.len()).min(payload.len());
        packet.extend_from_slice(&self.frame.bytes[payload.start..payload.start + room]);
        packet.truncate(most);
        if let Some((start, field)) = checksum
            && packet.len() == whole_bytes
        {
            checksum::complete(packet, start, field);
        }
        whole_bytes
    }

    /// Returns the run as a frame. `scratch` receives the bytes that differ from the original
    /// frame.
    pub(super) fn render<'a>(&'a self, scratch: &'a mut Vec<u8>) -> RenderedFrame<'a> {
        if self.flipped_bit.is_some() {
            self.write_corrupted(scratch);
            return RenderedFrame {
                vnet: [0; VnetHeader::BYTES],
                header: scratch,
                payload: &[],
            };
        }
        let vnet = self.vnet();
        match &self.frame.layout {
            Some(layout) if self.count < layout.segments => {
                self.write_header(layout, scratch);
                let payload = &self.frame.bytes[self.payload(layout)];
                RenderedFrame {
                    vnet: vnet.write(),
                    header: scratch,
                    payload,
                }
            }
            _ => RenderedFrame {
                vnet: vnet.write(),
                header: &[],
                payload: &self.frame.bytes,
            },
        }
    }

    /// Writes one complete packet with a correct checksum, and then flips one bit.
    fn write_corrupted(&self, packet: &mut Vec<u8>) {
        let bit = self.flipped_bit.expect("only asked for a corrupted one");
        let sound = Self {
            frame: Rc::clone(&self.frame),
            flipped_bit: None,
            ..*self
        };
        sound.write_packet(usize::MAX, packet);
        let byte = ETHERNET_BYTES + bit as usize / 8;
        packet[byte] ^= 0x80 >> (bit % 8);
    }

    fn payload(&self, layout: &Layout) -> Range<usize> {
        layout.payload(self.first, self.count, self.frame.bytes.len())
    }

    /// Returns the `virtio_net_hdr` of the run. If the checksum is partial, it stays partial. A
    /// partial checksum means that the packet has not left the machine, and the receiving kernel
    /// does not verify it.
    fn vnet(&self) -> VnetHeader {
        let from = &self.frame.vnet;
        let Some(layout) = &self.frame.layout else {
            let partial = VnetHeader {
                flags: NEEDS_CHECKSUM,
                checksum_start: from.checksum_start,
                checksum_offset: from.checksum_offset,
                ..VnetHeader::default()
            };
            return if from.partial_checksum().is_some() {
                partial
            } else {
                VnetHeader::default()
            };
        };
        // Only the first packet of a window reduction has the flag CWR. Therefore only a run with
        // that packet has the flag.
        let ecn = if self.first == 0 { 0 } else { GSO_ECN };
        let single = self.count == 1;
        VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type: if single { 0 } else { from.gso_type & !ecn },
            segment_bytes: if single {
                0
            } else {
                layout.segment_bytes as u16
            },
            header_bytes: layout.payload_start as u16,
            checksum_start: layout.transport_start as u16,
            checksum_offset: checksum_offset(layout.transport) as u16,
        }
    }

    /// Writes the headers of the run. It adapts the lengths, the identification, the sequence
    /// number, the flags, and the checksum over the pseudo-header.
    fn write_header(&self, layout: &Layout, header: &mut Vec<u8>) {
        let &Layout {
            transport,
            ip_version,
            transport_start,
            payload_start,
            ..
        } = layout;
        assert!(
            payload_start <= LONGEST_HEADER,
            "checked when the frame was read"
        );
        header.clear();
        header.extend_from_slice(&self.frame.bytes[..payload_start]);
        let transport_bytes = payload_start - transport_start + self.payload(layout).len();
        let ip = ETHERNET_BYTES;
        match ip_version {
            IpVersion::V4 => {
                let total = transport_start - ip + transport_bytes;
                put(header, ip + 2, total as u16);
                let id = get(header, ip + 4).wrapping_add(self.first as u16);
                put(header, ip + 4, id);
                put(header, ip + 10, 0);
                let sum = checksum::sum(&header[ip..transport_start]);
                put(header, ip + 10, !checksum::fold(sum));
            }
            IpVersion::V6 => {
                put(
                    header,
                    ip + 4,
                    (transport_start - ip - 40 + transport_bytes) as u16,
                );
            }
        }
        match transport {
            Transport::Tcp => {
                let at = transport_start + 4;
                let sequence: [u8; 4] = header[at..at + 4].try_into().expect("four bytes");
                let offset = self.first.wrapping_mul(layout.segment_bytes as u32);
                let sequence = u32::from_be_bytes(sequence).wrapping_add(offset);
                header[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
                let flags = &mut header[transport_start + 13];
                if self.first + self.count < layout.segments {
                    *flags &= !(TCP_FIN | TCP_PSH);
                }
                if self.first > 0 {
                    *flags &= !TCP_CWR;
                }
            }
            Transport::Udp => put(header, transport_start + 4, transport_bytes as u16),
        }
        let pseudo = checksum::pseudo_header(header, ip_version, transport, transport_bytes);
        put(
            header,
            transport_start + checksum_offset(transport),
            checksum::fold(pseudo),
        );
    }
}

/// Returns the offset of the checksum in the transport header.
fn checksum_offset(transport: Transport) -> usize {
    match transport {
        Transport::Tcp => 16,
        Transport::Udp => 6,
    }
}

fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

#[cfg(test)]
mod tests;
