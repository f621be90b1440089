//! LZ4 blocks: the block format of the LZ4 project, without frame or size prefix.

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use super::is_worth_it;

/// Compresses without allocating anew. What it gives depends on its input alone: equal chunks are
/// stored as equal bytes.
pub(super) struct Lz4 {
    short: CompressTable,
    long: CompressTable,
    output: Vec<u8>,
}

impl Default for Lz4 {
    fn default() -> Self {
        Self { short: CompressTable::small(), long: CompressTable::large(), output: Vec::new() }
    }
}

impl Lz4 {
    /// `raw` as one block, if that is worth it.
    pub(super) fn compress(&mut self, raw: &[u8]) -> Option<&[u8]> {
        let most = get_maximum_output_size(raw.len());
        if self.output.len() < most {
            self.output.resize(most, 0);
        }
        // A short table that is given a long input becomes a long one for good.
        let is_short = raw.len() < usize::from(u16::MAX);
        let table = if is_short { &mut self.short } else { &mut self.long };
        let length = compress_into_with_table(raw, &mut self.output, table).ok()?;
        self.output.get(..length).filter(|block| is_worth_it(block.len(), raw.len()))
    }
}

/// Decompresses a block that holds exactly as many bytes as `out`; else says what is wrong.
pub(super) fn decompress(block: &[u8], out: &mut [u8]) -> Result<(), String> {
    match decompress_into(block, out) {
        Ok(length) if length == out.len() => Ok(()),
        Ok(length) => Err(format!("it holds {length} bytes")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_before_changes_nothing() {
        let text = b"the same text, again and again ".repeat(100);
        let long = b"something else of many bytes ".repeat(4000);
        let mut used = Lz4::default();
        used.compress(&long).unwrap();
        used.compress(&text[7..]).unwrap();
        assert_eq!(used.compress(&text), Lz4::default().compress(&text));
        assert_eq!(used.compress(&long), Lz4::default().compress(&long));
    }

    #[test]
    fn a_block_of_another_length_is_refused() {
        let mut lz4 = Lz4::default();
        let block = lz4.compress(&[7; 300]).unwrap();
        assert_eq!(decompress(block, &mut [0; 300]), Ok(()));
        assert_eq!(decompress(block, &mut [0; 301]), Err("it holds 300 bytes".to_owned()));
        assert!(decompress(block, &mut [0; 299]).is_err());
        assert!(decompress(&[], &mut [0; 1]).is_err());
    }
}
