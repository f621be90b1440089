//! The order of the training images, and the generator that draws it.
//!
//! The generator is kept as plain numbers, and its place after each use is written back: what is
//! saved between any two steps draws the very numbers that would have come next.

use milepost::checkpoint_fields;
use ndarray::Array1;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::data::TRAIN_IMAGES;

/// A `ChaCha8` generator as numbers that can be saved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Generator {
    /// The 32 bytes of the key.
    seed: Array1<u8>,
    stream: u64,
    /// Place in the stream, in words of 32 bits: the low and the high half.
    word_position: [u64; 2],
}
checkpoint_fields!(Generator { seed, stream, word_position });

impl Generator {
    /// At the start of the numbers of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self::capture(&ChaCha8Rng::seed_from_u64(seed))
    }

    /// Lets `draw` use the generator and keeps the place it leaves it at.
    pub(crate) fn with<T>(&mut self, draw: impl FnOnce(&mut ChaCha8Rng) -> T) -> T {
        let mut rng = self.resume();
        let drawn = draw(&mut rng);
        *self = Self::capture(&rng);
        drawn
    }

    fn capture(rng: &ChaCha8Rng) -> Self {
        let place = rng.get_word_pos();
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        Self {
            seed: Array1::from_iter(rng.get_seed()),
            stream: rng.get_stream(),
            word_position: [half(place), half(place >> 64)],
        }
    }

    fn resume(&self) -> ChaCha8Rng {
        let mut seed = [0; 32];
        for (to, from) in seed.iter_mut().zip(&self.seed) {
            *to = *from;
        }
        let [low, high] = self.word_position;
        let mut rng = ChaCha8Rng::from_seed(seed);
        rng.set_stream(self.stream);
        rng.set_word_pos(u128::from(high) << 64 | u128::from(low));
        rng
    }
}

/// The training images in a new random order each epoch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shuffle {
    /// Epochs begun.
    pub(crate) epoch: u64,
    /// Images of this epoch that were given out.
    position: u64,
    /// The order of this epoch: each training image once.
    permutation: Array1<u32>,
}
checkpoint_fields!(Shuffle { epoch, position, permutation });

impl Shuffle {
    /// Before the first epoch.
    pub(crate) fn new() -> Self {
        let images = u32::try_from(TRAIN_IMAGES).unwrap_or(u32::MAX);
        Self { epoch: 0, position: u64::from(images), permutation: Array1::from_iter(0..images) }
    }

    /// The next `count` images; the last of an epoch share a batch with the first of the next.
    pub(crate) fn next_batch(&mut self, count: usize, generator: &mut Generator) -> Vec<usize> {
        (0..count).map(|_| self.next_image(generator)).collect()
    }

    fn next_image(&mut self, generator: &mut Generator) -> usize {
        loop {
            let place = usize::try_from(self.position).unwrap_or(usize::MAX);
            if let Some(&image) = self.permutation.get(place) {
                self.position += 1;
                return usize::try_from(image).unwrap_or(usize::MAX);
            }
            self.epoch += 1;
            self.position = 0;
            if let Some(order) = self.permutation.as_slice_mut() {
                generator.with(|rng| order.shuffle(rng));
            }
        }
    }

    /// Whether the order has each training image once: a store could hold any numbers.
    pub(crate) fn is_whole(&self) -> bool {
        let mut images: Vec<_> = self.permutation.to_vec();
        images.sort_unstable();
        images.into_iter().eq(Self::new().permutation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn a_generator_goes_on_where_it_was() {
        let mut whole = ChaCha8Rng::seed_from_u64(7);
        let mut kept = Generator::new(7);
        // Odd counts of 32-bit words: places inside a block and inside a 64-bit number.
        for words in [0, 1, 3, 16, 61, 100] {
            for _ in 0..words {
                assert_eq!(kept.with(Rng::next_u32), whole.next_u32());
            }
            assert_eq!(kept.with(Rng::next_u64), whole.next_u64());
        }
    }

    #[test]
    fn a_generator_keeps_stream_and_far_places() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        rng.set_stream(u64::MAX - 4);
        rng.set_word_pos((1 << 66) + 5);
        let mut kept = Generator::capture(&rng);
        assert_eq!(kept.word_position, [5, 4]);
        assert_eq!(kept.with(Rng::next_u64), rng.next_u64());
    }

    #[test]
    fn an_epoch_has_each_image_once_in_its_own_order() {
        let mut generator = Generator::new(3);
        let mut shuffle = Shuffle::new();
        let first = shuffle.next_batch(TRAIN_IMAGES, &mut generator);
        assert_eq!(shuffle.epoch, 1);
        let second = shuffle.next_batch(TRAIN_IMAGES, &mut generator);
        assert_eq!(shuffle.epoch, 2);
        assert_ne!(first, second);
        for mut epoch in [first, second] {
            epoch.sort_unstable();
            assert!(epoch.into_iter().eq(0..TRAIN_IMAGES));
        }
        let other = Shuffle::new().next_batch(TRAIN_IMAGES, &mut Generator::new(4));
        assert_ne!(other, Shuffle::new().next_batch(TRAIN_IMAGES, &mut Generator::new(3)));
    }

    #[test]
    fn an_order_that_is_none_is_noticed() {
        let mut shuffle = Shuffle::new();
        shuffle.next_batch(5, &mut Generator::new(3));
        assert!(shuffle.is_whole());
        shuffle.permutation[0] = shuffle.permutation[1];
        assert!(!shuffle.is_whole());
        shuffle.permutation[0] = u32::MAX;
        assert!(!shuffle.is_whole());
    }
}
