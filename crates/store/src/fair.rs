//! The order in which a writer takes operations when more of them wait than one transaction should hold.
//!
//! As long as everything that waits fits into one batch it is taken as it came. Beyond that the tenants share the writer
//! by bytes: self-clocked fair queueing. Each operation gets a finish tag, which is the tag of the same tenant's operation
//! before it, or the tag that was served last if that is greater, plus the operation's cost. The lowest tag goes first. So
//! the operations of one tenant, and with them those of one task, keep their order; a small operation of one tenant goes
//! before large ones of another; and a large one waits until the others have had as many bytes, no longer.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use crate::TenantId;

/// The cost of an operation beside the bytes that it writes. A batch of small operations takes about as long as one
/// operation that writes so many bytes for each of them.
const BASE: u64 = 8 << 10;

/// What an operation costs, and which tenant has to bear it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// `None` for the server's own work, which has a share of its own.
    pub(crate) tenant: Option<TenantId>,
    /// About how many bytes it writes.
    pub(crate) bytes: usize,
}

impl Cost {
    /// The server's own work.
    pub(crate) const SYSTEM: Self = Self { tenant: None, bytes: 0 };

    pub(crate) fn of(tenant: TenantId, bytes: usize) -> Self {
        Self { tenant: Some(tenant), bytes }
    }
}

/// An operation that writes next to nothing.
impl From<TenantId> for Cost {
    fn from(tenant: TenantId) -> Self {
        Self::of(tenant, 0)
    }
}

/// How much one batch takes. An operation of more bytes is a batch of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimit {
    pub(crate) operations: usize,
    pub(crate) bytes: usize,
}

/// Operations that wait for the writer.
pub(crate) struct FairQueue<T> {
    limit: BatchLimit,
    /// As they came, and not sorted yet.
    arrived: Vec<Operation<T>>,
    arrived_bytes: usize,
    /// What did not fit into a batch, by finish tag.
    sorted: BinaryHeap<Reverse<Operation<T>>>,
    sorted_bytes: usize,
    /// The tag that was served last.
    served: u64,
    /// The last tag of each tenant that has had more than its share so far.
    tags: HashMap<Option<TenantId>, u64>,
    arrivals: u64,
}

struct Operation<T> {
    cost: Cost,
    tag: u64,
    /// Breaks ties, and is unique.
    arrival: u64,
    item: T,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(limit: BatchLimit) -> Self {
        Self {
            limit,
            arrived: Vec::new(),
            arrived_bytes: 0,
            sorted: BinaryHeap::new(),
            sorted_bytes: 0,
            served: 0,
            tags: HashMap::new(),
            arrivals: 0,
        }
    }

    pub(crate) fn push(&mut self, cost: Cost, item: T) {
        self.arrived_bytes = self.arrived_bytes.saturating_add(cost.bytes);
        self.arrivals += 1;
        self.arrived.push(Operation { cost, tag: 0, arrival: self.arrivals, item });
    }

    pub(crate) fn len(&self) -> usize {
        self.arrived.len() + self.sorted.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.sorted.is_empty()
    }

    /// Whether more bytes wait than one batch takes.
    pub(crate) fn is_heavy(&self) -> bool {
        self.arrived_bytes.saturating_add(self.sorted_bytes) > self.limit.bytes
    }

    /// The next batch; empty only when nothing waits.
    pub(crate) fn take(&mut self) -> Vec<T> {
        let fits = self.arrived.len() <= self.limit.operations && self.arrived_bytes <= self.limit.bytes;
        self.arrived_bytes = 0;
        if self.sorted.is_empty() && fits {
            return self.arrived.drain(..).map(|operation| operation.item).collect();
        }
        for mut operation in self.arrived.drain(..) {
            let last = self.tags.entry(operation.cost.tenant).or_default();
            operation.tag = (*last).max(self.served) + BASE + operation.cost.bytes as u64;
            *last = operation.tag;
            self.sorted_bytes = self.sorted_bytes.saturating_add(operation.cost.bytes);
            self.sorted.push(Reverse(operation));
        }
        let mut batch = Vec::new();
        let mut bytes = 0_usize;
        while let Some(Reverse(next)) = self.sorted.peek() {
            let is_full =
                batch.len() >= self.limit.operations || bytes.saturating_add(next.cost.bytes) > self.limit.bytes;
            if is_full && !batch.is_empty() {
                break;
            }
            if let Some(Reverse(next)) = self.sorted.pop() {
                bytes = bytes.saturating_add(next.cost.bytes);
                self.sorted_bytes = self.sorted_bytes.saturating_sub(next.cost.bytes);
                self.served = next.tag;
                batch.push(next.item);
            }
        }
        if self.sorted.is_empty() {
            self.served = 0;
            self.tags.clear();
        } else {
            let served = self.served;
            self.tags.retain(|_, tag| *tag > served);
        }
        batch
    }
}

impl<T> Operation<T> {
    fn key(&self) -> (u64, u64) {
        (self.tag, self.arrival)
    }
}

impl<T> PartialEq for Operation<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Operation<T> {}

impl<T> PartialOrd for Operation<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Operation<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: BatchLimit = BatchLimit { operations: 8, bytes: 1000 };
    const A: TenantId = TenantId(1);
    const B: TenantId = TenantId(2);

    fn queue(operations: impl IntoIterator<Item = (TenantId, usize, u32)>) -> FairQueue<(TenantId, u32)> {
        let mut queue = FairQueue::new(LIMIT);
        add(&mut queue, operations);
        queue
    }

    fn add(queue: &mut FairQueue<(TenantId, u32)>, operations: impl IntoIterator<Item = (TenantId, usize, u32)>) {
        for (tenant, bytes, n) in operations {
            queue.push(Cost::of(tenant, bytes), (tenant, n));
        }
    }

    #[test]
    fn what_fits_is_one_batch_in_the_order_of_arrival() {
        let mut queue = queue([(B, 400, 1), (A, 300, 2), (B, 0, 3), (A, 300, 4)]);
        assert_eq!(queue.take(), [(B, 1), (A, 2), (B, 3), (A, 4)]);
        assert!(queue.is_empty() && queue.take().is_empty());
    }

    #[test]
    fn a_batch_is_bounded_by_bytes_and_by_operations() {
        let mut bytes = queue((0..5).map(|n| (A, 400, n)));
        assert_eq!((bytes.take().len(), bytes.take().len(), bytes.take().len()), (2, 2, 1));
        let mut operations = queue((0..20).map(|n| (A, 1, n)));
        assert_eq!((operations.take().len(), operations.take().len(), operations.take().len()), (8, 8, 4));
    }

    #[test]
    fn a_small_operation_does_not_wait_behind_another_tenants_large_ones() {
        let mut queue = queue((0..24).map(|n| (A, 50_000, n)));
        assert_eq!(queue.take(), [(A, 0)], "a large operation is a batch of its own");
        add(&mut queue, [(B, 10, 100)]);
        assert_eq!(queue.take(), [(B, 100)]);
        assert_eq!(queue.take(), [(A, 1)]);
        add(&mut queue, [(B, 10, 101)]);
        assert_eq!(queue.take(), [(B, 101)]);
    }

    #[test]
    fn a_large_operation_waits_until_the_others_have_had_as_many_bytes() {
        let mut queue = queue([(A, 100_000, 0)]);
        let mut before = 0;
        for n in 0.. {
            add(&mut queue, [(B, 900, n), (B, 900, n)]);
            let batch = queue.take();
            if batch == [(A, 0)] {
                break;
            }
            before += batch.len() as u64 * (BASE + 900);
        }
        assert!((90_000..=(BASE + 100_000)).contains(&before), "{before}");
    }

    #[test]
    fn two_tenants_with_large_operations_take_turns() {
        let mut queue = queue((0..4).map(|n| (A, 5000, n)));
        add(&mut queue, (0..4).map(|n| (B, 5000, n)));
        let mut order = Vec::new();
        while !queue.is_empty() {
            order.extend(queue.take());
        }
        assert_eq!(order, [(A, 0), (B, 0), (A, 1), (B, 1), (A, 2), (B, 2), (A, 3), (B, 3)]);
    }

    #[test]
    fn many_small_operations_leave_room_in_every_batch() {
        let mut queue = queue((0..100).map(|n| (A, 1, n)));
        add(&mut queue, (0..3).map(|n| (B, 1, n)));
        let first = queue.take();
        assert_eq!(first.iter().filter(|(tenant, _)| *tenant == B).count(), 3, "{first:?}");
    }

    #[test]
    fn the_operations_of_a_tenant_keep_their_order() {
        let mut rng = testkit::rng::Random::seeded(7);
        let mut queue = queue(None);
        let (mut sent, mut taken) = ([0_u32; 3], [0_u32; 3]);
        for _ in 0..2000 {
            for _ in 0..rng.index(6) {
                let tenant = rng.index(3);
                let bytes = [0, 10, 999, 5000][rng.index(4)];
                let id = TenantId(i64::try_from(tenant).unwrap());
                add(&mut queue, [(id, bytes, sent[tenant])]);
                sent[tenant] += 1;
            }
            let batch = queue.take();
            let sorted: usize = queue.sorted.iter().map(|Reverse(operation)| operation.cost.bytes).sum();
            assert_eq!(queue.sorted_bytes, sorted);
            for (tenant, n) in batch {
                let tenant = usize::try_from(tenant.0).unwrap();
                assert_eq!(n, taken[tenant]);
                taken[tenant] += 1;
            }
        }
        while !queue.is_empty() {
            for (tenant, _) in queue.take() {
                taken[usize::try_from(tenant.0).unwrap()] += 1;
            }
        }
        assert_eq!(sent, taken, "nothing is lost");
        assert!(queue.tags.is_empty() && queue.served == 0, "nothing is remembered when nothing waits");
        assert_eq!(queue.sorted_bytes, 0);
    }
}
