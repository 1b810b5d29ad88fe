//! Slabs: the memory for arriving slots.
//!
//! A [`SlabPool`] hands out slabs up to a limit and takes them back. The module
//! [`recv`](super::recv) decides which stream gets a slab, and where a slot lies. The module
//! [`memory`](super::memory) sets the limit.

use super::SLOT_SIZE;
use crate::wire::frame::Half;

/// Slots in one slab.
pub(crate) const SLAB_SLOTS: u64 = 16;
/// Bytes that one slab takes.
pub(crate) const SLAB_SIZE: usize = SLOT_SIZE * SLAB_SLOTS as usize;

/// Memory for [`SLAB_SLOTS`] slots. A slot is found by its index in the stream.
#[derive(Debug)]
pub(super) struct Slab {
    data: Vec<u8>,
    /// Length of each slot in bytes; zero while the slot is empty.
    lens: [u16; SLAB_SLOTS as usize],
    /// Length of each slot of which one half is stored; zero while there is none.
    halved_lens: [u16; SLAB_SLOTS as usize],
    /// Stored half of such a slot: a set bit stands for the second half.
    has_second: u64,
}

/// Pool that hands out slabs up to a limit, and keeps returned ones for reuse.
#[derive(Debug)]
pub(crate) struct SlabPool {
    #[expect(clippy::vec_box, reason = "streams take and return boxes")]
    free: Vec<Box<Slab>>,
    lent: usize,
    lent_max: usize,
    /// Maximum number of slabs ever in use at once.
    pub(crate) lent_peak: usize,
}

impl Slab {
    /// Returns the length in bytes of the slot with this index, or zero while it is empty.
    pub(super) fn len(&self, index: u64) -> usize {
        usize::from(self.lens[place(index)])
    }

    /// Returns the bytes of the slot with this index.
    pub(super) fn slot(&self, index: u64) -> &[u8] {
        let start = place(index) * SLOT_SIZE;
        &self.data[start..start + self.len(index)]
    }

    /// Fills the slot with this index.
    pub(super) fn fill(&mut self, index: u64, data: &[u8]) {
        let place = place(index);
        self.lens[place] = data.len() as u16;
        self.data[place * SLOT_SIZE..][..data.len()].copy_from_slice(data);
    }

    /// Fills one half of the empty slot with this index, which has `len` bytes. Returns whether
    /// that half is new. `None` if the other half named another length.
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

    /// Changes the limit. Slabs beyond a lower limit stay in use until they are given back.
    pub(crate) fn set_max(&mut self, bytes_max: u64) {
        let slabs = usize::try_from(bytes_max).unwrap_or(usize::MAX) / SLAB_SIZE;
        self.lent_max = slabs.max(LENT_MIN);
    }

    /// Hands out an empty slab, beyond the limit only if `is_essential`.
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

    /// Takes back a slab with any content.
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

/// Returns the position of a slot in its slab.
fn place(index: u64) -> usize {
    (index % SLAB_SLOTS) as usize
}

/// Least limit of slabs in use, however little memory there is.
const LENT_MIN: usize = 16;
/// Maximum number of returned slabs kept for reuse, 5.7 MiB. Further slabs go back to the system.
const FREE_SLABS_MAX: usize = 256;
