//! Chunks as planes: elements split into their bytes or bits, each plane one LZ4 block or raw.
//!
//! Stored are a header, for each plane a little-endian `u32` with the stored length of the plane,
//! and then the planes. A plane stored at its full length is raw. A reader trusts no length of the
//! header before it has compared all of them with what is there.

use super::ChunkError;
use super::lz4::{Lz4, decompress};
use super::transpose::{MAX_PLANES, Unit, join, plane_count, split};
use crate::dtype::DType;

/// The bytes of a length in the header.
const LENGTH_BYTES: usize = size_of::<u32>();

/// The planes of one chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planes {
    unit: Unit,
    /// The bytes of what is split: a whole element, or a component of a complex number.
    width: usize,
    count: usize,
    plane_bytes: usize,
    /// How many elements the last byte of a plane is only begun with; 0 if it is full.
    begun: usize,
}

impl Planes {
    /// The planes of `raw_len` bytes; none if those are not a whole number of elements.
    pub(super) fn new(unit: Unit, dtype: DType, raw_len: usize) -> Result<Self, ChunkError> {
        let width = component_bytes(dtype);
        if !raw_len.is_multiple_of(width) {
            return Err(ChunkError::Elements { expected: width, found: raw_len });
        }
        let (elements, count) = (raw_len / width, plane_count(unit, width));
        let (plane_bytes, begun) = match unit {
            Unit::Byte => (elements, 0),
            Unit::Bit => (elements.div_ceil(8), elements % 8),
        };
        Ok(Self { unit, width, count, plane_bytes, begun })
    }

    /// The bytes of the header: one length for each plane.
    pub(super) fn header_bytes(self) -> usize {
        self.count * LENGTH_BYTES
    }
}

/// The bytes of an element or, of a complex number, of one of its components.
fn component_bytes(dtype: DType) -> usize {
    match dtype {
        DType::Complex64 | DType::Complex128 => dtype.size_bytes() / 2,
        _ => dtype.size_bytes(),
    }
}

/// Encodes `raw` to the end of `stored`, using `memory` for its planes.
pub(super) fn encode(
    layout: Planes,
    raw: &[u8],
    lz4: &mut Lz4,
    memory: &mut Vec<u8>,
    stored: &mut Vec<u8>,
) {
    let header = stored.len();
    stored.resize(header + layout.header_bytes(), 0);
    if layout.plane_bytes == 0 {
        return;
    }
    memory.resize(layout.count * layout.plane_bytes, 0);
    split(layout.unit, layout.width, raw, memory);
    for (number, plane) in memory.chunks_exact(layout.plane_bytes).enumerate() {
        let bytes = lz4.compress(plane).unwrap_or(plane);
        stored.extend_from_slice(bytes);
        // A chunk is far below 4 GiB.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let lengths = stored.get_mut(header..).unwrap_or_default().as_chunks_mut().0;
        if let Some(place) = lengths.get_mut(number) {
            *place = length.to_le_bytes();
        }
    }
}

/// Decodes `stored` to `raw`, using `memory` for planes.
pub(super) fn decode(
    layout: Planes,
    stored: &[u8],
    raw: &mut [u8],
    memory: &mut Vec<u8>,
) -> Result<(), ChunkError> {
    let (lengths, mut rest) = parse_header(layout, stored)?;
    if layout.plane_bytes == 0 {
        return Ok(());
    }
    memory.resize(layout.count * layout.plane_bytes, 0);
    let mut planes: [&[u8]; MAX_PLANES] = [&[]; MAX_PLANES];
    let parts = lengths.iter().zip(memory.chunks_exact_mut(layout.plane_bytes));
    for (number, (place, (length, memory))) in planes.iter_mut().zip(parts).enumerate() {
        let (bytes, after) = rest.split_at_checked(length_of(*length)).unwrap_or((rest, &[]));
        rest = after;
        *place = if bytes.len() == layout.plane_bytes {
            bytes
        } else {
            decompress(bytes, memory).map_err(|message| ChunkError::PlaneLz4 {
                plane: number,
                expected: layout.plane_bytes,
                message,
            })?;
            memory
        };
        let last = place.last().copied().unwrap_or(0);
        if layout.begun > 0 && last >> layout.begun != 0 {
            return Err(ChunkError::PlanePadding { plane: number, elements: layout.begun, last });
        }
    }
    join(layout.unit, layout.width, planes.get(..layout.count).unwrap_or_default(), raw);
    Ok(())
}

/// The header, whose lengths are all possible and sum up to what follows, and what follows.
fn parse_header(
    layout: Planes,
    stored: &[u8],
) -> Result<(&[[u8; LENGTH_BYTES]], &[u8]), ChunkError> {
    let expected = layout.header_bytes();
    let Some((header, rest)) = stored.split_at_checked(expected) else {
        return Err(ChunkError::Header { expected, found: stored.len() });
    };
    let (lengths, _) = header.as_chunks();
    let mut sum = 0usize;
    for (plane, length) in lengths.iter().enumerate() {
        let found = length_of(*length);
        if found > layout.plane_bytes {
            return Err(ChunkError::PlaneLength { plane, expected: layout.plane_bytes, found });
        }
        sum = sum.saturating_add(found);
    }
    if sum != rest.len() {
        return Err(ChunkError::PlanesLength { expected: sum, found: rest.len() });
    }
    Ok((lengths, rest))
}

fn length_of(bytes: [u8; LENGTH_BYTES]) -> usize {
    usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten numbers of which both bytes are equal everywhere, as bit planes: 16 planes of two bytes.
    fn layout() -> Planes {
        Planes::new(Unit::Bit, DType::BF16, 20).unwrap()
    }

    fn stored(lengths: [u32; 16], planes: &[u8]) -> Vec<u8> {
        [lengths.map(u32::to_le_bytes).as_flattened(), planes].concat()
    }

    fn refusal(stored: &[u8]) -> ChunkError {
        decode(layout(), stored, &mut [0; 20], &mut Vec::new()).unwrap_err()
    }

    #[test]
    fn raw_planes_and_blocks_are_told_apart_by_their_length() {
        let mut lengths = [2; 16];
        let mut raw = [0; 20];
        let mut planes = [0xff, 0x03].repeat(16);
        decode(layout(), &stored(lengths, &planes), &mut raw, &mut Vec::new()).unwrap();
        assert_eq!(raw, [0xff; 20]);
        // One byte is no block of two bytes.
        lengths[15] = 1;
        planes.pop();
        let error = refusal(&stored(lengths, &planes));
        assert!(matches!(error, ChunkError::PlaneLz4 { plane: 15, expected: 2, .. }), "{error:?}");
    }

    #[test]
    fn what_a_header_can_not_say_is_refused() {
        let planes = [0; 32];
        let whole = stored([2; 16], &planes);
        let header = ChunkError::Header { expected: 64, found: 63 };
        assert_eq!(refusal(&whole[..63]), header);
        for (stored, found) in [(&whole[..95], 31), (&[&whole[..], &[0]].concat(), 33)] {
            assert_eq!(refusal(stored), ChunkError::PlanesLength { expected: 32, found });
        }
        for length in [3, 1 << 31, u32::MAX] {
            let mut lengths = [2; 16];
            lengths[9] = length;
            let found = usize::try_from(length).unwrap();
            let error = ChunkError::PlaneLength { plane: 9, expected: 2, found };
            assert_eq!(refusal(&stored(lengths, &planes)), error);
        }
    }

    #[test]
    fn bits_after_the_last_element_are_refused() {
        let mut planes = [0; 32];
        planes[7] = 0x04;
        let error = ChunkError::PlanePadding { plane: 3, elements: 2, last: 4 };
        assert_eq!(refusal(&stored([2; 16], &planes)), error);
    }

    #[test]
    fn chunks_are_whole_elements() {
        let error = ChunkError::Elements { expected: 8, found: 20 };
        assert_eq!(Planes::new(Unit::Byte, DType::F64, 20).unwrap_err(), error);
        // Of complex numbers it is the components that are split.
        assert_eq!(Planes::new(Unit::Byte, DType::Complex128, 24).unwrap().count, 8);
        assert_eq!(Planes::new(Unit::Bit, DType::Complex64, 4).unwrap().count, 32);
    }
}
