//! Statistics of blocks in memory: how far the arithmetic is from the speed of memory.

use attnscope_checkpoint::{DType, Stats};
use divan::Bencher;
use divan::counter::BytesCount;

const BYTES: usize = 256 << 10;

fn main() {
    divan::main();
}

fn block() -> Vec<u8> {
    // Every byte below 0x7b: finite in every type, and not constant.
    (0..BYTES).map(|i| ((i * 31 + i / 7) % 0x7b) as u8).collect()
}

#[divan::bench(args = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::F8E4M3, DType::I64])]
fn stats(bencher: Bencher<'_, '_>, dtype: DType) {
    let block = block();
    bencher.counter(BytesCount::new(BYTES)).bench(|| Stats::of_bytes(dtype, divan::black_box(&block)));
}
