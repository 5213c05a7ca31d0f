//! Fused attention, `softmax(Q K^T) V`, on CPUs and GPUs: one operator with one meaning.
//!
//! Describe a [`Problem`] once (shapes, strides, types, options), make a [`Plan`] of it, and run
//! the plan any number of times, from any number of threads:
//!
//! ```
//! use flashcore::{Arguments, Plan, PlanOptions, Problem, Tensor, TensorMut, Workspace};
//!
//! fn main() -> flashcore::Result<()> {
//!     // 1 sequence, 8 query heads over 2 key/value heads, 128 tokens, head_dim 64
//!     let (queries, keys) = (vec![0.5f32; 8 * 128 * 64], vec![0.25f32; 2 * 128 * 64]);
//!     let (values, mut result) = (vec![2.0f32; keys.len()], vec![0.0f32; queries.len()]);
//!
//!     let q = Tensor::new(&queries, &[1, 8, 128, 64])?;
//!     let k = Tensor::new(&keys, &[1, 2, 128, 64])?;
//!     let v = Tensor::new(&values, &[1, 2, 128, 64])?;
//!     let o = TensorMut::new(&mut result, &[1, 8, 128, 64])?;
//!
//!     let problem = Problem::new(q, k, v, &o).causal(true);
//!     let plan = Plan::new(&problem, &PlanOptions::new())?; // once
//!
//!     let mut workspace = Workspace::new(); // one for each thread
//!     plan.run(Arguments::new(q, k, v, o), &mut workspace)?;
//!     assert_eq!(result[0], 2.0); // an average of twos
//!     Ok(())
//! }
//! ```
//!
//! Nothing here panics on bad input: malformed input gives an [`Error`], whose message names the
//! argument, its value and what is wanted. `docs/semantics.md` of the repository defines exactly
//! what is computed.
//!
//! A [`Tensor`] of 16 or 8 bits has elements of [`F16`], [`Bf16`], [`F8E4M3`] or [`F8E5M2`], which
//! are newtypes over the bits. On a GPU, [`Plan::run_on_device`] takes raw pointers and a stream.

#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod arguments;
mod backward;
mod cuda;
mod device;
mod dtype;
mod error;
mod float;
mod plan;
mod problem;
mod quantize;
mod serving;
mod setters;
mod tensor;
mod workspace;

pub use arguments::Arguments;
pub use backward::{
    explain_backward, BackwardArguments, BackwardPlan, DeviceBackwardArguments, Gradients,
};
pub use cuda::DeviceArguments;
pub use device::{
    build_info, devices, dropout_keeps, reload_tuning, version, BuildInfo, Device, DeviceInfo,
};
pub use dtype::{DType, Element, OutputElement};
pub use error::{Error, ErrorKind, Result};
pub use float::{Bf16, F16, F8E4M3, F8E5M2};
pub use plan::{explain, Plan, PlanOptions, Verdict};
pub use problem::{Alignment, Problem};
pub use quantize::Quantize;
pub use serving::{Append, Merge, Step};
pub use tensor::{Tensor, TensorDesc, TensorMut};
pub use workspace::Workspace;

/// The programs of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
