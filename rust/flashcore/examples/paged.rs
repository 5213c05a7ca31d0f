//! Decoding over a paged cache: in one call, each step appends a row to every sequence, rotates it
//! and the query by RoPE, and attends.
//!
//!     cargo run --release --example paged

use flashcore::{Append, Plan, PlanOptions, Problem, Step, Tensor, TensorMut, Workspace};

fn main() -> flashcore::Result<()> {
    let (sequences, heads, heads_kv, width, page_size) = (2, 4, 2, 64, 16);
    let (rows, cache) = ([sequences, heads_kv, 1, width], [8, heads_kv, page_size, width]);
    let shape = [sequences, heads, 1, width];
    let (mut keys, mut values) =
        (vec![0f32; cache.iter().product()], vec![0f32; cache.iter().product()]);
    let (mut queries, mut result) =
        (vec![0f32; shape.iter().product()], vec![0f32; shape.iter().product()]);
    let pages = [3i32, 0, 6, 1]; // two per sequence, in any order
    let table = Tensor::new(&pages, &[2, 2])?;
    let mut lengths = [0i32, 0];

    // One plan serves every step: it depends on capacities, not on lengths.
    let problem = {
        let q = Tensor::new(&queries, &shape)?;
        let (k, v) = (Tensor::new(&keys, &cache)?, Tensor::new(&values, &cache)?);
        Problem::new(q, k, v, q).page_table(table).seqlens_kv(&lengths)
    };
    let plan = Plan::new(&problem, &PlanOptions::new())?;
    let mut workspace = Workspace::new();
    for token in 0..20 {
        let new = vec![token as f32; rows.iter().product()]; // would come from a model
        let input = vec![1f32; queries.len()];
        let after = lengths.map(|rows| rows + 1);
        let new = Tensor::new(&new, &rows)?;
        let append = Append::new(
            new,
            new,
            TensorMut::new(&mut keys, &cache)?,
            TensorMut::new(&mut values, &cache)?,
            &lengths,
        )
        .page_table(table)
        .rope(10000.0, 1.0)
        .queries(Tensor::new(&input, &shape)?, TensorMut::new(&mut queries, &shape)?);
        let step = Step::new(append, TensorMut::new(&mut result, &shape)?)
            .page_table(table)
            .seqlens_kv(&after);
        plan.run_step(step, &PlanOptions::new(), &mut workspace)?;
        lengths = after;
    }
    println!("{} rows per sequence; o[0] = {:.3}", lengths[0], result[0]);
    Ok(())
}
