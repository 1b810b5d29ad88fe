//! Frames as the kernel delivers them, and the packets that a frame contains.
//!
//! With segmentation offload a frame is a super-packet, which has one header and the payloads of
//! many packets. A [`FrameSegment`] refers to one of these packets without a copy. The path can
//! therefore drop, delay or corrupt each packet separately. The module [`run`](super::run) joins
//! consecutive segments again.

use std::{ops::Range, rc::Rc};

use bytes::Bytes;
use wansim::Packet;

/// `struct virtio_net_hdr`, in which the kernel describes the checksum and the segments of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VnetHeader {
    pub(super) flags: u8,
    pub(super) gso_type: u8,
    pub(super) header_bytes: u16,
    pub(super) segment_bytes: u16,
    pub(super) checksum_start: u16,
    pub(super) checksum_offset: u16,
}

/// A frame, with the layout of its packets if it is a super-packet.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) vnet: VnetHeader,
    pub(super) layout: Option<Layout>,
}

/// Positions of the packets in a super-packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) transport: Transport,
    pub(super) ip_version: IpVersion,
    /// Offset of the TCP or UDP header in the frame.
    pub(super) transport_start: usize,
    /// Offset of the payload in the frame.
    pub(super) payload_start: usize,
    /// Payload bytes of every packet except the last.
    pub(super) segment_bytes: usize,
    pub(super) segments: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IpVersion {
    V4,
    V6,
}

/// Error for a frame with contradictory fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedFrame;

impl VnetHeader {
    /// Size of the header, which precedes each frame.
    pub(super) const BYTES: usize = 10;

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.get(..Self::BYTES)?.try_into().ok()?;
        let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_bytes: short(2),
            segment_bytes: short(4),
            checksum_start: short(6),
            checksum_offset: short(8),
        })
    }

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let shorts = [
            self.header_bytes,
            self.segment_bytes,
            self.checksum_start,
            self.checksum_offset,
        ];
        for (at, short) in shorts.into_iter().enumerate() {
            bytes[2 + 2 * at..4 + 2 * at].copy_from_slice(&short.to_ne_bytes());
        }
        bytes
    }

    /// Returns two offsets if the checksum of the frame is still partial. The checksum covers the
    /// bytes from the first offset. The second offset is the position of the checksum field.
    pub(super) fn partial_checksum(&self) -> Option<(usize, usize)> {
        let start = usize::from(self.checksum_start);
        let field = start + usize::from(self.checksum_offset);
        (self.flags & NEEDS_CHECKSUM != 0).then_some((start, field))
    }
}

impl Frame {
    /// Parses the data of a packet socket, which consist of a `virtio_net_hdr` and an Ethernet
    /// frame.
    pub(super) fn read(mut bytes: Bytes) -> Result<Self, MalformedFrame> {
        let vnet = VnetHeader::read(&bytes).ok_or(MalformedFrame)?;
        let bytes = bytes.split_off(VnetHeader::BYTES);
        if bytes.len() < ETHERNET_BYTES {
            return Err(MalformedFrame);
        }
        if let Some((start, field)) = vnet.partial_checksum()
            && (start < ETHERNET_BYTES || field + 2 > bytes.len())
        {
            return Err(MalformedFrame);
        }
        let layout = if vnet.gso_type == 0 {
            None
        } else {
            Some(Layout::read(&vnet, &bytes)?)
        };
        Ok(Self {
            bytes,
            vnet,
            layout,
        })
    }

    /// Returns whether the emulator passes the frame to the opposite site. The emulator drops
    /// multicast frames, except frames that address resolution needs. These are broadcast frames
    /// (ARP) and frames to solicited-node addresses (IPv6 neighbour solicitation).
    pub(super) fn crosses_wan(&self) -> bool {
        let to = &self.bytes[..6];
        to[0] & 1 == 0 || to == [0xff; 6] || to[..3] == [0x33, 0x33, 0xff]
    }

    /// Returns the number of packets in this frame.
    pub(super) fn segments(&self) -> u32 {
        self.layout.map_or(1, |layout| layout.segments)
    }

    /// Returns the length of a segment's IP packet in bytes.
    fn ip_bytes(&self, index: u32) -> usize {
        match &self.layout {
            None => self.bytes.len() - ETHERNET_BYTES,
            Some(layout) => {
                let payload = layout.payload(index, 1, self.bytes.len());
                layout.payload_start - ETHERNET_BYTES + payload.len()
            }
        }
    }
}

impl Layout {
    fn read(vnet: &VnetHeader, frame: &[u8]) -> Result<Self, MalformedFrame> {
        let byte = |at: usize| frame.get(at).copied().ok_or(MalformedFrame);
        let transport = match vnet.gso_type & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 => Transport::Tcp,
            GSO_UDP => Transport::Udp,
            _ => return Err(MalformedFrame),
        };
        let ip_version = match [byte(12)?, byte(13)?] {
            [0x08, 0x00] => IpVersion::V4,
            [0x86, 0xdd] => IpVersion::V6,
            _ => return Err(MalformedFrame),
        };
        let transport_start = match (vnet.partial_checksum(), ip_version) {
            (Some((start, _)), _) => start,
            (None, IpVersion::V4) => ETHERNET_BYTES + usize::from(byte(ETHERNET_BYTES)? & 15) * 4,
            (None, IpVersion::V6) => ETHERNET_BYTES + 40,
        };
        let (header, shortest) = match transport {
            Transport::Tcp => (usize::from(byte(transport_start + 12)? >> 4) * 4, 20),
            Transport::Udp => (8, 8),
        };
        let payload_start = transport_start + header;
        let segment_bytes = usize::from(vnet.segment_bytes);
        let minimum = ETHERNET_BYTES + if ip_version == IpVersion::V4 { 20 } else { 40 };
        let sound = transport_start >= minimum
            && payload_start <= frame.len().min(LONGEST_HEADER)
            && header >= shortest
            && segment_bytes > 0;
        if !sound {
            return Err(MalformedFrame);
        }
        let segments = (frame.len() - payload_start).div_ceil(segment_bytes).max(1) as u32;
        Ok(Self {
            transport,
            ip_version,
            transport_start,
            payload_start,
            segment_bytes,
            segments,
        })
    }

    /// Returns the payload of `count` segments, starting with segment `first`, as a byte range of
    /// the frame. `frame_bytes` is the size of the frame.
    pub(super) fn payload(&self, first: u32, count: u32, frame_bytes: usize) -> Range<usize> {
        let start = self.payload_start + first as usize * self.segment_bytes;
        let end = (start + count as usize * self.segment_bytes).min(frame_bytes);
        start..end
    }
}

/// One packet on the wire: a segment of a super-packet, or a frame that is a single packet.
#[derive(Debug, Clone)]
pub(super) struct FrameSegment {
    pub(super) frame: Rc<Frame>,
    pub(super) index: u32,
    /// Number of the bit that the path has flipped, counted from the start of the IP packet.
    pub(super) flipped_bit: Option<u32>,
}

impl Packet for FrameSegment {
    fn ip_bytes(&self) -> usize {
        self.frame.ip_bytes(self.index)
    }

    fn flip_bit(&mut self, bit: usize) {
        self.flipped_bit = Some(bit as u32);
    }
}

pub(super) const ETHERNET_BYTES: usize = 14;

/// Maximum total length of the headers of a super-packet in bytes: Ethernet (14), IP with options
/// or extensions, and TCP with options (60).
pub(super) const LONGEST_HEADER: usize = 256;

/// Flags and types from linux/virtio_net.h.
pub(super) const NEEDS_CHECKSUM: u8 = 1;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_TCPV6: u8 = 4;
pub(super) const GSO_UDP: u8 = 5;
pub(super) const GSO_ECN: u8 = 0x80;
