use flashcore_sys as sys;

use crate::error::{check, Error, Result};
use crate::setters::{pairs, setters, values};
use crate::tensor::{TensorDesc, ABSENT};

/// The position of the diagonal: query i is aligned with key i + offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Alignment {
    /// Offset 0.
    TopLeft,
    /// Each sequence's number of keys minus its number of queries: the last query sees the last
    /// key. The default.
    BottomRight,
    /// This offset. [`Problem::causal_offsets`] gives each sequence its own.
    Given(i64),
}

/// A problem without its data: shapes, strides, types and options.
///
/// B is the batch, Hq and Hkv are the query and the key/value heads (Hq a multiple of Hkv), Sq
/// and Skv the numbers of queries and keys, Dqk and Dv the head dimensions. "x|1" is an extent
/// of x, or of 1, which is then broadcast. [`Plan::new`](crate::Plan::new) checks whether a
/// problem makes sense.
///
/// Tensors are given as [`TensorDesc`], or as the views that a run will use.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub(crate) q: TensorDesc,
    pub(crate) k: TensorDesc,
    pub(crate) v: TensorDesc,
    pub(crate) o: TensorDesc,
    pub(crate) optional: OptionalTensors,
    pub(crate) page_status: bool,
    softmax_scale: Option<f32>,
    softcap: f32,
    causal: bool,
    alignment: Alignment,
    window: (Option<usize>, Option<usize>),
    dropout_p: f32,
    kv_scale_block: usize,
    max_seqlens: (usize, usize),
}

/// Calls a macro with what was given before, and the names of the optional inputs of attention.
macro_rules! with_inputs {
    ($then:ident $($before:ident)*) => {
        $then! {
            $($before)*
            bias mask alibi_slopes sinks q_scale k_scale v_scale
            cu_seqlens_q cu_seqlens_kv seqlens_q seqlens_kv causal_offsets dropout_state
            page_table kv_indptr kv_indices kv_last_page_len cache_leftpad tree_mask o_scale
        }
    };
}

/// Calls a macro in the same way with the names of the optional outputs, but for page_status.
macro_rules! with_outputs {
    ($then:ident $($before:ident)*) => {
        $then! { $($before)* lse amax_o amax_s max_logit }
    };
}

pub(crate) use {with_inputs, with_outputs};

macro_rules! optional_tensors {
    ($($name:ident)*) => {
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct OptionalTensors {
            $(pub(crate) $name: Option<TensorDesc>,)*
        }

        impl OptionalTensors {
            fn write_to(&self, c: &mut sys::flashcore_problem) {
                let optional = |desc: Option<TensorDesc>| desc.map_or(ABSENT, TensorDesc::to_c);
                $(c.$name = optional(self.$name);)*
            }
        }
    };
}
with_outputs!(with_inputs optional_tensors);

impl Problem {
    /// Q `[B, Hq, Sq, Dqk]`, K `[B, Hkv, Skv, Dqk]`, V `[B, Hkv, Skv, Dv]` of one type: f32, f16, bf16
    /// or fp8. O `[B, Hq, Sq, Dv]` of any of these, or f64. The last dimension of each is
    /// contiguous. [Packed](Problem::packed) batches have no B.
    pub fn new(
        q: impl Into<TensorDesc>,
        k: impl Into<TensorDesc>,
        v: impl Into<TensorDesc>,
        o: impl Into<TensorDesc>,
    ) -> Problem {
        Problem {
            q: q.into(),
            k: k.into(),
            v: v.into(),
            o: o.into(),
            optional: OptionalTensors::default(),
            page_status: false,
            softmax_scale: None,
            softcap: 0.0,
            causal: false,
            alignment: Alignment::BottomRight,
            window: (None, None),
            dropout_p: 0.0,
            kv_scale_block: 0,
            max_seqlens: (0, 0),
        }
    }

    setters! {
        [optional] impl Into<TensorDesc>;

        /// Also computes the log of each row's denominator: `[B, Hq, Sq]`, or packed `[total_q, Hq]`;
        /// f32, or f64.
        lse,

        /// Adds `[B|1, Hq|1, Sq|1, Skv|1]` of f32, f16 or bf16 to the scores.
        bias,

        /// Removes the pairs where `[B|1, Hq|1, Sq|1, Skv|1]` of `bool` is false.
        mask,

        /// ALiBi: `[Hq]` or `[B|1, Hq]` of f32.
        alibi_slopes,

        /// One extra logit per head in the softmax denominator: `[Hq]` of f32.
        sinks,

        /// The scales of an fp8 Q: `[B|1, Hq|1]` of f32.
        q_scale,

        /// The scales of an fp8 K: `[B|1, Hkv|1, blocks|1]` of f32.
        k_scale,

        /// The scales of an fp8 V: `[B|1, Hkv|1, blocks|1]` of f32.
        v_scale,

        /// The scales of an fp8 O, which stores O divided by its scale: `[B|1, Hq|1]` of f32.
        o_scale,

        /// Also computes the largest |O| before scaling and rounding: `[B|1, Hq|1]` of f32, each
        /// element the largest over all rows that it covers.
        amax_o,

        /// Also computes the largest probability before dropout, like [`Problem::amax_o`].
        amax_s,

        /// Also computes the largest score, after softcap, bias and ALiBi, like [`Problem::amax_o`].
        max_logit,

        /// The number of queries in use per batch entry: `[B]` of i32.
        seqlens_q,

        /// The number of keys in use per batch entry: `[B]` of i32.
        seqlens_kv,

        /// K `[num_pages, Hkv, page_size, Dqk]` and V `[num_pages, Hkv, page_size, Dv]` are pages of a
        /// cache, and row b of `[B, max_pages]` of i32 lists entry b's pages, in order. A page index
        /// out of range is an error, see [`Problem::page_status`].
        page_table,

        /// With [`Problem::page_list`]: rows in use on each entry's last page, `[B]` of i32.
        kv_last_page_len,

        /// Rows of the cache before the first key of each entry: `[B]` of i32.
        cache_leftpad,

        /// Bits of a speculative tree: `[B|1, Sq, words]`, or packed `[total_q, words]`, of i32. Bit t
        /// of a query's words is set if the query sees key offset + t; earlier keys are not affected.
        tree_mask,

        /// Runs read the dropout seed and offset, bit for bit, from this memory on the plan's
        /// device, `[2]` of i64, so that each replay of a captured run can use another mask. Not
        /// read without dropout.
        dropout_state,
    }

    setters! {
        [] f32;

        /// The factor of the scores. Default: 1 / sqrt(Dqk).
        softmax_scale,
    }

    values! {
        /// Keys per element of the scales of K and V. Default: all of them.
        kv_scale_block: usize,

        /// Scores become `softcap * tanh(score / softcap)`. 0, the default: no softcap.
        softcap: f32,

        /// Query i sees the keys up to i + offset, see [`Alignment`].
        causal: bool,

        /// The position of the diagonal. Default: [`Alignment::BottomRight`].
        alignment: Alignment,
    }

    pairs! {
        [optional] TensorDesc;

        /// A packed batch: sequences of different lengths one after the other, without padding. Q
        /// and O are `[total_q, Hq, D]`, K and V `[total_kv, Hkv, D]`. Both arguments hold the
        /// starts of sequences, `[B + 1]` of i32, rising from 0 to the total.
        packed(cu_seqlens_q, cu_seqlens_kv),

        /// The pages as one list: sequence b has pages `kv_indptr[b]` to `kv_indptr[b + 1]` of
        /// `kv_indices`. `[B + 1]` and `[total_pages]` of i32.
        page_list(kv_indptr, kv_indices),
    }

    /// The most queries and keys per sequence of a packed batch; 0 if not known.
    #[must_use]
    pub fn max_seqlens(mut self, queries: usize, keys: usize) -> Problem {
        self.max_seqlens = (queries, keys);
        self
    }

    /// With pages: only the queries are packed, `[B + 1]` of i32.
    #[must_use]
    pub fn packed_queries(mut self, cu_seqlens_q: impl Into<TensorDesc>) -> Problem {
        self.optional.cu_seqlens_q = Some(cu_seqlens_q.into());
        self
    }

    /// A page index that is out of range is clamped and reported by
    /// [`Arguments::page_status`](crate::Arguments::page_status), and is not an error.
    #[must_use]
    pub fn page_status(mut self) -> Problem {
        self.page_status = true;
        self
    }

    /// A causal offset per sequence: `[B]` of i32.
    #[must_use]
    pub fn causal_offsets(mut self, offsets: impl Into<TensorDesc>) -> Problem {
        self.optional.causal_offsets = Some(offsets.into());
        self.alignment = Alignment::Given(0);
        self
    }

    /// Query i sees the keys from i + offset - left to i + offset + right, both included. None: no
    /// limit.
    #[must_use]
    pub fn window(mut self, left: Option<usize>, right: Option<usize>) -> Problem {
        self.window = (left, right);
        self
    }

    /// The probability, 0 to 1, with which a pair is dropped.
    #[must_use]
    pub fn dropout(mut self, p: f32) -> Problem {
        self.dropout_p = p;
        self
    }

    pub(crate) fn to_c(&self) -> Result<sys::flashcore_problem> {
        let mut c = sys::flashcore_problem::default();
        // SAFETY: the size is the struct's.
        check(unsafe { sys::flashcore_problem_init(&mut c, c.struct_size) })?;
        c.q = self.q.to_c();
        c.k = self.k.to_c();
        c.v = self.v.to_c();
        c.o = self.o.to_c();
        self.optional.write_to(&mut c);
        if self.page_status {
            c.page_status = page_status_desc().to_c();
        }
        c.has_softmax_scale = i32::from(self.softmax_scale.is_some());
        c.softmax_scale = self.softmax_scale.unwrap_or(0.0);
        c.softcap = self.softcap;
        c.causal = i32::from(self.causal);
        (c.alignment, c.causal_offset) = match self.alignment {
            Alignment::TopLeft => (sys::FLASHCORE_TOP_LEFT, 0),
            Alignment::BottomRight => (sys::FLASHCORE_BOTTOM_RIGHT, 0),
            Alignment::Given(offset) => (sys::FLASHCORE_GIVEN, offset),
        };
        c.dropout_p = self.dropout_p;
        c.window_left = window_end("window_left", self.window.0)?;
        c.window_right = window_end("window_right", self.window.1)?;
        c.kv_scale_block = number("kv_scale_block", self.kv_scale_block)?;
        c.max_seqlen_q = number("max_seqlen_q", self.max_seqlens.0)?;
        c.max_seqlen_kv = number("max_seqlen_kv", self.max_seqlens.1)?;
        Ok(c)
    }
}

pub(crate) fn page_status_desc() -> TensorDesc {
    TensorDesc::from(&[0i32])
}

fn window_end(name: &str, end: Option<usize>) -> Result<i64> {
    end.map_or(Ok(-1), |end| number(name, end))
}

pub(crate) fn number(name: &str, value: usize) -> Result<i64> {
    i64::try_from(value)
        .map_err(|_| Error::invalid(format!("{}: is {}, wanted at most {}", name, value, i64::MAX)))
}
