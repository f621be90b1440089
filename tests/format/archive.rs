//! Records and archives, as `src/docs/format.md` describes them.

use milepost::{Key, Tree};

pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    crc32fast::hash(&parts.concat())
}

/// The payload of a record of this kind, stored under this identity.
pub(crate) fn payload(record: &[u8], kind: u8, identity: &[u8]) -> Vec<u8> {
    let crc = u32::from_le_bytes(record[..4].try_into().unwrap());
    assert_eq!(crc, crc32(&[&record[4..8], identity, &record[8..]]));
    assert_eq!(record[4..8], [kind, 1, 0, 0]);
    record[8..].to_vec()
}

/// An archive; places in it are counted from its first byte.
pub(crate) struct Archive(pub(crate) Vec<u8>);

impl Archive {
    pub(crate) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().unwrap()
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(crate) fn usize(&self, at: usize) -> usize {
        self.u32(at).try_into().unwrap()
    }

    /// Where the offset at `at`, counted from `from`, leads to.
    fn follow(&self, from: usize, at: usize) -> usize {
        let offset = i32::from_le_bytes(self.array(at));
        assert!(offset <= 0, "what is led to is written before");
        from.checked_add_signed(offset.try_into().unwrap()).unwrap()
    }

    /// The places of the elements, of `size` bytes each, of the `Vec` at `at`.
    pub(crate) fn elements(&self, at: usize, size: usize) -> Vec<usize> {
        let first = self.follow(at, at);
        (0..self.usize(at + 4)).map(|index| first + index * size).collect()
    }

    pub(crate) fn u64s(&self, at: usize) -> Vec<u64> {
        self.elements(at, 8).into_iter().map(|at| self.u64(at)).collect()
    }

    fn bytes(&self, at: usize) -> Vec<u8> {
        self.elements(at, 1).into_iter().map(|at| self.0[at]).collect()
    }

    pub(crate) fn string(&self, at: usize) -> String {
        let bytes = if self.0[at] & 0xc0 == 0x80 {
            let word = self.usize(at);
            let (start, length) = (self.follow(at, at + 4), word & 0x3f | word >> 8 << 6);
            &self.0[start..start + length]
        } else {
            let inline = &self.0[at..at + 8];
            inline.split(|byte| *byte == 0xff).next().unwrap()
        };
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    pub(crate) fn outermost(&self, size: usize) -> usize {
        self.0.len() - size
    }
}

const NODE_BYTES: usize = 21;

type Nodes = std::vec::IntoIter<usize>;

/// The one key that these bytes are.
fn decode_key(bytes: &[u8]) -> Key {
    match bytes[0] {
        1 => {
            let bits = u64::from_be_bytes(bytes[1..].try_into().unwrap());
            Key::Int((bits ^ 1 << 63).cast_signed())
        }
        3 => {
            assert_eq!(bytes.last(), Some(&0));
            let name = String::from_utf8_lossy(&bytes[1..bytes.len() - 1]).into_owned();
            // `00 FF` is a zero byte; `FF` is no UTF-8 and became the replacement character.
            Key::Name(name.replace("\0\u{fffd}", "\0"))
        }
        tag => panic!("the key has tag {tag}"),
    }
}

/// The tree of a structure archive, with the encoded key path of each leaf.
pub(crate) fn structure(archive: &Archive) -> Tree<Vec<u8>> {
    let nodes = archive.elements(archive.outermost(8), NODE_BYTES);
    let mut nodes = nodes.into_iter();
    let root = nodes.next().unwrap();
    let tree = tree(archive, root, &mut nodes, &[]);
    assert_eq!(nodes.next(), None, "every node has its parent");
    tree
}

/// The node at `at` with what is below it, and with the encoded key path of each leaf.
fn tree(archive: &Archive, at: usize, nodes: &mut Nodes, path: &[u8]) -> Tree<Vec<u8>> {
    let (kind, count) = (archive.0[at], archive.u32(at + 1));
    let child = |index: u32| {
        let at = nodes.next().unwrap();
        let key = match kind {
            2 | 3 => [&[2][..], &u64::from(index).to_be_bytes()].concat(),
            _ => archive.bytes(at + 5),
        };
        (key.clone(), tree(archive, at, nodes, &[path, &key].concat()))
    };
    let children: Vec<_> = (0..count).map(child).collect();
    let keyed = children.iter().map(|(key, child)| (decode_key(key), child.clone()));
    let items = children.iter().map(|(_, child)| child.clone());
    match kind {
        0 => Tree::None,
        1 => Tree::Leaf(path.to_vec()),
        2 => Tree::list(items),
        3 => Tree::tuple(items),
        4 => Tree::map(keyed),
        5 => Tree::record(archive.string(at + 13), keyed.map(|(key, child)| (name(key), child))),
        kind => panic!("a node has kind {kind}"),
    }
}

fn name(key: Key) -> String {
    match key {
        Key::Name(name) => name,
        key => panic!("a field has the key {key:?}"),
    }
}
