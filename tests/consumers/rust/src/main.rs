//! Computes with the library, and prints where the build found it.

use flashcore::{Arguments, Plan, PlanOptions, Problem, Tensor, TensorMut, Workspace};

fn main() -> flashcore::Result<()> {
    assert_eq!(flashcore::version(), env!("FLASHCORE_VERSION"));
    let (data, mut result) = (vec![1.0f32; 2 * 16 * 32], vec![0.0f32; 2 * 16 * 32]);
    let q = Tensor::new(&data, &[1, 2, 16, 32])?;
    let o = TensorMut::new(&mut result, &[1, 2, 16, 32])?;
    let plan = Plan::new(&Problem::new(q, q, q, &o), &PlanOptions::new())?;
    plan.run(Arguments::new(q, q, q, o), &mut Workspace::new())?;
    assert_eq!(result, data);
    println!("{} {} {}", env!("FLASHCORE_SOURCE"), flashcore::version(), plan.kernel());
    Ok(())
}
