//! Tests that compare splitting and joining with an independent segmentation, written from the
//! RFCs.

use bytes::Bytes;
use proptest::prelude::*;
use wansim::Packet;

use super::{super::frame::*, *};

/// A super-packet in the form in which the kernel delivers it.
#[derive(Debug, Clone)]
struct SuperPacket {
    transport: Transport,
    version: IpVersion,
    segment_bytes: usize,
    payload: Vec<u8>,
    flags: u8,
    sequence: u32,
    id: u16,
    ecn: bool,
}

const TCP_OPTIONS: [u8; 12] = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];

impl SuperPacket {
    fn header_bytes(&self) -> usize {
        self.ip_header_bytes()
            + if self.transport == Transport::Tcp {
                32
            } else {
                8
            }
    }

    fn ip_header_bytes(&self) -> usize {
        if self.version == IpVersion::V4 {
            20
        } else {
            40
        }
    }

    /// Returns the complete Ethernet frame of packet number `index`, with correct checksums.
    fn packet(&self, index: usize) -> Vec<u8> {
        let chunks: Vec<_> = self.payload.chunks(self.segment_bytes).collect();
        let last = index + 1 == chunks.len();
        let mut flags = self.flags;
        if !last {
            flags &= !(TCP_FIN | TCP_PSH);
        }
        if index > 0 {
            flags &= !TCP_CWR;
        }
        let sequence = self
            .sequence
            .wrapping_add((index * self.segment_bytes) as u32);
        let mut frame = self.frame(
            chunks[index],
            self.id.wrapping_add(index as u16),
            sequence,
            flags,
        );
        let start = ETHERNET_BYTES + self.ip_header_bytes();
        let field = start + checksum_offset(self.transport);
        checksum::complete(&mut frame, start, field);
        frame
    }

    /// Returns a frame with a partial checksum.
    fn frame(&self, payload: &[u8], id: u16, sequence: u32, flags: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let transport_bytes = self.header_bytes() - self.ip_header_bytes() + payload.len();
        let protocol = if self.transport == Transport::Tcp {
            6
        } else {
            17
        };
        match self.version {
            IpVersion::V4 => {
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((20 + transport_bytes as u16).to_be_bytes());
                frame.extend(id.to_be_bytes());
                frame.extend([0x40, 0, 64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
                let sum = !checksum::fold(checksum::sum(&frame[14..34]));
                put(&mut frame, 24, sum);
            }
            IpVersion::V6 => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((transport_bytes as u16).to_be_bytes());
                frame.extend([protocol, 64]);
                frame.extend((1..=32).collect::<Vec<u8>>());
            }
        }
        let start = frame.len();
        match self.transport {
            Transport::Tcp => {
                frame.extend([0x13, 0x88, 0x13, 0x89]);
                frame.extend(sequence.to_be_bytes());
                frame.extend([0, 0, 0, 9, 0x80, flags, 1, 1, 0, 0, 0, 0]);
                frame.extend(TCP_OPTIONS);
            }
            Transport::Udp => {
                frame.extend([0x13, 0x88, 0x13, 0x89]);
                frame.extend((transport_bytes as u16).to_be_bytes());
                frame.extend([0, 0]);
            }
        }
        let pseudo = checksum::pseudo_header(&frame, self.version, self.transport, transport_bytes);
        put(
            &mut frame,
            start + checksum_offset(self.transport),
            checksum::fold(pseudo),
        );
        frame.extend(payload);
        frame
    }

    /// Returns the frame that the packet socket delivers.
    fn received(&self) -> Rc<Frame> {
        let gso_type = match (self.transport, self.version) {
            (Transport::Udp, _) => GSO_UDP,
            (Transport::Tcp, IpVersion::V4) => GSO_TCPV4,
            (Transport::Tcp, IpVersion::V6) => GSO_TCPV6,
        };
        let vnet = VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type: gso_type | if self.ecn { GSO_ECN } else { 0 },
            header_bytes: (ETHERNET_BYTES + self.header_bytes()) as u16,
            segment_bytes: self.segment_bytes as u16,
            checksum_start: (ETHERNET_BYTES + self.ip_header_bytes()) as u16,
            checksum_offset: checksum_offset(self.transport) as u16,
        };
        let mut bytes = vnet.write().to_vec();
        bytes.extend(self.frame(&self.payload, self.id, self.sequence, self.flags));
        Rc::new(Frame::read(Bytes::from(bytes)).expect("a sound frame"))
    }
}

/// Returns the packets that the receiver's kernel would cut from the frame of a run. Each packet is
/// complete.
fn as_packets(run: &SegmentRun) -> Vec<Vec<u8>> {
    let mut scratch = Vec::new();
    let rendered = run.render(&mut scratch);
    let mut bytes = rendered.vnet.to_vec();
    bytes.extend_from_slice(rendered.header);
    bytes.extend_from_slice(rendered.payload);
    let frame = Rc::new(Frame::read(Bytes::from(bytes)).expect("a sound frame"));
    assert_eq!(
        frame.segments(),
        run.count,
        "the run is announced with its number of packets"
    );
    let mut packets = Vec::new();
    for index in 0..frame.segments() {
        let mut bytes = Vec::new();
        let one = FrameSegment {
            frame: Rc::clone(&frame),
            index,
            flipped_bit: None,
        };
        SegmentRun::new(one).write_packet(usize::MAX, &mut bytes);
        packets.push(bytes);
    }
    packets
}

fn any_super() -> impl Strategy<Value = SuperPacket> {
    let kind = (any::<bool>(), any::<bool>(), any::<bool>());
    let content = (1usize..200, prop::collection::vec(any::<u8>(), 1..2000));
    (kind, content, any::<u8>(), any::<u32>(), any::<u16>()).prop_map(
        |((tcp, v4, ecn), (segment_bytes, payload), flags, sequence, id)| SuperPacket {
            transport: if tcp { Transport::Tcp } else { Transport::Udp },
            version: if v4 { IpVersion::V4 } else { IpVersion::V6 },
            segment_bytes,
            payload,
            flags,
            sequence,
            id,
            ecn: ecn && tcp,
        },
    )
}

/// Strategy that generates one value for each segment. False means that the segment is lost. If
/// there are more segments than values, the values repeat.
fn any_losses() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(prop::bool::weighted(0.8), 1..30)
}

proptest! {
    #[test]
    fn what_remains_of_a_super_packet_is_exactly_its_remaining_packets(
        packet in any_super(), kept in any_losses(),
    ) {
        let frame = packet.received();
        let mut runs: Vec<SegmentRun> = Vec::new();
        let mut expected = Vec::new();
        for index in 0..frame.segments() {
            let segment = FrameSegment { frame: Rc::clone(&frame), index, flipped_bit: None };
            let complete = packet.packet(index as usize);
            prop_assert_eq!(segment.ip_bytes(), complete.len() - ETHERNET_BYTES);
            if kept[index as usize % kept.len()] {
                expected.push(complete);
                let left = match runs.last_mut() {
                    Some(run) => run.extend(segment),
                    None => Some(segment),
                };
                runs.extend(left.map(SegmentRun::new));
            }
        }
        let arrived: Vec<_> = runs.iter().flat_map(as_packets).collect();
        prop_assert_eq!(arrived, expected);
    }

    #[test]
    fn a_capture_has_each_packet_of_a_run(packet in any_super(), most in 0usize..300) {
        let frame = packet.received();
        let mut segments = (0..frame.segments())
            .map(|index| FrameSegment { frame: Rc::clone(&frame), index, flipped_bit: None });
        let mut run = SegmentRun::new(segments.next().expect("at least one"));
        for segment in segments {
            prop_assert!(run.extend(segment).is_none());
        }
        let checksum_start = ETHERNET_BYTES + packet.ip_header_bytes()
            + checksum_offset(packet.transport);
        let mut bytes = Vec::new();
        for (index, one) in run.packets().enumerate() {
            let mut expected = packet.packet(index);
            prop_assert_eq!(one.write_packet(most, &mut bytes), expected.len());
            if most < expected.len() {
                expected.truncate(most);
                for at in (checksum_start..checksum_start + 2).filter(|at| *at < most) {
                    expected[at] = bytes[at];
                }
            }
            prop_assert_eq!(&bytes, &expected);
        }
    }

    #[test]
    fn a_corrupted_packet_is_complete_but_for_one_bit(packet in any_super(), at: prop::sample::Index) {
        let frame = packet.received();
        let index = at.index(frame.segments() as usize) as u32;
        let mut segment = FrameSegment { frame, index, flipped_bit: None };
        let bit = at.index(segment.ip_bytes() * 8);
        segment.flip_bit(bit);
        let run = SegmentRun::new(segment);
        let mut scratch = Vec::new();
        let rendered = run.render(&mut scratch);
        prop_assert_eq!(rendered.vnet, [0; 10], "nothing about its checksum is promised");
        let mut expected = packet.packet(index as usize);
        expected[ETHERNET_BYTES + bit / 8] ^= 0x80 >> (bit % 8);
        prop_assert_eq!([rendered.header, rendered.payload].concat(), expected);
    }

    #[test]
    fn no_frame_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(frame) = Frame::read(Bytes::from(bytes)) {
            let frame = Rc::new(frame);
            let mut scratch = Vec::new();
            for index in 0..frame.segments() {
                let mut segment = FrameSegment { frame: Rc::clone(&frame), index, flipped_bit: None };
                SegmentRun::new(segment.clone()).render(&mut scratch);
                if segment.ip_bytes() > 0 {
                    segment.flip_bit(0);
                    SegmentRun::new(segment).render(&mut scratch);
                }
            }
        }
    }
}

#[test]
fn corrupted_and_repeated_segments_are_not_joined() {
    let packet = SuperPacket {
        transport: Transport::Tcp,
        version: IpVersion::V4,
        segment_bytes: 10,
        payload: vec![1; 40],
        flags: 0x18,
        sequence: 1,
        id: 1,
        ecn: false,
    };
    let frame = packet.received();
    let segment = |index, flipped_bit| FrameSegment {
        frame: Rc::clone(&frame),
        index,
        flipped_bit,
    };
    let mut run = SegmentRun::new(segment(0, None));
    assert!(
        run.extend(segment(1, None)).is_none(),
        "neighbours are joined"
    );
    assert!(run.extend(segment(1, None)).is_some(), "a duplicate is not");
    assert!(
        run.extend(segment(3, None)).is_some(),
        "nor is what follows a gap"
    );
    assert!(
        run.extend(segment(2, Some(5))).is_some(),
        "nor a corrupted one"
    );
    let mut corrupted = SegmentRun::new(segment(2, Some(5)));
    assert!(
        corrupted.extend(segment(3, None)).is_some(),
        "and nothing to a corrupted one"
    );
}
