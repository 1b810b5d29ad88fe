//! Formats a record as a line of xferlog, the format of wu-ftpd.
//!
//! The format is described in `xferlog(5)` of wu-ftpd and ProFTPD. Times are in UTC.

use std::net::SocketAddr;

use super::{TransferDirection, TransferRecord, TransferType};
use crate::time;

/// Returns the line, including its newline. Returns `None` for a listing, and for a transfer whose
/// direction is unknown. xferlog has no lines for such transfers.
pub(super) fn line(record: &TransferRecord) -> Option<String> {
    let direction = match record.direction {
        Some(TransferDirection::Upload) => 'i',
        Some(TransferDirection::Download) => 'o',
        Some(TransferDirection::Listing) | None => return None,
    };
    let host = match record.client.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().to_string(),
        Err(_) => word(&record.client),
    };
    let transfer_type = match record.transfer_type {
        TransferType::Ascii => 'a',
        TransferType::Binary => 'b',
    };
    let access = match record.user.to_ascii_lowercase().as_str() {
        "anonymous" | "ftp" => 'a',
        _ => 'r',
    };
    let completion = if record.succeeded { 'c' } else { 'i' };
    Some(format!(
        "{} {} {host} {} {} {transfer_type} _ {direction} {access} {} ftp 0 * {completion}\n",
        time::ctime(&record.time),
        record.duration_s.round() as u64,
        record.bytes,
        word(&record.path),
        word(&record.user),
    ))
}

/// Formats a text as a field of the line. A field contains no blanks and is never empty.
fn word(text: &str) -> String {
    if text.is_empty() {
        return "?".to_owned();
    }
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    text.replace(is_odd, "_")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn record() -> TransferRecord {
        TransferRecord {
            schema: TransferRecord::SCHEMA,
            time: "2024-02-29T12:00:00.250Z".to_owned(),
            session: 7,
            client: "[::ffff:192.0.2.7]:4711".to_owned(),
            user: "jane doe".to_owned(),
            door: "0.0.0.0:2121".to_owned(),
            peer: "site-b".to_owned(),
            server: "10.20.0.5:21".to_owned(),
            verb: "STOR".to_owned(),
            path: "/a b\nc".to_owned(),
            direction: Some(TransferDirection::Upload),
            transfer_type: TransferType::Binary,
            bytes: 265,
            duration_s: 1.6,
            rate_bit_per_s: 1325,
            reply_code: Some(226),
            succeeded: true,
            client_tls: false,
            server_tls: true,
            limited_by: Some("WAN".to_owned()),
            wan_bytes: 265,
            compression_saved_bytes: 0,
            deduplication_saved_bytes: 0,
            coding_processor_s: 0.0,
        }
    }

    #[test]
    fn a_line_has_the_fields_of_wu_ftpd() {
        let mut record = record();
        assert_eq!(
            line(&record).as_deref(),
            Some("Thu Feb 29 12:00:00 2024 2 192.0.2.7 265 /a_b_c b _ i r jane_doe ftp 0 * c\n")
        );
        record.direction = Some(TransferDirection::Download);
        record.transfer_type = TransferType::Ascii;
        record.succeeded = false;
        record.user = "Anonymous".to_owned();
        record.path = String::new();
        record.time = "2024-03-01T02:03:04.000Z".to_owned();
        record.client = "[2001:db8::1]:1".to_owned();
        assert_eq!(
            line(&record).as_deref(),
            Some("Fri Mar  1 02:03:04 2024 2 2001:db8::1 265 ? a _ o a Anonymous ftp 0 * i\n")
        );
        record.direction = Some(TransferDirection::Listing);
        assert_eq!(line(&record), None);
    }
}
