//! All-reduce on candle tensors, on the CPU: a row-parallel layer against the layer that is not sharded, and refusals.

use candle_core::{DType, Device, Tensor};
use std::thread;
use topoforge::candle::SumAllReduce;
use topoforge::comm::{Communicator, Options};

#[path = "../examples/row_parallel.rs"]
mod row_parallel;

#[test]
fn a_row_parallel_layer_gives_what_the_whole_layer_gives() {
    for family in ["nvlink-pair", "nvlink-quad"] {
        let ranks = if family == "nvlink-pair" { 2 } else { 4 };
        let compared = row_parallel::run(family, DType::F16).expect("equal");
        assert_eq!(compared, ranks * 2 * 3 * 40);
    }
}

#[test]
fn parts_of_a_storage_are_summed_where_they_lie_and_strided_ones_are_made_contiguous() {
    let communicators = Communicator::on_host("nvlink-pair", &Options::default()).expect("a pair");
    let threads: Vec<_> = communicators
        .into_iter()
        .map(|c| {
            thread::spawn(move || {
                let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
                let whole = Tensor::from_vec(values, (4, 6), &Device::Cpu)?.to_dtype(DType::F16)?;
                let all_reduce = SumAllReduce::new(c);
                // Rows 1 and 2 begin behind the start of the storage.
                let rows = whole.narrow(0, 1, 2)?;
                let sums = all_reduce.sum(&rows)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
                assert_eq!(sums[0], [12.0, 14.0, 16.0, 18.0, 20.0, 22.0]);
                let columns = all_reduce.sum(&whole.t()?)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
                assert_eq!(columns[1], [2.0, 14.0, 26.0, 38.0]);
                all_reduce.sum_in_place(&rows)?;
                let after = whole.to_dtype(DType::F32)?.to_vec2::<f32>()?;
                assert_eq!(
                    (after[0][5], after[1][0], after[2][5], after[3][0]),
                    (5.0, 12.0, 34.0, 18.0)
                );
                let refused = all_reduce.sum_in_place(&whole.t()?).unwrap_err().to_string();
                assert!(refused.contains("contiguous()"), "{refused}");
                let refused = all_reduce.sum(&whole.to_dtype(DType::U8)?).unwrap_err().to_string();
                assert!(refused.contains("U8") && refused.contains("convert"), "{refused}");
                candle_core::Result::Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic").expect("right");
    }
}
