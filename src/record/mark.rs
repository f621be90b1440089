//! The pack high-water mark: packs above it belong to no step.

use super::RecordError;
use super::envelope::{Kind, open, seal};

const IDENTITY: &[u8] = b"pack_mark";

pub(crate) fn encode_mark(mark: u64) -> Vec<u8> {
    seal(Kind::Mark, IDENTITY, &mark.to_le_bytes())
}

pub(crate) fn decode_mark(record: &[u8]) -> Result<u64, RecordError> {
    let payload = open(Kind::Mark, IDENTITY, record)?;
    let bytes = payload.try_into().map_err(|_| {
        Kind::Mark.content(format!("its payload has {} bytes, expected 8", payload.len()))
    })?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_comes_back_and_damage_is_noticed() {
        assert_eq!(decode_mark(&encode_mark(1 << 40)), Ok(1 << 40));
        let mut record = encode_mark(3);
        record[9] ^= 1;
        assert!(decode_mark(&record).is_err());
    }
}
