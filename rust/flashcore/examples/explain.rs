//! Prints each kernel's verdict on a problem, for every device of this machine.
//!
//!     cargo run --example explain

use flashcore::{devices, explain, DType, PlanOptions, Problem, Result, TensorDesc};

fn main() -> Result<()> {
    let q = TensorDesc::contiguous(DType::Bf16, &[1, 8, 512, 64])?;
    let problem = Problem::new(q, q, q, q).causal(true).softcap(30.0);
    for info in devices()? {
        println!("{}", info.name);
        for verdict in explain(&problem, &PlanOptions::new().device(info.device))? {
            let sentence = verdict.refusal.or(verdict.declines);
            println!("  {}: {}", verdict.kernel, sentence.as_deref().unwrap_or("computes it"));
        }
    }
    Ok(())
}
