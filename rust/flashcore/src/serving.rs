use std::ptr::{null, null_mut};

use flashcore_sys as sys;

use crate::arguments::{
    setters_of_forward, setters_of_inputs, setters_of_outputs, status, Inputs, Outputs,
};
use crate::error::{check, Error, Result};
use crate::plan::PlanOptions;
use crate::problem::{number, page_status_desc, Problem};
use crate::setters::{pairs, setters, values};
use crate::tensor::{Tensor, TensorMut, ABSENT};

/// Merges attention over two disjoint sets of keys: O and LSE as if over both. On the CPU.
///
/// ```
/// use flashcore::{Merge, PlanOptions, Tensor, TensorMut};
///
/// # fn main() -> flashcore::Result<()> {
/// // One head of two elements: a sees twice the weight of b.
/// let (o_a, lse_a) = ([3.0f32, 0.0], [2.0f32.ln()]);
/// let (o_b, lse_b) = ([0.0f32, 3.0], [0.0f32]);
/// let (mut o, mut lse) = ([0.0f32; 2], [0.0f32]);
/// let rows = |data| Tensor::new(data, &[1, 1, 1, 2]);
/// let logs = |data| Tensor::new(data, &[1, 1, 1]);
/// Merge::new(rows(&o_a)?, logs(&lse_a)?, rows(&o_b)?, logs(&lse_b)?)
///     .run(
///         TensorMut::new(&mut o, &[1, 1, 1, 2])?,
///         Some(TensorMut::new(&mut lse, &[1, 1, 1])?),
///         &PlanOptions::new(),
///     )?;
/// assert!((o[0] - 2.0).abs() < 1e-6 && (o[1] - 1.0).abs() < 1e-6);
/// assert!((lse[0] - 3.0f32.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Merge<'a> {
    o_a: Tensor<'a>,
    lse_a: Tensor<'a>,
    o_b: Tensor<'a>,
    lse_b: Tensor<'a>,
}

impl<'a> Merge<'a> {
    /// O is `[B, Hq, Sq, Dv]`, or packed `[total_q, Hq, Dv]`, of f32, f16 or bf16; LSE lacks the
    /// last dimension and is f32.
    pub fn new(
        o_a: Tensor<'a>,
        lse_a: Tensor<'a>,
        o_b: Tensor<'a>,
        lse_b: Tensor<'a>,
    ) -> Merge<'a> {
        Merge { o_a, lse_a, o_b, lse_b }
    }

    /// Writes O, of the parts' type or f32, and LSE if requested. Only the device and the threads
    /// of the options are used. On an error nothing is written.
    pub fn run(
        &self,
        mut o: TensorMut<'_>,
        mut lse: Option<TensorMut<'_>>,
        options: &PlanOptions,
    ) -> Result<()> {
        let problem = sys::flashcore_merge_problem {
            o_a: self.o_a.desc().to_c(),
            o_b: self.o_b.desc().to_c(),
            lse_a: self.lse_a.desc().to_c(),
            lse_b: self.lse_b.desc().to_c(),
            o: o.desc().to_c(),
            lse: lse.as_ref().map_or(ABSENT, |lse| lse.desc().to_c()),
            ..Default::default()
        };
        let arguments = sys::flashcore_merge_arguments {
            o_a: self.o_a.as_ptr(),
            o_b: self.o_b.as_ptr(),
            lse_a: self.lse_a.as_ptr().cast(),
            lse_b: self.lse_b.as_ptr().cast(),
            o: o.as_mut_ptr(),
            lse: lse.as_mut().map_or(null_mut(), |lse| lse.as_mut_ptr().cast()),
            ..Default::default()
        };
        options.with_c(|options| {
            // SAFETY: each pointer is to borrowed memory, outputs mutably, with the type, shape and
            // strides of the problem. The library refuses an LSE that is not f32.
            check(unsafe { sys::flashcore_merge(&problem, &arguments, options, null_mut()) })
        })
    }
}

/// Appends new keys and values to a cache, with an optional rotation (RoPE) of the new keys and of
/// queries at the same positions. On the CPU.
///
/// ```
/// use flashcore::{Append, PlanOptions, Tensor, TensorMut};
///
/// # fn main() -> flashcore::Result<()> {
/// // Two sequences with 3 rows and 0 rows, in pages of 2 rows; each gets one row.
/// let (rows, table) = ([1.0f32, 2.0], [4i32, 0, 2, 1]);
/// let (mut keys, mut values) = ([0.0f32; 5 * 2], [0.0f32; 5 * 2]);
/// let new = Tensor::new(&rows, &[2, 1, 1, 1])?;
/// Append::new(
///     new,
///     new,
///     TensorMut::new(&mut keys, &[5, 1, 2, 1])?,
///     TensorMut::new(&mut values, &[5, 1, 2, 1])?,
///     &[3i32, 0],
/// )
/// .page_table(Tensor::new(&table, &[2, 2])?)
/// .run(&PlanOptions::new())?;
/// assert_eq!(keys, [0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
/// assert_eq!(values, keys);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Append<'a> {
    k_new: Tensor<'a>,
    v_new: Tensor<'a>,
    k: TensorMut<'a>,
    v: TensorMut<'a>,
    seqlens_kv: Tensor<'a>,
    optional: OptionalRows<'a>,
    q: Option<(Tensor<'a>, TensorMut<'a>)>,
    page_status: Option<&'a mut i32>,
    kv_scale_block: usize,
    rotary_dim: usize,
    rope_base: f32,
    rope_scale: f32,
    interleaved: bool,
}

macro_rules! optional_rows {
    ($($name:ident)*) => {
        /// The optional tensors of an append that are inputs of one call.
        #[derive(Clone, Copy, Debug, Default)]
        struct OptionalRows<'a> {
            $($name: Option<Tensor<'a>>,)*
        }

        impl OptionalRows<'_> {
            fn describe(&self, c: &mut sys::flashcore_append_problem) {
                $(c.$name = self.$name.map_or(ABSENT, |tensor| tensor.desc().to_c());)*
            }

            fn point(&self, c: &mut sys::flashcore_append_arguments) {
                $(c.$name = self.$name.map_or(null(), |tensor| tensor.as_ptr()).cast();)*
            }
        }
    };
}
optional_rows! {
    seqlens_new cu_seqlens_new page_table kv_indptr kv_indices cache_leftpad
    k_scale v_scale rope_cos rope_sin
}

impl<'a> Append<'a> {
    /// Takes new rows `[B, Hkv, Snew, D]`, the cache as in [`Problem`], and the number of cache
    /// rows in use before the call, `[B]` of i32.
    pub fn new(
        k_new: Tensor<'a>,
        v_new: Tensor<'a>,
        k: TensorMut<'a>,
        v: TensorMut<'a>,
        seqlens_kv: impl Into<Tensor<'a>>,
    ) -> Append<'a> {
        Append {
            k_new,
            v_new,
            k,
            v,
            seqlens_kv: seqlens_kv.into(),
            optional: OptionalRows::default(),
            q: None,
            page_status: None,
            kv_scale_block: 0,
            rotary_dim: 0,
            rope_base: 0.0,
            rope_scale: 1.0,
            interleaved: false,
        }
    }

    setters! {
        [optional] impl Into<Tensor<'a>>;

        /// New rows in use of each sequence: `[B]` of i32.
        seqlens_new,

        /// The new rows are packed, `[total, Hkv, D]`; `[B + 1]` of i32.
        cu_seqlens_new,

        /// See [`Problem::page_table`].
        page_table,

        /// See [`Problem::cache_leftpad`].
        cache_leftpad,

        /// An fp8 cache stores each value over its scale.
        k_scale,

        /// An fp8 cache stores each value over its scale.
        v_scale,
    }

    pairs! {
        [optional] Tensor<'a>;

        /// See [`Problem::page_list`].
        page_list(kv_indptr, kv_indices),
    }

    setters! {
        [] &'a mut i32;

        /// Rows on a page that is out of range are not written, and this word is set to 1. Without
        /// it such a page is an error.
        page_status,
    }

    values! {
        /// See [`Problem::kv_scale_block`].
        kv_scale_block: usize,

        /// R, the number of elements that [`Append::rope`] rotates, even. Default: all of Dqk.
        rotary_dim: usize,

        /// Pairs are elements 2n and 2n + 1, not n and n + R / 2.
        interleaved: bool,
    }

    /// RoPE from tables `[positions, R / 2]` of f32.
    #[must_use]
    pub fn rope_tables(mut self, cos: Tensor<'a>, sin: Tensor<'a>) -> Append<'a> {
        self.optional.rope_cos = Some(cos);
        self.optional.rope_sin = Some(sin);
        self
    }

    /// RoPE with the angle `position * scale * base^(-2n / R)` for pair n.
    #[must_use]
    pub fn rope(mut self, base: f32, scale: f32) -> Append<'a> {
        (self.rope_base, self.rope_scale) = (base, scale);
        self
    }

    /// Queries at the positions of the new keys, and the output for the rotated queries.
    #[must_use]
    pub fn queries(mut self, q: Tensor<'a>, q_out: TensorMut<'a>) -> Append<'a> {
        self.q = Some((q, q_out));
        self
    }

    /// Only the device and the threads of the options are used. On an error nothing is written.
    pub fn run(mut self, options: &PlanOptions) -> Result<()> {
        let problem = self.problem()?;
        let arguments = self.pointers();
        options.with_c(|options| {
            // SAFETY: each pointer is to borrowed memory, outputs mutably, with the type, shape and
            // strides of the problem. The library refuses lengths, tables and scales of other types
            // than i32 and f32, and checks the numbers in them.
            check(unsafe { sys::flashcore_append(&problem, &arguments, options, null_mut()) })
        })
    }

    fn problem(&self) -> Result<sys::flashcore_append_problem> {
        let mut c = sys::flashcore_append_problem {
            k_new: self.k_new.desc().to_c(),
            v_new: self.v_new.desc().to_c(),
            k: self.k.desc().to_c(),
            v: self.v.desc().to_c(),
            seqlens_kv: self.seqlens_kv.desc().to_c(),
            kv_scale_block: number("kv_scale_block", self.kv_scale_block)?,
            rotary_dim: number("rotary_dim", self.rotary_dim)?,
            rope_base: self.rope_base,
            rope_scale: self.rope_scale,
            interleaved: i32::from(self.interleaved),
            ..Default::default()
        };
        self.optional.describe(&mut c);
        if self.page_status.is_some() {
            c.page_status = page_status_desc().to_c();
        }
        if let Some((q, q_out)) = &self.q {
            (c.q, c.q_out) = (q.desc().to_c(), q_out.desc().to_c());
        }
        Ok(c)
    }

    fn pointers(&mut self) -> sys::flashcore_append_arguments {
        let mut c = sys::flashcore_append_arguments {
            k_new: self.k_new.as_ptr(),
            v_new: self.v_new.as_ptr(),
            k: self.k.as_mut_ptr(),
            v: self.v.as_mut_ptr(),
            seqlens_kv: self.seqlens_kv.as_ptr().cast(),
            ..Default::default()
        };
        self.optional.point(&mut c);
        c.page_status = self.page_status.as_deref_mut().map_or(null_mut(), |word| word);
        if let Some((q, q_out)) = &mut self.q {
            (c.q, c.q_out) = (q.as_ptr(), q_out.as_mut_ptr());
        }
        c
    }
}

/// The data of one serving step: an append, and attention over the cache that it
/// wrote. See [`Plan::run_step`](crate::Plan::run_step).
///
/// The attention's Q is the output of [`Append::queries`], or [`Step::q`]; its K and V are the
/// cache, and its [`seqlens_kv`](Step::seqlens_kv) count the new rows.
#[derive(Debug)]
pub struct Step<'a> {
    append: Append<'a>,
    q: Option<Tensor<'a>>,
    inputs: Inputs<'a>, // without Q, K and V
    outputs: Outputs<'a>,
}

impl<'a> Step<'a> {
    /// Appends, and writes the attention of the queries to `o`.
    pub fn new(append: Append<'a>, o: TensorMut<'a>) -> Step<'a> {
        // Placeholders for Q, K and V: `pointers` uses the cache and the queries instead.
        let none = append.k_new;
        Step { append, q: None, inputs: Inputs::new(none, none, none), outputs: Outputs::new(o) }
    }

    /// Queries that are not rotated.
    #[must_use]
    pub fn q(mut self, q: Tensor<'a>) -> Step<'a> {
        self.q = Some(q);
        self
    }

    setters_of_inputs!();
    setters_of_forward!();

    pub(crate) fn pointers(
        &mut self,
        p: &Problem,
    ) -> Result<(
        sys::flashcore_append_problem,
        sys::flashcore_append_arguments,
        sys::flashcore_arguments,
    )> {
        let problem = self.append.problem()?;
        let rows = self.append.pointers();
        let mut inputs: Inputs<'_> = self.inputs;
        inputs.k = self.append.k.as_input();
        inputs.v = self.append.v.as_input();
        inputs.q = match (&self.q, &self.append.q) {
            (Some(q), _) => *q,
            (None, Some((_, q_out))) => q_out.as_input(),
            (None, None) => {
                return Err(Error::invalid(
                    "q: is missing, wanted Step::q or Append::queries".to_string(),
                ))
            }
        };
        let mut c = inputs.pointers(p)?;
        self.outputs.write_to(p, &mut c)?;
        c.page_status = status(p.page_status, self.append.page_status.as_deref_mut())?;
        Ok((problem, rows, c))
    }
}
