//! What a pool holds, by size: the rules of reuse, without a device.

use std::collections::{BTreeMap, VecDeque};

/// What is kept for reuse may make all memory a fifth more than its largest use so far, or this much more.
/// Classes waste an eighth as a rule, so that a program with allocations of all sizes holds a third more than it
/// ever asked for at most.
const KEPT_FLOOR: usize = 16 << 20;

/// What an allocation is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Bytes asked for; the buffer may be larger.
    pub(crate) asked: usize,
    /// Whether it is an operation's own, without a handle.
    pub(crate) is_scratch: bool,
}

/// Buffers of one size that are kept, each with when it came.
type Kept<B> = VecDeque<(u64, B)>;

/// Bytes in use and buffers `B` kept for reuse.
#[derive(Debug)]
pub(super) struct Account<B> {
    /// By size, the longest kept first.
    free: BTreeMap<usize, Kept<B>>,
    clock: u64,
    pub(super) in_use: usize,
    pub(super) peak: usize,
    pub(super) pooled: usize,
    pub(super) asked: usize,
    pub(super) scratch: usize,
}

impl<B> Default for Account<B> {
    fn default() -> Self {
        let (free, clock) = (BTreeMap::new(), 0);
        Self { free, clock, in_use: 0, peak: 0, pooled: 0, asked: 0, scratch: 0 }
    }
}

impl<B> Account<B> {
    /// Counts an allocation that is made in a buffer of `size` bytes.
    pub(super) fn add(&mut self, size: usize, of: Use) {
        self.in_use += size;
        self.asked += of.asked;
        self.scratch += if of.is_scratch { size } else { 0 };
    }

    /// Notes that the allocations counted so far exist.
    pub(super) fn settle_peak(&mut self) {
        self.peak = self.peak.max(self.in_use);
    }

    /// Takes an allocation back that was counted.
    pub(super) fn remove(&mut self, size: usize, of: Use) {
        self.in_use -= size;
        self.asked -= of.asked;
        self.scratch -= if of.is_scratch { size } else { 0 };
    }

    /// A kept buffer of this size, the one that came last, whose memory is the likeliest to be in a cache.
    pub(super) fn reuse(&mut self, size: usize) -> Option<B> {
        self.take(size, VecDeque::pop_back)
    }

    /// Keeps a buffer for reuse.
    pub(super) fn keep(&mut self, size: usize, buffer: B) {
        self.clock += 1;
        self.pooled += size;
        self.free.entry(size).or_default().push_back((self.clock, buffer));
    }

    /// The buffer that was kept longest, if with `more` bytes in use more would be kept than is worth it.
    pub(super) fn superfluous(&mut self, more: usize) -> Option<B> {
        let in_use = self.in_use.saturating_add(more);
        let most = self.peak.max(in_use);
        let bound = most.saturating_add((most / 5).max(KEPT_FLOOR));
        if in_use.saturating_add(self.pooled) <= bound {
            return None;
        }
        let age = |(_, kept): &(&usize, &Kept<B>)| kept.front().map(|&(came, _)| came);
        let size = *self.free.iter().min_by_key(age)?.0;
        self.take(size, VecDeque::pop_front)
    }

    /// A kept buffer of the largest size.
    pub(super) fn largest(&mut self) -> Option<B> {
        let size = self.largest_size()?;
        self.take(size, VecDeque::pop_front)
    }

    /// The kept buffer of this size at one end of the row in which they came.
    fn take(&mut self, size: usize, pop: fn(&mut Kept<B>) -> Option<(u64, B)>) -> Option<B> {
        let kept = self.free.get_mut(&size)?;
        let (_, buffer) = pop(kept)?;
        if kept.is_empty() {
            self.free.remove(&size);
        }
        self.pooled -= size;
        Some(buffer)
    }

    /// Bytes of the largest kept buffer.
    pub(super) fn largest_size(&self) -> Option<usize> {
        self.free.last_key_value().map(|(&size, _)| size)
    }

    /// All kept buffers.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = B> + use<B> {
        self.pooled = 0;
        std::mem::take(&mut self.free).into_values().flatten().map(|(_, buffer)| buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::size_class;
    use super::*;

    /// A reproducible stream (SplitMix64).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^ (x >> 31)
        }

        fn unit(&mut self) -> f64 {
            (self.next() >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// A million allocations and frees as a pool makes them: sizes from 256 bytes to 64 MiB, their logarithms
    /// uniform, so many alive at a time. The most bytes held, relative to the most that were asked for at a time.
    fn held_to_asked(alive: u64, seed: u64) -> f64 {
        let (mut account, mut random) = (Account::<()>::default(), Random(seed));
        let (mut live, mut most_asked, mut most_held) = (Vec::new(), 0, 0);
        for _ in 0..1_000_000 {
            // As many as there are meant to be, on average.
            if random.next() % (2 * alive) >= live.len() as u64 {
                let asked = (256.0 * (random.unit() * 18.0).exp2()) as usize;
                let size = size_class(asked, usize::MAX).unwrap();
                let of = Use { asked, is_scratch: false };
                if account.reuse(size).is_none() {
                    while account.superfluous(size).is_some() {}
                }
                account.add(size, of);
                account.settle_peak();
                live.push((size, of));
            } else {
                let at = random.next() as usize % live.len();
                let (size, of) = live.swap_remove(at);
                account.remove(size, of);
                account.keep(size, ());
                while account.superfluous(0).is_some() {}
            }
            most_asked = most_asked.max(account.asked);
            most_held = most_held.max(account.in_use + account.pooled);
        }
        most_held as f64 / most_asked as f64
    }

    #[test]
    fn a_million_random_allocations_hold_little_more_than_they_ask_for() {
        for (alive, seed) in [(100, 1), (300, 2), (1000, 3)] {
            let ratio = held_to_asked(alive, seed);
            println!("{alive} alive: {ratio:.3} of the bytes asked for are held");
            assert!(ratio < 1.35, "{alive} alive: {ratio}");
        }
    }

    #[test]
    fn the_last_kept_is_reused_and_the_first_kept_given_up() {
        let mut account = Account::default();
        for (size, name) in [(1 << 20, "a"), (1 << 20, "b"), (64 << 20, "c"), (1 << 20, "d")] {
            account.keep(size, name);
        }
        assert_eq!((account.pooled, account.largest_size()), (67 << 20, Some(64 << 20)));
        assert_eq!(account.reuse(1 << 20), Some("d"));
        assert_eq!(account.reuse(2 << 20), None);
        assert_eq!(account.superfluous(0), Some("a"));
        assert_eq!(account.superfluous(0), Some("b"));
        assert_eq!(account.superfluous(0), Some("c"));
        assert_eq!((account.superfluous(0), account.pooled), (None, 0));
    }

    /// An account whose peak is one buffer.
    fn in_use<T>(bytes: usize, of: Use) -> Account<T> {
        let mut account = Account::default();
        account.add(bytes, of);
        account.settle_peak();
        account
    }

    #[test]
    fn what_was_in_use_before_may_be_kept() {
        let of = Use { asked: 250 << 20, is_scratch: true };
        let mut account = in_use(256 << 20, of);
        assert_eq!((account.asked, account.scratch), (250 << 20, 256 << 20));
        account.remove(256 << 20, of);
        account.keep(256 << 20, ());
        assert_eq!((account.superfluous(0), account.asked, account.scratch), (None, 0, 0));
        // Another such one in use, of another size, is too much.
        assert_eq!(account.superfluous(250 << 20), Some(()));
        assert_eq!(account.take_all().count(), 0);
    }

    #[test]
    fn bytes_in_use_are_those_added_and_not_removed() {
        let mut account = Account::<()>::default();
        let [small, large] = [3 << 20, 5 << 20].map(|asked| Use { asked, is_scratch: false });
        account.add(4 << 20, small);
        account.add(6 << 20, large);
        account.settle_peak();
        account.remove(4 << 20, small);
        assert_eq!((account.in_use, account.asked, account.peak), (6 << 20, 5 << 20, 10 << 20));
    }

    #[test]
    fn a_fifth_more_than_the_peak_may_be_kept() {
        let of = Use { asked: 1000 << 20, is_scratch: false };
        let mut account = in_use(1000 << 20, of);
        account.remove(1000 << 20, of);
        account.keep(1000 << 20, "first");
        account.keep(200 << 20, "second");
        assert_eq!(account.superfluous(0), None);
        account.keep(1 << 20, "third");
        assert_eq!(account.superfluous(0), Some("first"));
    }

    #[test]
    fn the_first_kept_is_given_up_also_if_it_is_of_the_larger_size() {
        let mut account = Account::default();
        account.keep(64 << 20, "large");
        account.keep(1 << 20, "small");
        assert_eq!((account.superfluous(0), account.superfluous(0)), (Some("large"), None));
    }

    #[test]
    fn the_largest_kept_is_found_until_none_is_left() {
        let mut account = Account::default();
        for (size, name) in [(2 << 20, "middle"), (3 << 20, "large"), (1 << 20, "small")] {
            account.keep(size, name);
        }
        let given = [(); 4].map(|()| account.largest());
        assert_eq!(given, [Some("large"), Some("middle"), Some("small"), None]);
        assert_eq!(account.pooled, 0);
    }
}
