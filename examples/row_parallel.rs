//! A row-parallel layer of a sharded model, as inference engines on candle write it, and the sum behind it.
//!
//! `cargo run --features candle --example row_parallel`: ranks are threads on the host executor. On GPUs the layer is the
//! same; only the communicator is made with `Communicator::from_streams` or `from_rank`, and the feature is
//! `candle-cuda`.

use candle_core::{DType, Device, IndexOp, Result, Tensor};
use std::thread;
use topoforge::candle::SumAllReduce;
use topoforge::comm::{Communicator, Options};

/// A linear layer whose input features are spread over the ranks: each multiplies with its rows, then all sum up.
pub struct RowParallelLayer {
    /// `[out, in / ranks]`
    weight: Tensor,
    /// Added once, after the sum.
    bias: Option<Tensor>,
    all_reduce: SumAllReduce,
}

impl RowParallelLayer {
    pub fn new(weight: Tensor, bias: Option<Tensor>, all_reduce: SumAllReduce) -> Self {
        Self {
            weight,
            bias,
            all_reduce,
        }
    }

    /// `xs` is `[tokens, in / ranks]`: this rank's features.
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let partial = xs.matmul(&self.weight.t()?)?;
        let whole = self.all_reduce.sum(&partial)?;
        match &self.bias {
            Some(bias) => whole.broadcast_add(bias),
            None => Ok(whole),
        }
    }

    /// The same without memory for the sum.
    pub fn forward_in_place(&self, xs: &Tensor) -> Result<Tensor> {
        let partial = xs.matmul(&self.weight.t()?)?;
        self.all_reduce.sum_in_place(&partial)?;
        match &self.bias {
            Some(bias) => partial.broadcast_add(bias),
            None => Ok(partial),
        }
    }
}

/// Quarters from -1 to 0.75: sums of 64 of their products are exact in f16, in any order.
fn numbers(rows: usize, columns: usize, salt: usize) -> Result<Tensor> {
    let values: Vec<f32> = (0..rows * columns)
        .map(|i| ((i * 7 + salt * 5) % 8) as f32 / 4.0 - 1.0)
        .collect();
    Tensor::from_vec(values, (rows, columns), &Device::Cpu)
}

/// Runs the layer on every rank of a family, both ways, and compares with the layer that is not sharded. Returns how many
/// numbers were compared.
pub fn run(family: &str, dtype: DType) -> std::result::Result<usize, Box<dyn std::error::Error + Send + Sync>> {
    let (tokens, features, outputs) = (3, 64, 40);
    let (xs, weight) = (numbers(tokens, features, 1)?, numbers(outputs, features, 2)?);
    let bias = numbers(1, outputs, 3)?.i(0)?;
    let want = xs.matmul(&weight.t()?)?.broadcast_add(&bias)?.to_vec2::<f32>()?;

    let communicators = Communicator::on_host(family, &Options::default())?;
    let ranks = communicators.len();
    let share = features / ranks;
    let work = |communicator: Communicator| {
        let first = communicator.rank() * share;
        let mine = |t: &Tensor| t.narrow(1, first, share)?.contiguous()?.to_dtype(dtype);
        let layer = RowParallelLayer::new(
            mine(&weight)?,
            Some(bias.to_dtype(dtype)?),
            SumAllReduce::new(communicator),
        );
        let xs = mine(&xs)?;
        let mut results = Vec::new();
        for result in [layer.forward(&xs)?, layer.forward_in_place(&xs)?] {
            results.push(result.to_dtype(DType::F32)?.to_vec2::<f32>()?);
        }
        Result::Ok(results)
    };
    let work = &work;
    let results = thread::scope(|scope| {
        let threads: Vec<_> = communicators
            .into_iter()
            .map(|c| scope.spawn(move || work(c)))
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().map_err(|_| "a rank panicked"))
            .collect::<Vec<_>>()
    });
    let mut compared = 0;
    for (rank, results) in results.into_iter().enumerate() {
        for got in results?? {
            for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
                if got != want {
                    return Err(format!("rank {rank} has {got} where {want} is right").into());
                }
                compared += 1;
            }
        }
    }
    Ok(compared)
}

#[allow(dead_code, reason = "the test includes this file")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    for family in ["nvlink-pair", "nvlink-quad"] {
        println!("{family}: {} numbers are right", run(family, DType::F16)?);
    }
    Ok(())
}
