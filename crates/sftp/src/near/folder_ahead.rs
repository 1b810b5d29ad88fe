//! READDIRs of one folder at the near half, and the packets that the far half has read ahead.

use std::collections::VecDeque;

use super::{kind_of, outbox::Outbox};
use crate::{Rope, SftpError, ToFar, packet::kind};

/// READDIRs of one folder, and the packets that the far half has read ahead.
#[derive(Debug)]
pub(super) struct FolderReadAhead {
    /// Number of the handle.
    handle: u64,
    window_bytes: u64,
    /// NAME packets that no READDIR has taken yet.
    packets: VecDeque<Rope>,
    /// Credit of the far half. The last packet may exceed it, so the credit may be negative.
    credit_bytes: i64,
    ungranted_bytes: u64,
    /// Request ids of READDIRs that wait for a packet.
    waiting: VecDeque<u32>,
    /// STATUS packet at the end of the folder.
    end: Option<Rope>,
}

impl FolderReadAhead {
    /// Creates the state of a folder that the server has just opened.
    pub(super) fn new(handle: u64, window_bytes: u64) -> Self {
        Self {
            handle,
            window_bytes,
            packets: VecDeque::new(),
            credit_bytes: window_bytes as i64,
            ungranted_bytes: 0,
            waiting: VecDeque::new(),
            end: None,
        }
    }

    /// Returns the number of READDIRs that wait for a packet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the bytes of memory that the read-ahead may take.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Returns the bytes of packets that no READDIR has taken.
    pub(super) fn held_bytes(&self) -> u64 {
        self.packets.iter().map(|packet| packet.len() as u64).sum()
    }

    /// Answers a READDIR of the client, or lets it wait.
    pub(super) fn read(&mut self, id: u32, outbox: &mut Outbox) {
        self.waiting.push_back(id);
        self.serve(outbox);
    }

    /// Accepts a NAME packet from the far half.
    pub(super) fn arrived(&mut self, packet: Rope, outbox: &mut Outbox) -> Result<(), SftpError> {
        if self.credit_bytes <= 0 || self.end.is_some() {
            return Err(SftpError::LimitExceeded("read-ahead of a folder"));
        }
        if kind_of(&packet) != kind::NAME {
            return Err(SftpError::AnswerType(kind_of(&packet)));
        }
        self.credit_bytes -= packet.len() as i64;
        self.packets.push_back(packet);
        self.serve(outbox);
        Ok(())
    }

    /// Accepts the STATUS packet at the end of the folder.
    pub(super) fn ended(&mut self, packet: Rope, outbox: &mut Outbox) {
        self.end = Some(packet);
        self.serve(outbox);
    }

    /// Removes and returns the READDIRs that wait.
    pub(super) fn take_waiting(&mut self) -> VecDeque<u32> {
        std::mem::take(&mut self.waiting)
    }

    fn serve(&mut self, outbox: &mut Outbox) {
        while !self.waiting.is_empty() {
            let packet = match self.packets.pop_front() {
                Some(packet) => {
                    self.ungranted_bytes += packet.len() as u64;
                    packet
                }
                None => match &self.end {
                    Some(end) => end.clone(),
                    None => break,
                },
            };
            let id = self.waiting.pop_front().expect("a READDIR waits");
            outbox.reply(id, packet);
        }
        let is_due = self.credit_bytes <= 0 || self.ungranted_bytes >= self.window_bytes / 4;
        if is_due && self.ungranted_bytes > 0 && self.end.is_none() {
            let credit_bytes = std::mem::take(&mut self.ungranted_bytes);
            self.credit_bytes += credit_bytes as i64;
            outbox.send(ToFar::Credit {
                handle: self.handle,
                run: 0,
                credit_bytes,
            });
        }
    }
}
