//! Applications of both sites. They open streams, write the bytes of their transfers, and read the
//! bytes that arrive.

use std::time::Instant;

use units::ByteCount;

use super::{SimPair, SimSite};
use crate::{
    EndpointEvent, StreamKey, StreamRead,
    sim::pattern::{assert_pattern, pattern},
};

impl SimPair {
    pub(super) fn handle_events(&mut self, side: SimSite, now: Instant) {
        while let Some(event) = self.sites[side as usize].endpoint.poll_event() {
            let other = self.sites[1 - side as usize].address;
            let since_start = now - self.start;
            match event {
                EndpointEvent::Resolve { peer } => {
                    let site = &mut self.sites[side as usize];
                    let local = site.clock.local(now);
                    site.endpoint.set_address(peer, Some(other), local);
                }
                EndpointEvent::Connected { .. } | EndpointEvent::Remember => {}
                EndpointEvent::Incoming { key, .. } if self.is_request(side, key) => {}
                EndpointEvent::Incoming { key, .. } => {
                    let sender = side.other();
                    let found = self.transfers.iter().position(|transfer| {
                        transfer.from == sender
                            && transfer.key.is_some_and(|ours| ours.stream == key.stream)
                            && transfer.progress.lost.is_none()
                            && transfer.progress.arrived.is_none()
                    });
                    if let Some(index) = found {
                        self.by_stream.insert((side, key), index);
                        self.transfers[index].incoming = Some(key);
                    }
                    // The receiver sends nothing on this stream.
                    self.sites[side as usize].endpoint.finish(key);
                }
                EndpointEvent::Readable { key } => self.read(side, key, now),
                EndpointEvent::SendDone { key } => {
                    if let Some(index) = self.by_stream.get(&(side, key)) {
                        let transfer = &mut self.transfers[*index];
                        if transfer.from == side {
                            transfer.progress.confirmed = Some(since_start);
                        }
                    }
                }
                EndpointEvent::Stopped { .. } => {}
                EndpointEvent::Lost { key, reason } => {
                    self.lost_streams[side as usize] += 1;
                    if let Some(index) = self.by_stream.get(&(side, key)) {
                        let progress = &mut self.transfers[*index].progress;
                        if progress.confirmed.is_none() {
                            progress.lost = Some(reason);
                        }
                    }
                }
            }
        }
    }

    /// Handles an incoming stream by which a receiver requests a transfer. Returns whether the
    /// stream is such a request.
    fn is_request(&mut self, side: SimSite, key: StreamKey) -> bool {
        let found = self.transfers.iter().position(|it| {
            let requested = it.incoming.filter(|_| it.is_requested && it.from == side);
            requested.is_some_and(|theirs| theirs.stream == key.stream) && it.key.is_none()
        });
        if let Some(index) = found {
            self.by_stream.insert((side, key), index);
            self.transfers[index].key = Some(key);
        }
        found.is_some()
    }

    /// Opens a stream for each transfer that the application of this site must request.
    fn request(&mut self, side: SimSite, now: Instant) {
        let site = &mut self.sites[side as usize];
        let local = site.clock.local(now);
        for (index, transfer) in self.transfers.iter_mut().enumerate() {
            let is_due = transfer.is_requested && transfer.incoming.is_none();
            if !is_due || transfer.from == side {
                continue;
            }
            let Some(key) = site.endpoint.open(0, transfer.class, local) else {
                continue;
            };
            transfer.incoming = Some(key);
            self.by_stream.insert((side, key), index);
            site.endpoint.write(key, pattern(0, 1));
            site.endpoint.finish(key);
        }
    }

    /// Reads bytes for applications that read at a limited rate.
    pub(super) fn read_slowly(&mut self, side: SimSite, now: Instant) {
        for index in 0..self.transfers.len() {
            let transfer = &self.transfers[index];
            let is_behind = transfer.reader.is_some_and(|reader| reader.is_behind);
            if let Some(key) = transfer.incoming
                && transfer.from != side
                && is_behind
            {
                self.read(side, key, now);
            }
        }
    }

    fn read(&mut self, side: SimSite, key: StreamKey, now: Instant) {
        let since_start = now - self.start;
        let index = self.by_stream.get(&(side, key)).copied();
        // A request carries no bytes of the transfer.
        let index = index.filter(|index| self.transfers[*index].from != side);
        if index.is_some_and(|index| self.transfers[index].is_unread) {
            return;
        }
        let site = &mut self.sites[side as usize];
        let local = site.clock.local(now);
        loop {
            let mut transfer = index.map(|index| &mut self.transfers[index]);
            let reader = transfer.as_mut().and_then(|it| it.reader.as_mut());
            let mut len_max = WRITE_BYTES;
            if let Some(reader) = reader {
                len_max = reader.take(now);
                reader.is_behind = len_max == 0;
                if reader.is_behind {
                    return;
                }
            }
            let read = site.endpoint.read(key, len_max, local);
            match (read, transfer) {
                (StreamRead::Data(data), Some(transfer)) => {
                    if let Some(reader) = &mut transfer.reader {
                        reader.took(data.len());
                    }
                    let offset = transfer.progress.delivered.bytes();
                    assert_pattern(&data, offset);
                    transfer.progress.delivered += ByteCount::new(data.len() as u64);
                }
                (StreamRead::End, Some(transfer)) => {
                    if transfer.from != side {
                        assert_eq!(transfer.progress.delivered.bytes(), transfer.total);
                        transfer.progress.arrived.get_or_insert(since_start);
                    }
                    return;
                }
                (StreamRead::Corrupt, _) => {
                    panic!("count or hash did not match (seed {})", self.seed)
                }
                (StreamRead::Data(_), None) => {}
                _ => return,
            }
        }
    }

    pub(super) fn write(&mut self, side: SimSite, now: Instant) {
        self.request(side, now);
        let site = &mut self.sites[side as usize];
        let local = site.clock.local(now);
        let endpoint = &mut site.endpoint;
        for (index, transfer) in self.transfers.iter_mut().enumerate() {
            if transfer.from != side || transfer.is_finished || transfer.progress.lost.is_some() {
                continue;
            }
            let Some(key) = transfer.key.or_else(|| {
                (!transfer.is_requested).then(|| endpoint.open(0, transfer.class, local))?
            }) else {
                continue;
            };
            transfer.key = Some(key);
            self.by_stream.insert((side, key), index);
            while transfer.written < transfer.total && endpoint.writable(key) > 0 {
                let left = transfer.total - transfer.written;
                let data = pattern(transfer.written, left.min(WRITE_BYTES as u64) as usize);
                transfer.written += data.len() as u64;
                endpoint.write(key, data);
            }
            if transfer.written == transfer.total {
                if !transfer.stays_open {
                    endpoint.finish(key);
                }
                transfer.is_finished = true;
                transfer.progress.finished = Some(now - self.start);
            }
        }
    }
}

const WRITE_BYTES: usize = 256 * 1024;
