//! Elements ↔ planes: bits or bytes of one place of every element, brought together.
//!
//! Both are the transposition of a matrix whose rows are elements. It is done in blocks of 64
//! bytes of each plane, which stay in the L1 cache: words are gathered so that word `w` holds
//! elements `w`, `w + PLANES`, `w + 2 * PLANES` …, and then every bit of the number of a word is
//! swapped with the bit of the same weight of the place within a word. That is its own inverse.

/// What a plane takes of each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Byte,
    Bit,
}

/// One word of eight groups of elements: 64 bytes of one plane once the block is transposed.
type Line = [u64; 8];

const LINE_BYTES: usize = size_of::<Line>();

/// The most planes: one for each bit of an element of eight bytes.
pub(super) const MAX_PLANES: usize = 64;

/// The bytes of the largest block.
const MAX_BLOCK_BYTES: usize = LINE_BYTES * MAX_PLANES;

/// How many planes elements of `width` bytes have; `width` is 1, 2, 4 or 8.
pub(super) fn plane_count(unit: Unit, width: usize) -> usize {
    match unit {
        Unit::Byte => width,
        Unit::Bit => 8 * width,
    }
}

/// Splits `raw`, a whole number of elements of `width` bytes, into planes that lie in `planes`
/// back to back. Bits after the last element are zero.
pub(super) fn split(unit: Unit, width: usize, raw: &[u8], planes: &mut [u8]) {
    match (unit, width) {
        (Unit::Byte, 1) => split_planes::<1, 1>(raw, planes),
        (Unit::Byte, 2) => split_planes::<2, 2>(raw, planes),
        (Unit::Byte, 4) => split_planes::<4, 4>(raw, planes),
        (Unit::Byte, _) => split_planes::<8, 8>(raw, planes),
        (Unit::Bit, 1) => split_planes::<1, 8>(raw, planes),
        (Unit::Bit, 2) => split_planes::<2, 16>(raw, planes),
        (Unit::Bit, 4) => split_planes::<4, 32>(raw, planes),
        (Unit::Bit, _) => split_planes::<8, 64>(raw, planes),
    }
}

/// Puts elements together again from their planes.
pub(super) fn join(unit: Unit, width: usize, planes: &[&[u8]], raw: &mut [u8]) {
    match (unit, width) {
        (Unit::Byte, 1) => join_planes::<1, 1>(planes, raw),
        (Unit::Byte, 2) => join_planes::<2, 2>(planes, raw),
        (Unit::Byte, 4) => join_planes::<4, 4>(planes, raw),
        (Unit::Byte, _) => join_planes::<8, 8>(planes, raw),
        (Unit::Bit, 1) => join_planes::<1, 8>(planes, raw),
        (Unit::Bit, 2) => join_planes::<2, 16>(planes, raw),
        (Unit::Bit, 4) => join_planes::<4, 32>(planes, raw),
        (Unit::Bit, _) => join_planes::<8, 64>(planes, raw),
    }
}

fn split_planes<const WIDTH: usize, const PLANES: usize>(raw: &[u8], planes: &mut [u8]) {
    let plane_bytes = planes.len() / PLANES;
    if plane_bytes == 0 {
        return;
    }
    for (number, part) in raw.chunks(LINE_BYTES * PLANES).enumerate() {
        let mut block = if part.len() == LINE_BYTES * PLANES {
            gather::<WIDTH, PLANES>(part)
        } else {
            let mut padded = [0; MAX_BLOCK_BYTES];
            copy(part, &mut padded);
            gather::<WIDTH, PLANES>(&padded)
        };
        transpose::<WIDTH, PLANES>(&mut block);
        for (plane, line) in planes.chunks_exact_mut(plane_bytes).zip(&block) {
            let bytes = line.map(u64::to_le_bytes);
            let to = plane.get_mut(LINE_BYTES * number..).unwrap_or_default();
            copy_line(bytes.as_flattened(), to);
        }
    }
}

fn join_planes<const WIDTH: usize, const PLANES: usize>(planes: &[&[u8]], raw: &mut [u8]) {
    for (number, part) in raw.chunks_mut(LINE_BYTES * PLANES).enumerate() {
        let mut block = [[0; 8]; PLANES];
        for (plane, line) in planes.iter().zip(&mut block) {
            let mut bytes = [[0; 8]; 8];
            let from = plane.get(LINE_BYTES * number..).unwrap_or_default();
            copy_line(from, bytes.as_flattened_mut());
            *line = bytes.map(u64::from_le_bytes);
        }
        transpose::<WIDTH, PLANES>(&mut block);
        if part.len() == LINE_BYTES * PLANES {
            scatter::<WIDTH, PLANES>(&block, part);
        } else {
            let mut padded = [0; MAX_BLOCK_BYTES];
            scatter::<WIDTH, PLANES>(&block, &mut padded);
            copy(&padded, part);
        }
    }
}

/// The words of the block that `part` begins with.
#[inline]
fn gather<const WIDTH: usize, const PLANES: usize>(part: &[u8]) -> [Line; PLANES] {
    let mut block = [[0; 8]; PLANES];
    for (group, elements) in part.chunks_exact(8 * PLANES).take(8).enumerate() {
        for (run, elements) in elements.chunks_exact(WIDTH * PLANES).enumerate() {
            for (line, element) in block.iter_mut().zip(elements.as_chunks::<WIDTH>().0) {
                let mut word = [0; 8];
                for (to, from) in word.iter_mut().zip(element) {
                    *to = *from;
                }
                if let Some(place) = line.get_mut(group) {
                    *place |= u64::from_le_bytes(word) << (8 * WIDTH * run);
                }
            }
        }
    }
    block
}

/// The inverse of [`gather`].
#[inline]
fn scatter<const WIDTH: usize, const PLANES: usize>(block: &[Line; PLANES], part: &mut [u8]) {
    for (group, elements) in part.chunks_exact_mut(8 * PLANES).take(8).enumerate() {
        for (run, elements) in elements.chunks_exact_mut(WIDTH * PLANES).enumerate() {
            for (line, element) in block.iter().zip(elements.as_chunks_mut::<WIDTH>().0) {
                let word = line.get(group).map_or(0, |word| word >> (8 * WIDTH * run));
                for (to, from) in element.iter_mut().zip(word.to_le_bytes()) {
                    *to = from;
                }
            }
        }
    }
}

/// Swaps each bit of the number of a line with the bit of the same weight of the place in a word,
/// where places are bits or bytes.
#[inline]
fn transpose<const WIDTH: usize, const PLANES: usize>(block: &mut [Line; PLANES]) {
    let unit_bits = 8 * WIDTH / PLANES;
    let mut distance = 1;
    while distance < PLANES {
        let shift = distance * unit_bits;
        // The places whose number lacks this bit.
        let mask = u64::MAX / ((1 << shift) + 1);
        for pair in block.chunks_exact_mut(2 * distance) {
            let (low, high) = pair.split_at_mut(distance);
            let words = low.as_flattened_mut().iter_mut().zip(high.as_flattened_mut());
            for (low, high) in words {
                let swapped = ((*low >> shift) ^ *high) & mask;
                *high ^= swapped;
                *low ^= swapped << shift;
            }
        }
        distance *= 2;
    }
}

/// Copies a line, or as much of it as both have.
#[inline]
fn copy_line(from: &[u8], to: &mut [u8]) {
    match (from.first_chunk::<LINE_BYTES>(), to.first_chunk_mut::<LINE_BYTES>()) {
        (Some(from), Some(to)) => *to = *from,
        _ => copy(from, to),
    }
}

/// Copies as much as both have.
fn copy(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::noise;

    /// What splitting is, one place of one element at a time.
    fn split_slowly(unit: Unit, width: usize, raw: &[u8]) -> Vec<Vec<u8>> {
        let elements: Vec<_> = raw.chunks(width).collect();
        let byte = |plane: usize| elements.iter().map(|element| element[plane]).collect();
        let bit = |plane: usize| {
            let bits = |eight: &[&[u8]]| {
                let bits = eight.iter().map(|element| element[plane / 8] >> (plane % 8) & 1);
                bits.enumerate().fold(0, |byte, (place, bit)| byte | bit << place)
            };
            elements.chunks(8).map(bits).collect()
        };
        let planes = 0..plane_count(unit, width);
        match unit {
            Unit::Byte => planes.map(byte).collect(),
            Unit::Bit => planes.map(bit).collect(),
        }
    }

    #[test]
    fn planes_are_what_they_are_said_to_be_and_elements_come_back() {
        for (unit, block_elements) in [(Unit::Byte, 64), (Unit::Bit, 512)] {
            for width in [1, 2, 4, 8] {
                let around = |blocks: usize| blocks * block_elements..blocks * block_elements + 10;
                let more = around(1).map(|elements| elements - 9).chain(around(3));
                for elements in (0..=17).chain(more) {
                    let raw = noise(elements * width);
                    let expected = split_slowly(unit, width, &raw);
                    let mut planes = vec![0xaa; expected.concat().len()];
                    split(unit, width, &raw, &mut planes);
                    assert_eq!(planes, expected.concat(), "{unit:?} {width} {elements}");
                    let views: Vec<&[u8]> = expected.iter().map(Vec::as_slice).collect();
                    let mut back = vec![0xaa; raw.len()];
                    join(unit, width, &views, &mut back);
                    assert_eq!(back, raw, "{unit:?} {width} {elements}");
                }
            }
        }
    }
}
