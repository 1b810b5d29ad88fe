//! Memory use of an application that writes single bytes while the peer does not read them.
#![allow(
    clippy::disallowed_methods,
    reason = "this test uses real sockets, and so the real clock"
)]

#[path = "all/common/mod.rs"]
mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    net::UdpSocket,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use common::{config, socket};
use link::{Link, LinkConfig, PeerId, StreamClass};
use tokio::time::timeout;
use units::ByteCount;

/// System allocator with a count of the allocated bytes.
struct MeasuringAllocator;

static LENT_BYTES: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator has no safe form")]
// SAFETY: all calls are passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for MeasuringAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LENT_BYTES.fetch_add(taken_bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LENT_BYTES.fetch_sub(taken_bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LENT_BYTES.fetch_add(taken_bytes(size), Ordering::Relaxed);
        LENT_BYTES.fetch_sub(taken_bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, and the caller keeps the rules of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Returns the memory that a 64-bit system uses for an allocation of `size` bytes. The allocator
/// adds 8 bytes, rounds up to a multiple of 16, and uses at least 32 bytes.
fn taken_bytes(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

#[global_allocator]
static ALLOCATOR: MeasuringAllocator = MeasuringAllocator;

fn link(socket: UdpSocket, us: u8, other: u8, endpoint: Option<String>) -> Link {
    let config = LinkConfig {
        memory_max: MEMORY_MAX,
        ..config(us, other, endpoint)
    };
    Link::start(socket, config).expect("the link starts")
}

/// Two links in this process have one stream without a reader. All queues between writer and reader
/// become full.
#[tokio::test]
async fn single_bytes_that_nobody_reads_take_little_more_than_themselves() {
    let socket_b = socket();
    let endpoint = socket_b
        .local_addr()
        .expect("a bound socket has an address")
        .to_string();
    let b = link(socket_b, 2, 1, None);
    let a = link(socket(), 1, 2, Some(endpoint));
    let (mut send, _recv) = a
        .open(PeerId(0), StreamClass::Bulk)
        .await
        .expect("the peer is up");
    // All pieces are parts of one buffer, so the writer itself needs no memory.
    let byte = || Bytes::from_static(b"x");
    send.write(byte()).await.expect("the stream is open");
    let unread = timeout(TIMEOUT, b.accept())
        .await
        .expect("in time")
        .expect("a stream comes");
    let before = LENT_BYTES.load(Ordering::Relaxed);
    let mut written = 0;
    while let Ok(result) = timeout(STANDSTILL, send.write(byte())).await {
        result.expect("the stream is open");
        written += 1;
    }
    let after = LENT_BYTES.load(Ordering::Relaxed);
    drop(unread);
    let grown = after.saturating_sub(before);
    println!("{written} bytes written, one by one: {grown} bytes of memory");
    assert!(
        written > QUEUES_BYTES,
        "{written} bytes fill no queue at all"
    );
    // The link limits the memory of received slots. All other memory is in proportion to the bytes.
    let most = MEMORY_MAX.bytes() as usize + 2 * written;
    assert!(
        grown < most,
        "{written} bytes, written one by one, take {grown} bytes of memory, more than {most}"
    );
}

const TIMEOUT: Duration = Duration::from_secs(20);
/// Time after which a pending write shows that all queues are full.
const STANDSTILL: Duration = Duration::from_secs(1);
const MEMORY_MAX: ByteCount = ByteCount::mebibytes(4);
/// Maximum number of bytes in the queues of the writer's handle and of the reader's handle. Each
/// queue may use a sixteenth of the memory.
const QUEUES_BYTES: usize = 2 * (4 << 20) / 16;
