//! The seeded source of every random choice of the host executor. Small and fast, nothing more; equal seeds give equal
//! runs on every machine.

/// xorshift64* seeded through splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// Any two words give a good state.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut z = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30))
            .wrapping_add(0x9e37_79b9_7f4a_7c15)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    // The development profile inlines little by itself, and everything here is hot.
    #[inline(always)]
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Uniform in `0..n`; 0 for an empty range.
    #[inline(always)]
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.next()) * n as u64) >> 32) as usize
    }

    /// True once in `n` times.
    #[inline(always)]
    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.below(n as usize) == 0
    }

    /// A random order of `items`.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
