//! Floats with raised exponents.
//!
//! The exponents of a chunk of weights are a few neighbours, but in binary they may differ in all bits:
//! 127 is `01111111`, 128 is `10000000`. So all are raised by the same amount, such that the largest
//! becomes the one with all bits set: then the high bits of most are set, and their planes repeat.
//!
//! Raising adds to an element as an unsigned integer. As no exponent passes the largest, nothing is
//! carried into the sign, and subtracting gives every bit back, those of NaNs and infinities too.

use crate::dtype::DType;

/// The parts of a float, or of both components of a complex number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exponents {
    width: Width,
    fraction_bits: u32,
    /// The exponent with all bits set.
    pub(super) all_set: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Two,
    Four,
    Eight,
}

impl Exponents {
    /// The parts of the floats of more than one byte; nothing for other types.
    pub(super) fn of(dtype: DType) -> Option<Self> {
        let (width, fraction_bits, exponent_bits) = match dtype {
            DType::F16 => (Width::Two, 10, 5),
            DType::BF16 => (Width::Two, 7, 8),
            DType::F32 | DType::Complex64 => (Width::Four, 23, 8),
            DType::F64 | DType::Complex128 => (Width::Eight, 52, 11),
            _ => return None,
        };
        Some(Self { width, fraction_bits, all_set: (1 << exponent_bits) - 1 })
    }

    /// By how much the exponents of `raw` can be raised.
    pub(super) fn headroom(self, raw: &[u8]) -> u32 {
        let shift = self.fraction_bits;
        let exponent = |bits: u64| u32::try_from(bits >> shift).unwrap_or(u32::MAX) & self.all_set;
        let largest = match self.width {
            Width::Two => raw
                .as_chunks()
                .0
                .iter()
                .map(|bytes| exponent(u64::from(u16::from_le_bytes(*bytes))))
                .max(),
            Width::Four => raw
                .as_chunks()
                .0
                .iter()
                .map(|bytes| exponent(u64::from(u32::from_le_bytes(*bytes))))
                .max(),
            Width::Eight => {
                raw.as_chunks().0.iter().map(|bytes| exponent(u64::from_le_bytes(*bytes))).max()
            }
        };
        self.all_set - largest.unwrap_or(self.all_set)
    }

    /// Raises all exponents by `amount`, at most their [`headroom`](Self::headroom).
    pub(super) fn raise(self, amount: u32, elements: &mut [u8]) {
        self.add(u64::from(amount) << self.fraction_bits, elements);
    }

    /// Undoes [`raise`](Self::raise). Elements that it can't have made become any others.
    pub(super) fn lower(self, amount: u32, elements: &mut [u8]) {
        self.add((u64::from(amount) << self.fraction_bits).wrapping_neg(), elements);
    }

    /// Adds the low bits of `addend` to each element.
    fn add(self, addend: u64, elements: &mut [u8]) {
        let [a, b, c, d, ..] = addend.to_le_bytes();
        match self.width {
            Width::Two => {
                let addend = u16::from_le_bytes([a, b]);
                for bytes in elements.as_chunks_mut().0 {
                    *bytes = u16::from_le_bytes(*bytes).wrapping_add(addend).to_le_bytes();
                }
            }
            Width::Four => {
                let addend = u32::from_le_bytes([a, b, c, d]);
                for bytes in elements.as_chunks_mut().0 {
                    *bytes = u32::from_le_bytes(*bytes).wrapping_add(addend).to_le_bytes();
                }
            }
            Width::Eight => {
                for bytes in elements.as_chunks_mut().0 {
                    *bytes = u64::from_le_bytes(*bytes).wrapping_add(addend).to_le_bytes();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn floats() -> impl Iterator<Item = (DType, Exponents)> {
        DType::all().filter_map(|dtype| Some((dtype, Exponents::of(dtype)?)))
    }

    proptest! {
        #[test]
        fn every_bit_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            for (dtype, exponents) in floats() {
                let whole = bytes.len() - bytes.len() % dtype.size_bytes();
                let mut elements = bytes[..whole].to_vec();
                let headroom = exponents.headroom(&elements);
                exponents.raise(headroom, &mut elements);
                if whole > 0 {
                    prop_assert_eq!(exponents.headroom(&elements), 0);
                }
                exponents.lower(headroom, &mut elements);
                prop_assert_eq!(&elements, &bytes[..whole]);
            }
        }
    }

    #[test]
    fn signs_and_fractions_stay() {
        let exponents = Exponents::of(DType::F32).unwrap();
        let mut elements = [-1.5f32, 0.375].map(f32::to_le_bytes).concat();
        // The exponent of 1.5 is 127, and 255 is that of infinity.
        assert_eq!(exponents.headroom(&elements), 128);
        exponents.raise(128, &mut elements);
        let bits = [0xffc0_0000u32, 0x7ec0_0000].map(u32::to_le_bytes).concat();
        assert_eq!(elements, bits);
        assert_eq!(exponents.headroom(&f32::NAN.to_le_bytes()), 0);
        assert_eq!(exponents.headroom(&0f32.to_le_bytes()), 255);
    }
}
