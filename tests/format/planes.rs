//! Chunks as planes, decoded one element at a time by what the page says.

/// The bytes of an element, or of one part of a complex number, by the code of its type.
fn width(dtype: u8) -> usize {
    match dtype {
        1 | 2 | 6 | 14 | 15 => 1,
        3 | 7 | 10 | 11 => 2,
        4 | 8 | 12 | 16 => 4,
        5 | 9 | 13 | 17 => 8,
        dtype => panic!("there is no element type {dtype}"),
    }
}

/// The bits of a float, or of one part of a complex number, after its exponent; and those of the
/// exponent.
fn float(dtype: u8) -> (u32, u32) {
    match dtype {
        10 => (10, 5),
        11 => (7, 8),
        12 | 16 => (23, 8),
        13 | 17 => (52, 11),
        dtype => panic!("element type {dtype} is no float of several bytes"),
    }
}

/// The raw bytes of a chunk with codec 2, 3 or 4.
pub(crate) fn decode(codec: u8, dtype: u8, stored: &[u8], raw_len: usize) -> Vec<u8> {
    if codec < 4 {
        return join(codec, dtype, stored, raw_len);
    }
    let (fraction_bits, exponent_bits) = float(dtype);
    let (raised, planes) = stored.split_at(4);
    let raised = u64::from(u32::from_le_bytes(raised.try_into().unwrap()));
    assert!(raised < 1 << exponent_bits);
    let mut raw = join(3, dtype, planes, raw_len);
    for element in raw.chunks_mut(width(dtype)) {
        let mut bits = [0; 8];
        bits[..element.len()].copy_from_slice(element);
        let bits = u64::from_le_bytes(bits).wrapping_sub(raised << fraction_bits);
        element.copy_from_slice(&bits.to_le_bytes()[..element.len()]);
    }
    raw
}

/// The elements whose planes are `stored`.
fn join(codec: u8, dtype: u8, stored: &[u8], raw_len: usize) -> Vec<u8> {
    let width = width(dtype);
    assert_eq!(raw_len % width, 0);
    let elements = raw_len / width;
    let (planes, length) = match codec {
        2 => (width, elements),
        _ => (8 * width, elements.div_ceil(8)),
    };
    let (header, mut rest) = stored.split_at(4 * planes);
    let mut raw = vec![0; raw_len];
    for (k, stored_length) in header.chunks(4).enumerate() {
        let stored_length = u32::from_le_bytes(stored_length.try_into().unwrap());
        let (plane, after) = rest.split_at(stored_length.try_into().unwrap());
        rest = after;
        let plane = if plane.len() == length {
            plane.to_vec()
        } else {
            assert!(plane.len() < length);
            lz4_flex::block::decompress(plane, length).unwrap()
        };
        assert_eq!(plane.len(), length);
        for i in 0..elements {
            match codec {
                2 => raw[i * width + k] = plane[i],
                _ => raw[i * width + k / 8] |= (plane[i / 8] >> (i % 8) & 1) << (k % 8),
            }
        }
        if codec == 3 {
            let padding = elements..8 * length;
            assert!(padding.into_iter().all(|i| plane[i / 8] >> (i % 8) & 1 == 0));
        }
    }
    assert!(rest.is_empty());
    raw
}
