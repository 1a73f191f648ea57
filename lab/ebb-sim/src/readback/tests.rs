use super::*;
use crate::measure::Serial;

/// DiskReduce, section 3: one uniform copy within 10 % of three, a skewed one within 50 %, no difference for 10 and 300
/// blocks; and the skewed copy is the slowest of large datasets.
#[test]
fn one_copy_is_read_nearly_as_fast_as_three() {
    let found = readback(&Serial, &cluster(), &BLOCKS, &[1, 2, 3]).unwrap();
    let of = |blocks: usize, copies: Copies| {
        found.iter().find(|one| one.blocks == blocks && one.copies == copies).unwrap().normalized_time
    };
    for blocks in BLOCKS {
        let (uniform, skewed) = (of(blocks, Copies::OneUniform), of(blocks, Copies::OneSkewed));
        assert!((uniform - 1.0).abs() <= 0.10, "{blocks}: {uniform}");
        assert!(skewed <= 1.50, "{blocks}: {skewed}");
        if blocks <= 300 {
            assert!((skewed - 1.0).abs() <= 0.10, "{blocks}: {skewed}");
        } else {
            assert!(skewed > 1.0 && skewed > uniform, "{blocks}: {skewed} {uniform}");
        }
    }
    let seconds: Vec<f64> = found.iter().filter(|one| one.copies == Copies::Three).map(|one| one.seconds).collect();
    assert!(seconds.is_sorted(), "larger datasets take longer: {seconds:?}");
}
