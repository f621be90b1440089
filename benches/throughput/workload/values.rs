//! Elements from a seed: what real states look like, so that nothing is zero and nothing repeats.

use milepost::DType;
use milepost::half::bf16;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, StandardNormal};

/// How the elements of an array are distributed. Each array has a scale of its own, which varies
/// from array to array by a factor of `exp(spread × normal)`.
#[derive(Clone, Copy)]
pub(super) enum Distribution {
    Normal {
        mean: f32,
        deviation: f32,
        spread: f32,
    },
    /// Whose logarithm is normal.
    LogNormal {
        median: f32,
        deviation: f32,
        spread: f32,
    },
    Constant(i32),
    Bits,
}

impl Distribution {
    /// The scale of a layer norm.
    pub(super) const SCALE: Self = Self::Normal { mean: 1.0, deviation: 0.05, spread: 0.0 };
    pub(super) const BIAS: Self = Self::Normal { mean: 0.0, deviation: 0.02, spread: 0.0 };
    /// Adam's mean of the gradient.
    pub(super) const FIRST_MOMENT: Self = Self::Normal { mean: 0.0, deviation: 1e-4, spread: 0.5 };
    /// Adam's mean of the squared gradient.
    pub(super) const SECOND_MOMENT: Self =
        Self::LogNormal { median: 1e-8, deviation: 1.5, spread: 0.5 };

    /// Weights of a matrix.
    pub(super) const fn weights(deviation: f32) -> Self {
        Self::Normal { mean: 0.0, deviation, spread: 0.3 }
    }

    /// `count` elements of `dtype`, as bytes. `array` is the generator of the array's own scale,
    /// `elements` that of the elements.
    pub(super) fn draw(
        self,
        dtype: DType,
        count: usize,
        mut array: StdRng,
        mut elements: StdRng,
    ) -> Vec<u8> {
        let normal = |rng: &mut StdRng| -> f32 { StandardNormal.sample(rng) };
        let scale = |spread: f32, rng: &mut StdRng| (spread * normal(rng)).exp();
        match self {
            Self::Normal { mean, deviation, spread } => {
                let deviation = deviation * scale(spread, &mut array);
                floats(dtype, count, || mean + deviation * normal(&mut elements))
            }
            Self::LogNormal { median, deviation, spread } => {
                let median = median * scale(spread, &mut array);
                floats(dtype, count, || median * (deviation * normal(&mut elements)).exp())
            }
            Self::Constant(value) => value.to_le_bytes().repeat(count),
            Self::Bits => (0..count * dtype.size_bytes()).map(|_| elements.random()).collect(),
        }
    }
}

fn floats(dtype: DType, count: usize, mut next: impl FnMut() -> f32) -> Vec<u8> {
    if dtype == DType::BF16 {
        (0..count).flat_map(|_| bf16::from_f32(next()).to_le_bytes()).collect()
    } else {
        (0..count).flat_map(|_| next().to_le_bytes()).collect()
    }
}

/// The generator of one part of one array: what a part holds depends on nothing else.
pub(super) fn generator(seed: u64, array: u64, part: u64) -> StdRng {
    let mut key = [0; 32];
    for (bytes, number) in key.chunks_exact_mut(8).zip([seed, array, part]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    StdRng::from_seed(key)
}
