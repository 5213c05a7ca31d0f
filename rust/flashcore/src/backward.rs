use std::os::raw::c_void;
use std::ptr::null_mut;

use flashcore_sys as sys;

use crate::arguments::{input, output, setters_of_inputs, Inputs};
use crate::cuda::DeviceArguments;
use crate::device::Device;
use crate::error::{check, Result};
use crate::plan::{each_verdict, plan_facts, Handle, PlanOptions, Verdict};
use crate::problem::Problem;
use crate::setters::setters;
use crate::tensor::{Tensor, TensorDesc, TensorMut, ABSENT};
use crate::workspace::Workspace;

/// The tensors that the backward pass reads and writes in addition to the problem's own. It reads
/// all of the problem's tensors, O and LSE included, so the problem must have an LSE. Each gradient
/// has the shape of its tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    d_o: TensorDesc,
    dq: TensorDesc,
    dk: TensorDesc,
    dv: TensorDesc,
    d_lse: Option<TensorDesc>,
    d_bias: Option<TensorDesc>,
    d_sinks: Option<TensorDesc>,
    d_alibi_slopes: Option<TensorDesc>,
}

impl Gradients {
    /// Takes the gradient of O, an input with O's type, and the gradients of Q, K and V, with the
    /// types of these tensors, or f32 (f64: the reference).
    pub fn new(
        d_o: impl Into<TensorDesc>,
        dq: impl Into<TensorDesc>,
        dk: impl Into<TensorDesc>,
        dv: impl Into<TensorDesc>,
    ) -> Gradients {
        Gradients {
            d_o: d_o.into(),
            dq: dq.into(),
            dk: dk.into(),
            dv: dv.into(),
            d_lse: None,
            d_bias: None,
            d_sinks: None,
            d_alibi_slopes: None,
        }
    }

    setters! {
        [] impl Into<TensorDesc>;

        /// A gradient that flows into the LSE: an input; f32 (or f64).
        d_lse,

        /// The bias's gradient: the bias's type, or f32 (f64: the reference). Where the bias has extent
        /// 1, so has the gradient, and it is the sum over that dimension.
        d_bias,

        /// The sinks' gradient: f32 (f64: the reference).
        d_sinks,

        /// The gradient of ALiBi's slopes: f32 (f64: the reference).
        d_alibi_slopes,
    }

    fn to_c(&self) -> Result<sys::flashcore_gradients> {
        let mut c = sys::flashcore_gradients::default();
        // SAFETY: the size is the struct's.
        check(unsafe { sys::flashcore_gradients_init(&mut c, c.struct_size) })?;
        let optional = |desc: Option<TensorDesc>| desc.map_or(ABSENT, TensorDesc::to_c);
        c.d_o = self.d_o.to_c();
        c.dq = self.dq.to_c();
        c.dk = self.dk.to_c();
        c.dv = self.dv.to_c();
        c.d_lse = optional(self.d_lse);
        c.d_bias = optional(self.d_bias);
        c.d_sinks = optional(self.d_sinks);
        c.d_alibi_slopes = optional(self.d_alibi_slopes);
        Ok(c)
    }
}

/// The gradients that flow in, and where the others go.
#[derive(Debug, Default)]
struct Given<'a> {
    d_o: Option<Tensor<'a>>,
    d_lse: Option<Tensor<'a>>,
    dq: Option<TensorMut<'a>>,
    dk: Option<TensorMut<'a>>,
    dv: Option<TensorMut<'a>>,
    d_bias: Option<TensorMut<'a>>,
    d_sinks: Option<TensorMut<'a>>,
    d_alibi_slopes: Option<TensorMut<'a>>,
}

/// The data of one backward run on the CPU: the forward pass's inputs and outputs, the incoming
/// gradients, and the outputs.
#[derive(Debug)]
pub struct BackwardArguments<'a> {
    inputs: Inputs<'a>,
    o: Tensor<'a>,
    lse: Tensor<'a>,
    given: Given<'a>,
}

impl<'a> BackwardArguments<'a> {
    /// Takes the forward pass's inputs, and its outputs O and LSE.
    pub fn new(
        q: Tensor<'a>,
        k: Tensor<'a>,
        v: Tensor<'a>,
        o: Tensor<'a>,
        lse: Tensor<'a>,
    ) -> BackwardArguments<'a> {
        BackwardArguments { inputs: Inputs::new(q, k, v), o, lse, given: Given::default() }
    }

    setters! {
        [given] Tensor<'a>;

        /// The gradient of O, which flows in.
        d_o,

        /// The gradient of the LSE, which flows in.
        d_lse,
    }

    setters! {
        [given] TensorMut<'a>;

        /// Where the gradient of Q goes.
        dq,

        /// Where the gradient of K goes.
        dk,

        /// Where the gradient of V goes.
        dv,

        /// Where the gradient of the bias goes.
        d_bias,

        /// Where the gradient of the sinks goes.
        d_sinks,

        /// Where the gradient of the slopes goes.
        d_alibi_slopes,
    }

    setters_of_inputs!();

    /// Same as [`Inputs::pointers`], including O and LSE, which are only
    /// read: for flashcore_backward_arguments::forward.
    fn forward(&self, p: &Problem) -> Result<sys::flashcore_arguments> {
        let mut c = self.inputs.pointers(p)?;
        c.o = input("o", Some(&p.o), Some(&self.o))? as *mut c_void;
        c.lse = input("lse", p.optional.lse.as_ref(), Some(&self.lse))? as *mut c_void;
        Ok(c)
    }

    /// Returns the pointers of the gradients, checked like the forward pass's.
    fn pointers(
        &mut self,
        g: &Gradients,
        forward: *const sys::flashcore_arguments,
    ) -> Result<sys::flashcore_backward_arguments> {
        let given = &mut self.given;
        let slopes = given.d_alibi_slopes.as_mut();
        Ok(sys::flashcore_backward_arguments {
            forward,
            d_o: input("d_o", Some(&g.d_o), given.d_o.as_ref())?,
            dq: output("dq", Some(&g.dq), given.dq.as_mut())?,
            dk: output("dk", Some(&g.dk), given.dk.as_mut())?,
            dv: output("dv", Some(&g.dv), given.dv.as_mut())?,
            d_lse: input("d_lse", g.d_lse.as_ref(), given.d_lse.as_ref())?,
            d_bias: output("d_bias", g.d_bias.as_ref(), given.d_bias.as_mut())?,
            d_sinks: output("d_sinks", g.d_sinks.as_ref(), given.d_sinks.as_mut())?,
            d_alibi_slopes: output("d_alibi_slopes", g.d_alibi_slopes.as_ref(), slopes)?,
            ..Default::default()
        })
    }
}

/// The data of one backward run as raw pointers, for [`BackwardPlan::run_on_device`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the fields are named after the tensors
pub struct DeviceBackwardArguments {
    /// The arguments of the forward pass; O and LSE are only read.
    pub forward: DeviceArguments,
    pub d_o: *const c_void,
    pub dq: *mut c_void,
    pub dk: *mut c_void,
    pub dv: *mut c_void,
    pub d_lse: *const c_void,
    pub d_bias: *mut c_void,
    pub d_sinks: *mut c_void,
    pub d_alibi_slopes: *mut c_void,
}

impl Default for DeviceBackwardArguments {
    fn default() -> DeviceBackwardArguments {
        // SAFETY: all members are numbers and pointers, for which zeros are values.
        unsafe { std::mem::zeroed() }
    }
}

/// A problem's backward pass, bound to a kernel; otherwise the same as a [`Plan`](crate::Plan).
#[derive(Debug)]
pub struct BackwardPlan {
    handle: Handle,
    problem: Problem,
    gradients: Gradients,
}

impl BackwardPlan {
    /// Checks the problem and the gradients, and chooses the kernel.
    pub fn new(
        problem: &Problem,
        gradients: &Gradients,
        options: &PlanOptions,
    ) -> Result<BackwardPlan> {
        let (c, wanted) = (problem.to_c()?, gradients.to_c()?);
        let handle = Handle::make(options, |options, plan| {
            // SAFETY: the structs have the size that they state, and live during the call.
            unsafe { sys::flashcore_backward_plan_create(&c, &wanted, options, plan) }
        })?;
        Ok(BackwardPlan { handle, problem: problem.clone(), gradients: gradients.clone() })
    }

    plan_facts!();

    /// Computes the gradients on the CPU, from the forward pass's O and LSE. The tensors must match
    /// the problem and the gradients. On an error nothing is written.
    ///
    /// ```
    /// use flashcore::{
    ///     Arguments, BackwardArguments, BackwardPlan, Gradients, Plan, PlanOptions, Problem, Tensor,
    ///     TensorMut, Workspace,
    /// };
    /// # fn main() -> flashcore::Result<()> {
    /// let shape = [1, 2, 16, 32];
    /// let data = vec![1.0f32; 2 * 16 * 32];
    /// let (mut o, mut lse) = (vec![0.0f32; data.len()], vec![0.0f32; 2 * 16]);
    /// let q = Tensor::new(&data, &shape)?;
    /// let mut workspace = Workspace::new();
    ///
    /// let (o_out, lse_out) = (TensorMut::new(&mut o, &shape)?, TensorMut::new(&mut lse, &shape[..3])?);
    /// let problem = Problem::new(q, q, q, &o_out).lse(&lse_out);
    /// let forward = Plan::new(&problem, &PlanOptions::new())?;
    /// forward.run(Arguments::new(q, q, q, o_out).lse(lse_out), &mut workspace)?;
    ///
    /// let (mut dq, mut dk, mut dv) = (data.clone(), data.clone(), data.clone());
    /// let gradients = Gradients::new(q, q, q, q); // all of one shape and type
    /// let backward = BackwardPlan::new(&problem, &gradients, &PlanOptions::new())?;
    /// let (o, lse) = (Tensor::new(&o, &shape)?, Tensor::new(&lse, &shape[..3])?);
    /// let arguments = BackwardArguments::new(q, q, q, o, lse)
    ///     .d_o(Tensor::new(&data, &shape)?)
    ///     .dq(TensorMut::new(&mut dq, &shape)?)
    ///     .dk(TensorMut::new(&mut dk, &shape)?)
    ///     .dv(TensorMut::new(&mut dv, &shape)?);
    /// backward.run(arguments, &mut workspace)?;
    /// assert!((dv[0] - 1.0).abs() < 1e-5); // each key has 1/16 of 16 queries
    /// assert!(dq[0].abs() < 1e-5); // all keys are alike
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(
        &self,
        mut arguments: BackwardArguments<'_>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let (memory, bytes) = self.handle.host_memory(workspace)?;
        let forward = arguments.forward(&self.problem)?;
        let c = arguments.pointers(&self.gradients, &forward)?;
        // SAFETY: same as in Plan::run, for the problem's tensors, where O and LSE are only read,
        // and for the gradients; `forward` lives during the call.
        check(unsafe {
            sys::flashcore_plan_run_backward(self.handle.as_ptr(), &c, memory, bytes, null_mut())
        })
    }

    /// Computes the gradients from raw pointers, on any device,
    /// like [`Plan::run_on_device`](crate::Plan::run_on_device).
    ///
    /// # Safety
    /// The conditions of [`Plan::run_on_device`](crate::Plan::run_on_device), for the problem's
    /// tensors, where O and LSE are inputs, and for the gradients.
    pub unsafe fn run_on_device(
        &self,
        arguments: &DeviceBackwardArguments,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> Result<()> {
        let forward = arguments.forward.to_c();
        let c = sys::flashcore_backward_arguments {
            forward: &forward,
            d_o: arguments.d_o,
            dq: arguments.dq,
            dk: arguments.dk,
            dv: arguments.dv,
            d_lse: arguments.d_lse,
            d_bias: arguments.d_bias,
            d_sinks: arguments.d_sinks,
            d_alibi_slopes: arguments.d_alibi_slopes,
            ..Default::default()
        };
        let plan = self.handle.as_ptr();
        // SAFETY: the caller's promise; the structs live during the call, and the library keeps copies.
        check(unsafe {
            sys::flashcore_plan_run_backward(plan, &c, workspace, workspace_bytes, stream)
        })
    }
}

/// Same as [`explain`](crate::explain), for the backward pass.
pub fn explain_backward(
    problem: &Problem,
    gradients: &Gradients,
    options: &PlanOptions,
) -> Result<Vec<Verdict>> {
    let (c, wanted) = (problem.to_c()?, gradients.to_c()?);
    let mut verdicts = Vec::new();
    each_verdict(
        options,
        |verdict| verdicts.push(verdict),
        |options, visit, user| {
            // SAFETY: the structs have the size that they state; each_verdict passes a matching
            // pair; the library uses all of it only during the call.
            unsafe { sys::flashcore_visit_backward_verdicts(&c, &wanted, options, visit, user) }
        },
    )?;
    Ok(verdicts)
}
