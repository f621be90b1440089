//! The two sums of the format: crc32 (IEEE 802.3, as in zlib), which finds damage, and XXH3 with
//! 128 bits and seed 0 (<https://github.com/Cyan4973/xxHash>), which finds equal contents.

use twox_hash::xxhash3_128;

/// The crc32 of `parts`, one after the other.
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The 128-bit hash of `raw`, little-endian.
pub(crate) fn content_hash(raw: &[u8]) -> [u8; 16] {
    xxhash3_128::Hasher::oneshot(raw).to_le_bytes()
}

/// A 128-bit digest of parts, each with its length, so that no two sequences look the same.
#[derive(Default)]
pub(crate) struct Digest(xxhash3_128::Hasher);

impl Digest {
    pub(crate) fn update(&mut self, part: &[u8]) {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        self.0.write(&length.to_le_bytes());
        self.0.write(part);
    }

    pub(crate) fn finish(&self) -> [u8; 16] {
        self.0.finish_128().to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_the_published_ones() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
        // XXH3_128bits of no bytes with seed 0, from the test vectors of the xxHash project.
        assert_eq!(
            u128::from_le_bytes(content_hash(b"")),
            0x99aa_06d3_0147_98d8_6001_c324_468d_497f
        );
    }

    #[test]
    fn a_digest_keeps_its_parts_apart() {
        let digest = |parts: &[&[u8]]| {
            let mut digest = Digest::default();
            for part in parts {
                digest.update(part);
            }
            digest.finish()
        };
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_eq!(digest(&[b"ab", b"c"]), digest(&[b"ab", b"c"]));
    }
}
