fn main() {
    use milepost::*;
    use std::io::{Read, Write};
    use std::time::Instant;
    let dir = tempfile::tempdir_in(".").unwrap();
    let n = 256usize << 20;
    let mut x = 12345u64;
    let data: Vec<Vec<f32>> = (0..24)
        .map(|_| {
            (0..n / 4 / 24)
                .map(|_| {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (x >> 40) as f32 / 1e6
                })
                .collect()
        })
        .collect();
    let tree = Tree::list(
        data.iter()
            .map(|d| Tree::Leaf(Leaf::from_slice(d, [d.len()]).unwrap())),
    );
    let touch = || {
        let mut v = vec![0u8; 2 * n];
        for i in (0..v.len()).step_by(4096) {
            v[i] = 1;
        }
        std::hint::black_box(&v);
    };
    let store = CheckpointStore::create(dir.path().join("a.milepost")).unwrap();
    let keep = 2u64;
    let mut target: Vec<Vec<f32>> = data.iter().map(|d| vec![1.0; d.len()]).collect();
    for round in 0..8u64 {
        touch();
        let t = Instant::now();
        let p = dir.path().join(format!("raw{round}"));
        let mut f = std::fs::File::create(&p).unwrap();
        for d in &data {
            f.write_all(bytemuck::cast_slice(d)).unwrap();
        }
        f.sync_data().unwrap();
        let raw = t.elapsed();
        touch();
        let t = Instant::now();
        let mut f = std::fs::File::open(&p).unwrap();
        for d in &mut target {
            f.read_exact(bytemuck::cast_slice_mut(d)).unwrap();
        }
        let rawread = t.elapsed();
        std::fs::remove_file(&p).unwrap();
        touch();
        let t = Instant::now();
        store.save(round, &tree, &SaveOptions::new()).unwrap();
        let save = t.elapsed();
        let t = Instant::now();
        if round >= keep {
            store.delete(round - keep).unwrap();
        }
        let del = t.elapsed();
        touch();
        let r = store.read(round).unwrap();
        let mut tt = Tree::list(target.iter().map(|_| Tree::None::<Leaf>));
        let _ = &mut tt;
        struct S<'a>(&'a mut Vec<Vec<f32>>);
        impl Checkpoint for S<'_> {
            fn to_tree(&self) -> Tree<Leaf<'_>> {
                unreachable!()
            }
            fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
                Tree::list(self.0.iter_mut().map(|d| {
                    let l = d.len();
                    Tree::Leaf(LeafMut::from_slice(d, [l]).unwrap())
                }))
            }
        }
        let t = Instant::now();
        r.restore_into(&mut S(&mut target)).unwrap();
        let read = t.elapsed();
        let size = std::fs::metadata(dir.path().join("a.milepost"))
            .unwrap()
            .len();
        println!(
            "raw {raw:?} save {save:?} ratio {:.2} del {del:?} | rawread {rawread:?} read {read:?} ratio {:.2} file {:.3}",
            raw.as_secs_f64() / save.as_secs_f64(),
            rawread.as_secs_f64() / read.as_secs_f64(),
            size as f64 / n as f64
        );
    }
}
