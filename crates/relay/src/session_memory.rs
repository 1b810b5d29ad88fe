//! Memory of the sessions of a gateway, in addition to the buffers of the link.
//!
//! A session reserves memory for bytes that it requests ahead of its client. It also counts the
//! bytes that it has received and not passed on yet. All sessions share one budget, which is as
//! large as the memory of the link. The sessions decide how they save memory when the budget is
//! short.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use units::ByteCount;

/// Memory of all sessions of a gateway.
#[derive(Debug)]
pub struct SessionMemory {
    budget_bytes: u64,
    reserved_bytes: AtomicU64,
    /// Number of bytes that sessions have received and not passed on yet.
    held_bytes: AtomicI64,
}

/// Memory that one session has reserved. Dropping the value returns the memory.
#[derive(Debug)]
pub struct MemoryShare {
    memory: Arc<SessionMemory>,
    bytes: u64,
}

impl SessionMemory {
    /// Creates the memory of a gateway whose sessions have not started.
    pub fn new(budget: ByteCount) -> Self {
        Self {
            budget_bytes: budget.bytes(),
            reserved_bytes: AtomicU64::new(0),
            held_bytes: AtomicI64::new(0),
        }
    }

    /// Reserves up to `max_bytes`, but at most an eighth of the memory that is left for
    /// reservations. Later sessions then get smaller shares.
    pub fn reserve(self: &Arc<Self>, max_bytes: u64) -> MemoryShare {
        let reservable_bytes = self.budget_bytes / 4 * 3;
        let share = |reserved: u64| (reservable_bytes.saturating_sub(reserved) / 8).min(max_bytes);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let changed = self
            .reserved_bytes
            .fetch_update(success, failure, |reserved| {
                Some(reserved + share(reserved))
            });
        MemoryShare {
            memory: self.clone(),
            bytes: changed.map_or(0, share),
        }
    }

    /// Adds to the number of bytes that sessions hold. A negative number means that they hold
    /// fewer bytes.
    pub fn change_held(&self, bytes: i64) {
        self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Returns the number of bytes that are neither reserved nor held.
    pub fn free_bytes(&self) -> u64 {
        let held = self.held_bytes.load(Ordering::Acquire);
        let held = u64::try_from(held).unwrap_or(0);
        let reserved = self.reserved_bytes.load(Ordering::Acquire);
        self.budget_bytes
            .saturating_sub(reserved)
            .saturating_sub(held)
    }
}

impl MemoryShare {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        let reserved_bytes = &self.memory.reserved_bytes;
        reserved_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_sessions_leave_a_quarter_of_the_budget() {
        let budget = ByteCount::gibibytes(1);
        let memory = Arc::new(SessionMemory::new(budget));
        let max = 64 << 20;
        let shares: Vec<_> = (0..10_000).map(|_| memory.reserve(max)).collect();
        assert!(shares[..4].iter().all(|it| it.bytes() == max));
        let sum: u64 = shares.iter().map(MemoryShare::bytes).sum();
        assert!(sum <= budget.bytes() / 4 * 3, "{sum}");
        assert_eq!(memory.free_bytes(), budget.bytes() - sum);
        drop(shares);
        assert_eq!(memory.reserve(max).bytes(), max);
        assert_eq!(memory.free_bytes(), budget.bytes());
    }

    #[test]
    fn held_bytes_leave_less_of_the_budget() {
        let memory = Arc::new(SessionMemory::new(ByteCount::mebibytes(16)));
        let share = memory.reserve(u64::MAX);
        assert_eq!(share.bytes(), 12 << 17);
        memory.change_held(20 << 20);
        assert_eq!(memory.free_bytes(), 0);
        memory.change_held(-(20 << 20));
        drop(share);
        assert_eq!(memory.free_bytes(), 16 << 20);
    }
}
