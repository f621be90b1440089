use super::*;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};

const ID: ChunkId<'_> = ChunkId { path: b"\x03w\0", shard: 0, index: 2, dtype: DType::F32 };

const COMPRESSIONS: [Compression; 5] = [
    Compression::None,
    Compression::Lz4,
    Compression::BytePlanes,
    Compression::BitPlanes,
    Compression::Auto,
];

/// The same random bytes every time.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    StdRng::seed_from_u64(1).fill_bytes(&mut bytes);
    bytes
}

/// `float32` numbers such as the weights of a layer, as bytes.
pub(super) fn weights(count: usize) -> Vec<u8> {
    let (mut rng, normal) = (StdRng::seed_from_u64(2), Normal::new(0f32, 0.02).unwrap());
    (0..count).flat_map(|_| normal.sample(&mut rng).to_le_bytes()).collect()
}

/// Element types with whole elements of them: noise, few different values, or floats that are no
/// ordinary numbers.
fn elements() -> impl Strategy<Value = (DType, Vec<u8>)> {
    let special = vec![
        f64::NAN.to_bits(),
        0xfff0_dead_beef_0001,
        f64::NEG_INFINITY.to_bits(),
        (-0f64).to_bits(),
        1,
        0x7fc0_0001_ff80_0000,
        0x8000_0001_7f80_8000,
    ];
    let dtype = prop::sample::select(DType::all().collect::<Vec<_>>());
    let length = prop_oneof![0usize..20, 0usize..2000];
    let word = prop_oneof![
        1 => any::<u64>().boxed(),
        3 => prop::sample::select(special).boxed(),
    ];
    (dtype, length, prop::collection::vec(word, 1..40)).prop_map(|(dtype, length, words)| {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).cycle();
        (dtype, bytes.take(length * dtype.size_bytes()).collect())
    })
}

fn encode<'r>(
    id: ChunkId<'_>,
    raw: &'r [u8],
    compression: Compression,
) -> (ChunkInfo, std::borrow::Cow<'r, [u8]>) {
    super::encode(id, raw, content_hash(raw), compression)
}

proptest! {
    #[test]
    fn elements_of_every_type_come_back_bit_for_bit((dtype, raw) in elements()) {
        let id = ChunkId { dtype, ..ID };
        for compression in COMPRESSIONS {
            let (info, stored) = encode(id, &raw, compression);
            prop_assert!(stored.len() <= raw.len());
            let mut out = vec![9; raw.len()];
            decode(id, &info, &stored, &mut out).unwrap();
            prop_assert_eq!(&out, &raw, "{:?}", compression);
        }
    }

    /// Also what is no whole number of elements, as the last bytes of a damaged leaf.
    #[test]
    fn any_bytes_come_back(raw in prop::collection::vec(0u8..4, 0..5000)) {
        for compression in COMPRESSIONS {
            let (info, stored) = encode(ID, &raw, compression);
            prop_assert!(stored.len() <= raw.len());
            let mut out = vec![9; raw.len()];
            decode(ID, &info, &stored, &mut out).unwrap();
            prop_assert_eq!(&out, &raw, "{:?}", compression);
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed(bit in any::<prop::sample::Index>()) {
        for compression in COMPRESSIONS {
            let (info, stored) = encode(ID, &[7; 600], compression);
            let mut stored = stored.into_owned();
            let bit = bit.index(stored.len() * 8);
            stored[bit / 8] ^= 1 << (bit % 8);
            let mut out = [0; 600];
            let error = decode(ID, &info, &stored, &mut out).unwrap_err();
            let noticed = matches!(error, ChunkError::Checksum { .. });
            prop_assert!(noticed);
            prop_assert_eq!(out, [0; 600]);
        }
    }

    /// Under a right checksum nothing is trusted either.
    #[test]
    fn hostile_planes_are_refused_or_decoded(
        (dtype, raw) in elements(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let id = ChunkId { dtype, ..ID };
        for compression in [Compression::BytePlanes, Compression::BitPlanes] {
            let (info, stored) = encode(id, &raw, compression);
            let mut stored = stored.into_owned();
            for (place, value) in &changes {
                if !stored.is_empty() {
                    let place = place.index(stored.len());
                    stored[place] = *value;
                }
            }
            // A writer raises the exponents of all floats that it splits into bits; a file may say
            // anything.
            for codec in [info.codec, Codec::BitPlanes, Codec::RaisedBitPlanes] {
                let info = with_checksum(id, ChunkInfo { codec, ..info }, &stored);
                if let Err(error) = decode(id, &info, &stored, &mut vec![0; raw.len()]) {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}

#[test]
fn the_example_of_the_page_is_true() {
    let raw: Vec<u8> = (256..288u16).flat_map(u16::to_le_bytes).collect();
    let id = ChunkId { dtype: DType::U16, ..ID };
    let (_, stored) = encode(id, &raw, Compression::BytePlanes);
    let page = include_str!("../docs/format.md");
    let example = page.split("<!-- example: planes -->").nth(1).unwrap();
    let lines = example.lines().skip_while(|line| *line != "```text").skip(1);
    let bytes = lines.take_while(|line| *line != "```").flat_map(|line| {
        let bytes = line.split([':', '|']).nth(1).unwrap();
        bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap())
    });
    assert_eq!(bytes.collect::<Vec<_>>(), *stored);
}

/// A changed length changes the sum of all, which is that of the stored bytes.
#[test]
fn every_changed_byte_of_a_header_is_refused_even_under_a_right_checksum() {
    let id = ChunkId { dtype: DType::U32, ..ID };
    let raw: Vec<u8> = (0..1001u32).flat_map(u32::to_le_bytes).collect();
    for (compression, codec, header_bytes) in [
        (Compression::BytePlanes, Codec::BytePlanes, 16),
        (Compression::BitPlanes, Codec::BitPlanes, 128),
    ] {
        let (info, stored) = encode(id, &raw, compression);
        assert_eq!(info.codec, codec);
        for place in 0..header_bytes {
            for change in 1..=255 {
                let mut stored = stored.to_vec();
                stored[place] ^= change;
                let info = with_checksum(id, info, &stored);
                let error = decode(id, &info, &stored, &mut vec![0; raw.len()]).unwrap_err();
                let expected = matches!(
                    error,
                    ChunkError::PlaneLength { .. } | ChunkError::PlanesLength { .. }
                );
                assert!(expected, "{place} {change}: {error}");
            }
        }
    }
}

#[test]
fn exponents_are_raised_by_no_more_than_there_are() {
    let raw: Vec<u8> = [0.5f32, -1.0].map(f32::to_le_bytes).concat().repeat(1000);
    let (info, stored) = encode(ID, &raw, Compression::BitPlanes);
    assert_eq!((info.codec, &stored[..4]), (Codec::RaisedBitPlanes, &[128, 0, 0, 0][..]));
    let refusal = |id: ChunkId<'_>, stored: &[u8]| {
        let info = with_checksum(id, info, stored);
        let info = ChunkInfo { stored_len: u32::try_from(stored.len()).unwrap(), ..info };
        decode(id, &with_checksum(id, info, stored), stored, &mut vec![0; raw.len()]).unwrap_err()
    };
    let mut raised = stored.to_vec();
    raised[1] = 1;
    assert_eq!(refusal(ID, &raised), ChunkError::Raised { expected: 255, found: 384 });
    for found in [0, 3, 4, 131] {
        let error = ChunkError::Header { expected: 132, found };
        assert_eq!(refusal(ID, &stored[..found]), error);
    }
    let dtype = DType::U32;
    assert_eq!(refusal(ChunkId { dtype, ..ID }, &stored), ChunkError::NoExponent { dtype });
}

/// Bounds that the page of [`Compression`] leads a user to expect, on numbers like weights.
#[test]
fn planes_shrink_weights_and_lz4_does_not() {
    let raw = weights(1 << 16);
    let ratio = |compression| {
        let (_, stored) = encode(ID, &raw, compression);
        stored.len() * 100 / raw.len()
    };
    assert_eq!(ratio(Compression::Lz4), 100);
    assert!(ratio(Compression::BytePlanes) <= 94, "{}", ratio(Compression::BytePlanes));
    assert!(ratio(Compression::BitPlanes) <= 87, "{}", ratio(Compression::BitPlanes));
    assert_eq!(ratio(Compression::Auto), ratio(Compression::BitPlanes));
}

#[test]
fn compressible_data_shrinks_and_the_rest_stays_raw() {
    for (compression, codec) in [
        (Compression::Lz4, Codec::Lz4),
        (Compression::BytePlanes, Codec::BytePlanes),
        (Compression::BitPlanes, Codec::RaisedBitPlanes),
        (Compression::Auto, Codec::Lz4),
    ] {
        let (info, stored) = encode(ID, &[0; 8192], compression);
        assert_eq!(info.codec, codec);
        assert!(stored.len() < 1000);
        let noise = noise(8192);
        let (info, stored) = encode(ID, &noise, compression);
        assert_eq!(info.codec, Codec::Raw);
        assert!(matches!(stored, Cow::Borrowed(_)), "it is not copied");
    }
}

/// Stored chunks are compared to find those that are there already.
#[test]
fn equal_chunks_are_stored_as_equal_bytes() {
    let (raw, other) = (weights(5000), noise(100_000));
    for compression in COMPRESSIONS {
        let before = encode(ID, &raw, compression);
        for other_compression in COMPRESSIONS {
            encode(ID, &other, other_compression);
        }
        assert_eq!(encode(ID, &raw, compression), before);
    }
}

#[test]
fn a_chunk_in_the_wrong_place_is_noticed() {
    let (info, stored) = encode(ID, b"some bytes", Compression::None);
    let mut out = [0; 10];
    for other in [
        ChunkId { path: b"\x03v\0", ..ID },
        ChunkId { shard: 1, ..ID },
        ChunkId { index: 3, ..ID },
        ChunkId { dtype: DType::I32, ..ID },
    ] {
        assert!(decode(other, &info, &stored, &mut out).is_err(), "{other:?}");
    }
    assert!(decode(ID, &ChunkInfo { codec: Codec::Lz4, ..info }, &stored, &mut out).is_err());
    assert!(decode(ID, &info, &stored[..9], &mut out).is_err());
    assert!(decode(ID, &info, &stored, &mut out[..9]).is_err());
}

#[test]
fn every_codec_has_its_own_code() {
    let codecs: Vec<_> = (0..=255).filter_map(Codec::from_code).collect();
    let planes = [Codec::BytePlanes, Codec::BitPlanes, Codec::RaisedBitPlanes];
    assert_eq!(codecs, [&[Codec::Raw, Codec::Lz4][..], &planes].concat());
    assert!(codecs.iter().all(|codec| Codec::from_code(codec.code()) == Some(*codec)));
}
