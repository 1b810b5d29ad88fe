//! Number of memory allocations of a bulk transfer in its steady state.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
};

use link::sim::SteadyTransfer;

/// System allocator with a count of allocations.
struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator has no safe form")]
// SAFETY: all calls are passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, and the caller keeps the rules of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A turn of 400 us at 1 Gbit/s has 26 packets. A turn may need a few allocations: slabs that are
/// passed to the reader, and a list of connections.
#[test]
fn packets_of_a_bulk_transfer_cost_no_allocation() {
    for lost_per_mille in [0, 10] {
        let mut steady =
            SteadyTransfer::new(lost_per_mille, || ALLOCATIONS.load(Ordering::Relaxed));
        let counts = steady.run(PACKETS);
        assert!(counts.iter().all(|count| *count > 0), "they are counted");
        for (side, count) in ["sender", "receiver"].iter().zip(counts) {
            let each = count as f64 / PACKETS as f64;
            println!("{lost_per_mille} of 1000 lost, {side}: {each:.3} allocations a packet");
            assert!(each < 0.1, "{side}: {each:.3} allocations a packet");
        }
    }
}

const PACKETS: u64 = 50_000;
