//! Slabs: the memory for arriving slots.
//!
//! A [`SlabPool`] grants slabs up to a limit and reuses returned slabs. The module
//! [`recv`](super::recv) assigns slabs to streams and computes the position of each slot. The
//! module [`memory`](super::memory) sets the limit.

use super::SLOT_SIZE;
use crate::wire::frame::Half;

/// Number of slots in one slab.
pub(crate) const SLAB_SLOTS: u64 = 16;
/// Size of one slab in bytes.
pub(crate) const SLAB_SIZE: usize = SLOT_SIZE * SLAB_SLOTS as usize;

/// Memory for [`SLAB_SLOTS`] slots. The index of a slot in the stream determines its position in
/// the slab.
#[derive(Debug)]
pub(super) struct Slab {
    data: Vec<u8>,
    /// Length of each slot in bytes; zero if the slot is empty.
    lens: [u16; SLAB_SLOTS as usize],
    /// Length in bytes of each half-stored slot; zero for all other slots.
    halved_lens: [u16; SLAB_SLOTS as usize],
    /// Bit mask of the half-stored slots: a set bit means that the second half is stored.
    has_second: u64,
}

/// Pool that grants slabs up to a limit, and keeps returned slabs for reuse.
#[derive(Debug)]
pub(crate) struct SlabPool {
    #[expect(clippy::vec_box, reason = "streams take and return boxes")]
    free: Vec<Box<Slab>>,
    lent: usize,
    lent_max: usize,
    /// Largest number of slabs that were in use at the same time.
    pub(crate) lent_peak: usize,
}

impl Slab {
    /// Returns the length in bytes of slot `index`, or zero if the slot is empty.
    pub(super) fn len(&self, index: u64) -> usize {
        usize::from(self.lens[place(index)])
    }

    /// Returns the bytes of slot `index`.
    pub(super) fn slot(&self, index: u64) -> &[u8] {
        let start = place(index) * SLOT_SIZE;
        &self.data[start..start + self.len(index)]
    }

    /// Stores the bytes of slot `index`.
    pub(super) fn fill(&mut self, index: u64, data: &[u8]) {
        let place = place(index);
        self.lens[place] = data.len() as u16;
        self.data[place * SLOT_SIZE..][..data.len()].copy_from_slice(data);
    }

    /// Stores one half of the empty slot `index`, which has `len` bytes in total. Returns whether
    /// that half is new. Returns `None` if the other half stated a different total length.
    pub(super) fn fill_half(
        &mut self,
        index: u64,
        len: usize,
        half: Half,
        data: &[u8],
    ) -> Option<bool> {
        let place = place(index);
        let is_second = half == Half::Second;
        let known = usize::from(self.halved_lens[place]);
        if known != 0 && known != len {
            return None;
        }
        let here_is_second = self.has_second >> place & 1 == 1;
        if known != 0 && here_is_second == is_second {
            return Some(false);
        }
        self.data[place * SLOT_SIZE..][half.of(len)].copy_from_slice(data);
        if known != 0 {
            self.lens[place] = len as u16;
        } else {
            self.halved_lens[place] = len as u16;
            self.has_second = self.has_second & !(1 << place) | u64::from(is_second) << place;
        }
        Some(true)
    }
}

impl SlabPool {
    /// Creates a pool with at most `bytes_max` bytes in use.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let mut pool = Self {
            free: Vec::new(),
            lent: 0,
            lent_max: 0,
            lent_peak: 0,
        };
        pool.set_max(bytes_max);
        pool
    }

    /// Changes the limit. If more slabs are in use than the new limit permits, they stay in use
    /// until they are returned.
    pub(crate) fn set_max(&mut self, bytes_max: u64) {
        let slabs = usize::try_from(bytes_max).unwrap_or(usize::MAX) / SLAB_SIZE;
        self.lent_max = slabs.max(LENT_MIN);
    }

    /// Returns an empty slab, or `None` if the limit is reached. `is_essential` permits a slab
    /// beyond the limit.
    pub(super) fn take(&mut self, is_essential: bool) -> Option<Box<Slab>> {
        if self.lent >= self.lent_max && !is_essential {
            return None;
        }
        self.lent += 1;
        self.lent_peak = self.lent_peak.max(self.lent);
        Some(self.free.pop().unwrap_or_else(|| {
            Box::new(Slab {
                data: vec![0; SLAB_SIZE],
                lens: [0; SLAB_SLOTS as usize],
                halved_lens: [0; SLAB_SLOTS as usize],
                has_second: 0,
            })
        }))
    }

    /// Returns a slab to the pool. The content of the slab is discarded.
    pub(super) fn give_back(&mut self, mut slab: Box<Slab>) {
        self.lent -= 1;
        if self.free.len() < FREE_SLABS_MAX {
            slab.lens.fill(0);
            slab.halved_lens.fill(0);
            self.free.push(slab);
        }
    }

    /// Returns the number of slabs in use.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }
}

/// Returns the position of slot `index` within its slab.
fn place(index: u64) -> usize {
    (index % SLAB_SLOTS) as usize
}

/// Minimum value of the limit on slabs in use, even with little memory.
const LENT_MIN: usize = 16;
/// Maximum number of returned slabs that the pool keeps for reuse, 5.7 MiB. The memory of further
/// returned slabs is freed.
const FREE_SLABS_MAX: usize = 256;
