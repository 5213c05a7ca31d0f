//! A packed batch: prompts of different lengths, stored without padding; with the LSE.
//!
//!     cargo run --example packed

use flashcore::{Arguments, Plan, PlanOptions, Problem, Result, Tensor, TensorMut, Workspace};

fn main() -> Result<()> {
    let (heads, heads_kv, head_dim) = (8, 2, 64);
    let starts = [0, 5, 5, 12]; // prompts of 5, 0 and 7 tokens
    let tokens = starts[3] as usize;

    let queries = vec![0.5f32; tokens * heads * head_dim];
    let keys = vec![0.25f32; tokens * heads_kv * head_dim];
    let values: Vec<f32> = (0..keys.len()).map(|i| (i / (heads_kv * head_dim)) as f32).collect();
    let (mut output, mut logs) = (vec![0.0f32; queries.len()], vec![0.0f32; tokens * heads]);

    let q = Tensor::new(&queries, &[tokens, heads, head_dim])?;
    let k = Tensor::new(&keys, &[tokens, heads_kv, head_dim])?;
    let v = Tensor::new(&values, &[tokens, heads_kv, head_dim])?;
    let o = TensorMut::new(&mut output, &[tokens, heads, head_dim])?;
    let lse = TensorMut::new(&mut logs, &[tokens, heads])?;

    let problem = Problem::new(q, k, v, &o).lse(&lse).packed(&starts, &starts).causal(true);
    let plan = Plan::new(&problem, &PlanOptions::new())?;
    let arguments = Arguments::new(q, k, v, o).lse(lse).packed(&starts, &starts);
    plan.run(arguments, &mut Workspace::new())?;

    println!("{}: {}", plan.kernel(), plan.reason());
    // Token n of a prompt that starts at token s averages the values s, s + 1, ..., n.
    for (token, row) in output.chunks(heads * head_dim).enumerate() {
        println!("token {}: o {}, lse {}", token, row[0], logs[token * heads]);
    }
    assert_eq!(output[4 * heads * head_dim], 2.0);
    assert_eq!(output[11 * heads * head_dim], 8.0);
    Ok(())
}
