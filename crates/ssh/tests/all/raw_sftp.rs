//! SFTP packets as bytes, for clients and servers that behave unusually.

use std::io::{self, Read};

/// Returns an SFTP packet.
pub(crate) fn packet(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    string(&[&[kind], &fields.concat()[..]].concat())
}

pub(crate) fn number(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    [&number(bytes.len() as u32), bytes].concat()
}

/// Reads an SFTP packet without its length.
pub(crate) fn answer(output: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    output.read_exact(&mut length)?;
    let mut packet = vec![0; u32::from_be_bytes(length) as usize];
    output.read_exact(&mut packet)?;
    Ok(packet)
}

/// Removes the first complete SFTP packet from `bytes`. Returns the packet without its length.
pub(crate) fn take_packet(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = bytes.first_chunk()?;
    let end = 4 + u32::from_be_bytes(*length) as usize;
    let packet = bytes.get(4..end)?.to_vec();
    bytes.drain(..end);
    Some(packet)
}
