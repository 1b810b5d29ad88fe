//! Transfer of bytes over bare UDP, with the batches and the pacing of the link's driver. The
//! result shows the kernel's part of the link's processor time.

use std::{
    io::{self, IoSliceMut},
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

use crate::{DATAGRAM_BYTES, MoverTask, UsageMeter, say_listening};

pub fn send(job: &MoverTask) -> anyhow::Result<()> {
    let (socket, state) = socket(job, 0)?;
    let meter = UsageMeter::start()?;
    let batch = vec![7; DATAGRAM_BYTES * BATCH_PACKETS];
    let began = Instant::now();
    let mut sent = 0;
    while sent < job.size.bytes() {
        let due = job.rate.bytes_in(began.elapsed()).bytes();
        while sent < due.min(job.size.bytes()) {
            let left = (job.size.bytes() - sent) as usize;
            let contents = &batch[..left.min(batch.len())];
            let transmit = Transmit {
                destination: job.addresses[1],
                ecn: None,
                contents,
                segment_size: Some(DATAGRAM_BYTES),
                src_ip: None,
            };
            match state.try_send((&socket).into(), &transmit) {
                Ok(()) => sent += contents.len() as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        thread::sleep(TICK);
    }
    meter.end(sent)
}

pub fn receive(job: &MoverTask) -> anyhow::Result<()> {
    let (socket, state) = socket(job, 1)?;
    say_listening();
    let mut buffers: Vec<_> = (0..BATCH_SIZE.min(16))
        .map(|_| vec![0; 64 * 1024])
        .collect();
    let mut meta = [RecvMeta::default(); BATCH_SIZE];
    let mut meter = None;
    let mut bytes = 0;
    let mut last = Instant::now();
    // Datagrams that the kernel dropped will not arrive.
    while bytes < job.size.bytes() && (bytes == 0 || last.elapsed() < SILENCE) {
        let mut slices: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let room = slices.len();
        match state.recv((&socket).into(), &mut slices, &mut meta[..room]) {
            Ok(count) => {
                if meter.is_none() {
                    meter = Some(UsageMeter::start()?);
                }
                bytes += meta[..count]
                    .iter()
                    .map(|meta| meta.len as u64)
                    .sum::<u64>();
                last = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TICK),
            Err(error) => return Err(error.into()),
        }
    }
    meter.expect("something came").end(bytes)
}

fn socket(job: &MoverTask, side: usize) -> anyhow::Result<(UdpSocket, UdpSocketState)> {
    let socket = UdpSocket::bind(job.addresses[side])?;
    let state = UdpSocketState::new((&socket).into())?;
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
        state.set_recv_buffer_size((&socket).into(), BUFFER_BYTES)?;
    }
    Ok((socket, state))
}

/// The next three constants have the same values as in the link's driver.
const TICK: Duration = Duration::from_micros(400);
const BATCH_PACKETS: usize = 44;
const BUFFER_BYTES: usize = 4 << 20;
const SILENCE: Duration = Duration::from_millis(300);
