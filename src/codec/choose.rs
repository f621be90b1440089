//! Which compression suits a leaf: the codecs are tried on parts of a few of its chunks.

use super::{Compression, Scratch, is_worth_it};
use crate::dtype::DType;

/// What is tried of one sample: enough for the gain to show, little enough to be done for each
/// leaf. A multiple of the size of every element.
const SAMPLE_BYTES: usize = 64 << 10;

/// What is tried, the cheapest to decode first.
const TRIED: [Compression; 3] = [Compression::Lz4, Compression::BytePlanes, Compression::BitPlanes];

/// Sizes this close to the smallest, in hundredths, are as good: the cheaper one is taken.
const CLOSE_PERCENT: usize = 2;

/// The compression for a leaf of which `samples` are some chunks: the one with which they are
/// smallest, or a cheaper one that comes close; [`Compression::None`] where none is worth it.
pub(crate) fn choose(dtype: DType, samples: &[&[u8]]) -> Compression {
    let parts = || samples.iter().map(|sample| sample.get(..SAMPLE_BYTES).unwrap_or(sample));
    let sizes = Scratch::with(|scratch| {
        TRIED.map(|compression| {
            let codec = compression.codec(dtype);
            let stored = |raw| scratch.compress(codec, dtype, raw).map_or(raw.len(), <[u8]>::len);
            (compression, parts().map(stored).sum::<usize>())
        })
    });
    let raw_bytes = parts().map(<[u8]>::len).sum();
    let smallest = sizes.iter().map(|size| size.1).min().unwrap_or(raw_bytes);
    if !is_worth_it(smallest, raw_bytes) {
        return Compression::None;
    }
    let close = smallest + smallest * CLOSE_PERCENT / 100;
    let chosen = sizes.iter().find(|size| size.1 <= close);
    chosen.map_or(Compression::None, |size| size.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::{noise, weights};

    #[test]
    fn the_choice_suits_the_data() {
        let zeros = vec![0; 100_000];
        let weights = weights(50_000);
        let halves: Vec<u8> = weights.chunks(4).flat_map(|weight| [weight[2], weight[3]]).collect();
        let text = include_bytes!("../docs/format.md");
        let mask: Vec<u8> = noise(50_000).iter().map(|byte| byte & 1).collect();
        let tokens: Vec<u8> = text.iter().flat_map(|byte| u32::from(*byte).to_le_bytes()).collect();
        for (name, dtype, data, expected) in [
            ("nothing", DType::F32, &[][..], Compression::None),
            ("one element", DType::F32, &[0, 0, 128, 63], Compression::None),
            ("noise", DType::U8, &noise(100_000), Compression::None),
            ("noise of floats", DType::F64, &noise(100_000), Compression::None),
            ("one value", DType::F32, &zeros, Compression::Lz4),
            ("text", DType::U8, text, Compression::Lz4),
            ("float32 weights", DType::F32, &weights, Compression::BitPlanes),
            ("bfloat16 weights", DType::BF16, &halves, Compression::BitPlanes),
            ("a random mask", DType::Bool, &mask, Compression::BitPlanes),
            ("letters as numbers", DType::U32, &tokens, Compression::BytePlanes),
        ] {
            assert_eq!(choose(dtype, &[data]), expected, "{name}");
        }
    }

    /// Zeros at the start of a leaf must not decide for the rest of it, nor the other way round.
    #[test]
    fn all_samples_count_by_their_bytes() {
        let (zeros, noise) = (vec![0; 60_000], noise(60_000));
        assert_eq!(choose(DType::U8, &[&zeros, &noise]), Compression::Lz4);
        assert_eq!(choose(DType::U8, &[&zeros[..1000], &noise]), Compression::None);
        assert_eq!(choose(DType::U8, &[]), Compression::None);
    }
}
