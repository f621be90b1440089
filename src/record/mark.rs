//! The pack high-water mark: packs above it belong to no step.

use super::RecordError;
use super::envelope::{Kind, open, seal};

const IDENTITY: &[u8] = b"pack_mark";

/// No store gets that far; numbers below it, added to each other, don't overflow.
const MAX_MARK: u64 = 1 << 62;

pub(crate) fn encode_mark(mark: u64) -> Vec<u8> {
    seal(Kind::Mark, IDENTITY, &mark.to_le_bytes())
}

pub(crate) fn decode_mark(record: &[u8]) -> Result<u64, RecordError> {
    let payload = open(Kind::Mark, IDENTITY, record)?;
    let bytes = payload.try_into().map_err(|_| {
        Kind::Mark.content(format!("its payload has {} bytes, expected 8", payload.len()))
    })?;
    let mark = u64::from_le_bytes(bytes);
    if mark > MAX_MARK {
        return Err(Kind::Mark.content(format!("it is {mark}, more than the limit of {MAX_MARK}")));
    }
    Ok(mark)
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

    #[test]
    fn a_mark_that_no_store_reaches_is_refused() {
        assert_eq!(decode_mark(&encode_mark(MAX_MARK)), Ok(MAX_MARK));
        let error = decode_mark(&encode_mark(u64::MAX)).unwrap_err().to_string();
        assert!(error.contains("more than the limit of 4611686018427387904"), "{error}");
    }
}
