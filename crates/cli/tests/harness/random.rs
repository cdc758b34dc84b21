//! Numbers that can be had again: the seed is printed, and `SB_SEED` gives it.

pub(crate) struct Random(u64);

impl Random {
    /// Prints its seed.
    pub(crate) fn new() -> Self {
        let given = std::env::var("SB_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = store::clock::now().as_millis().unsigned_abs();
            u64::from(std::process::id()) << 32 ^ now | 1
        });
        eprintln!("SB_SEED={seed}");
        Self(seed)
    }

    /// Another one that follows from this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next() | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("it is below a length")
    }

    /// xorshift64
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
