//! Bindings to FlashCore's C interface, `flashcore/flashcore.h`, name for name. The header documents
//! every function, with its errors; the crate `flashcore` is the safe interface.
//!
//! `tests/header.rs` compares this file with the header as the C compiler reads it.
//!
//! ```
//! // SAFETY: the function has no preconditions; its string is zero-terminated and never freed.
//! let version = unsafe { std::ffi::CStr::from_ptr(flashcore_sys::flashcore_version()) };
//! assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
//! ```
#![allow(non_camel_case_types)]

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_void};

// -------------------------------------------------------------------------------------------------
// Errors

/// One of `FLASHCORE_OK` ... `FLASHCORE_INTERNAL`.
pub type flashcore_status = i32;

pub const FLASHCORE_OK: i32 = 0;
/// Malformed: the message names argument, value and what is wanted.
pub const FLASHCORE_INVALID_ARGUMENT: i32 = 1;
/// Well-formed, but no kernel here computes it.
pub const FLASHCORE_UNSUPPORTED: i32 = 2;
pub const FLASHCORE_OUT_OF_MEMORY: i32 = 3;
/// The GPU or its driver reported an error.
pub const FLASHCORE_DEVICE_ERROR: i32 = 4;
/// A defect of the library.
pub const FLASHCORE_INTERNAL: i32 = 5;

// -------------------------------------------------------------------------------------------------
// Tensors

pub const FLASHCORE_MAX_RANK: i32 = 4;

pub const FLASHCORE_F32: i32 = 0;
pub const FLASHCORE_F16: i32 = 1;
pub const FLASHCORE_BF16: i32 = 2;
/// The "fn" variant: no infinity, largest value 448.
pub const FLASHCORE_F8E4M3: i32 = 3;
/// IEEE-like: infinity, largest finite value 57344.
pub const FLASHCORE_F8E5M2: i32 = 4;
/// One byte; zero is false, anything else is true.
pub const FLASHCORE_BOOLEAN: i32 = 5;
pub const FLASHCORE_I32: i32 = 6;
/// Only for O, LSE and gradients, and only the reference computes it.
pub const FLASHCORE_F64: i32 = 7;
/// Only for dropout's state.
pub const FLASHCORE_I64: i32 = 8;

/// Shape and strides without data. Strides are in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_tensor {
    pub dtype: i32,
    /// 1 to 4; 0: an optional tensor is absent, and the rest must be zero.
    pub rank: i32,
    pub shape: [i64; 4],
    pub stride: [i64; 4],
}

// -------------------------------------------------------------------------------------------------
// The problem

/// The diagonal begins at offset 0.
pub const FLASHCORE_TOP_LEFT: i32 = 0;
/// Offset `len_kv - len_q`: the last query sees the last key.
pub const FLASHCORE_BOTTOM_RIGHT: i32 = 1;
/// `causal_offset`, or `causal_offsets`: one per sequence.
pub const FLASHCORE_GIVEN: i32 = 2;

/// A problem without its data. `flashcore_problem_init` sets the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_problem {
    pub struct_size: usize,
    pub q: flashcore_tensor,
    pub k: flashcore_tensor,
    pub v: flashcore_tensor,
    pub o: flashcore_tensor,
    pub lse: flashcore_tensor,
    pub bias: flashcore_tensor,
    pub mask: flashcore_tensor,
    pub alibi_slopes: flashcore_tensor,
    pub sinks: flashcore_tensor,
    pub q_scale: flashcore_tensor,
    pub k_scale: flashcore_tensor,
    pub v_scale: flashcore_tensor,
    pub cu_seqlens_q: flashcore_tensor,
    pub cu_seqlens_kv: flashcore_tensor,
    pub seqlens_q: flashcore_tensor,
    pub seqlens_kv: flashcore_tensor,
    pub causal_offsets: flashcore_tensor,
    pub has_softmax_scale: i32,
    pub softmax_scale: f32,
    pub softcap: f32,
    pub causal: i32,
    pub alignment: i32,
    pub dropout_p: f32,
    pub causal_offset: i64,
    pub window_left: i64,
    pub window_right: i64,
    pub kv_scale_block: i64,
    pub max_seqlen_q: i64,
    pub max_seqlen_kv: i64,
    pub dropout_state: flashcore_tensor,
    pub page_table: flashcore_tensor,
    pub kv_indptr: flashcore_tensor,
    pub kv_indices: flashcore_tensor,
    pub kv_last_page_len: flashcore_tensor,
    pub cache_leftpad: flashcore_tensor,
    pub page_status: flashcore_tensor,
    pub tree_mask: flashcore_tensor,
    pub o_scale: flashcore_tensor,
    pub amax_o: flashcore_tensor,
    pub amax_s: flashcore_tensor,
    pub v_transposed: i32,
    pub reserved: i32,
}

// -------------------------------------------------------------------------------------------------
// Devices

pub const FLASHCORE_CPU: i32 = 0;
pub const FLASHCORE_CUDA: i32 = 1;
pub const FLASHCORE_SIM: i32 = 2;

/// Filled in by the library, up to `struct_size` bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_device_info {
    pub struct_size: usize,
    pub kind: i32,
    pub index: i32,
    pub compute_capability: i32,
    pub multiprocessors: i32,
    pub shared_memory_per_block: i64,
    pub memory_bytes: i64,
    /// Zero-terminated; cut if longer.
    pub name: [c_char; 256],
}

// -------------------------------------------------------------------------------------------------
// Plans

/// The options of a plan. `flashcore_plan_options_init` sets the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_plan_options {
    pub struct_size: usize,
    pub device_kind: i32,
    pub device_index: i32,
    pub kernel: *const c_char,
    pub threads: i32,
    pub batch_invariant: i32,
    pub early_start: i32,
    pub ignored: i32,
    pub deterministic: i32,
    pub reserved: i32,
}

/// A problem bound to a kernel. Free it with `flashcore_plan_destroy`.
#[repr(C)]
pub struct flashcore_plan {
    _private: [u8; 0],
    // Neither Send nor Sync nor Unpin: only the library knows the contents.
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// The data of one run: pointers to element [0, 0, ...] of the tensors of the problem.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_arguments {
    pub struct_size: usize,
    pub q: *const c_void,
    pub k: *const c_void,
    pub v: *const c_void,
    pub o: *mut c_void,
    pub lse: *mut c_void,
    pub bias: *const c_void,
    pub mask: *const c_void,
    pub alibi_slopes: *const f32,
    pub sinks: *const f32,
    pub q_scale: *const f32,
    pub k_scale: *const f32,
    pub v_scale: *const f32,
    pub cu_seqlens_q: *const i32,
    pub cu_seqlens_kv: *const i32,
    pub seqlens_q: *const i32,
    pub seqlens_kv: *const i32,
    pub causal_offsets: *const i32,
    pub dropout_seed: u64,
    pub dropout_offset: u64,
    pub dropout_state: *const i64,
    pub page_table: *const i32,
    pub kv_indptr: *const i32,
    pub kv_indices: *const i32,
    pub kv_last_page_len: *const i32,
    pub cache_leftpad: *const i32,
    pub page_status: *mut i32,
    pub tree_mask: *const i32,
    pub o_scale: *const f32,
    pub amax_o: *mut f32,
    pub amax_s: *mut f32,
}

// -------------------------------------------------------------------------------------------------
// Gradients

/// The tensors that the backward pass reads and writes in addition to the problem's own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_gradients {
    pub struct_size: usize,
    pub d_o: flashcore_tensor,
    pub dq: flashcore_tensor,
    pub dk: flashcore_tensor,
    pub dv: flashcore_tensor,
    pub d_lse: flashcore_tensor,
    pub d_bias: flashcore_tensor,
    pub d_sinks: flashcore_tensor,
    pub d_alibi_slopes: flashcore_tensor,
}

/// The data of one backward run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_backward_arguments {
    pub struct_size: usize,
    pub forward: *const flashcore_arguments,
    pub d_o: *const c_void,
    pub dq: *mut c_void,
    pub dk: *mut c_void,
    pub dv: *mut c_void,
    pub d_lse: *const c_void,
    pub d_bias: *mut c_void,
    pub d_sinks: *mut c_void,
    pub d_alibi_slopes: *mut c_void,
}

// -------------------------------------------------------------------------------------------------
// Serving

/// Partial results of the same queries over disjoint keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_merge_problem {
    pub struct_size: usize,
    pub o_a: flashcore_tensor,
    pub o_b: flashcore_tensor,
    pub lse_a: flashcore_tensor,
    pub lse_b: flashcore_tensor,
    pub o: flashcore_tensor,
    pub lse: flashcore_tensor,
}

/// The data of a merge.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_merge_arguments {
    pub struct_size: usize,
    pub o_a: *const c_void,
    pub o_b: *const c_void,
    pub lse_a: *const f32,
    pub lse_b: *const f32,
    pub o: *mut c_void,
    pub lse: *mut f32,
}

/// New keys and values to append to a cache.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_append_problem {
    pub struct_size: usize,
    pub k_new: flashcore_tensor,
    pub v_new: flashcore_tensor,
    pub k: flashcore_tensor,
    pub v: flashcore_tensor,
    pub seqlens_kv: flashcore_tensor,
    pub seqlens_new: flashcore_tensor,
    pub cu_seqlens_new: flashcore_tensor,
    pub page_table: flashcore_tensor,
    pub kv_indptr: flashcore_tensor,
    pub kv_indices: flashcore_tensor,
    pub cache_leftpad: flashcore_tensor,
    pub page_status: flashcore_tensor,
    pub k_scale: flashcore_tensor,
    pub v_scale: flashcore_tensor,
    pub rope_cos: flashcore_tensor,
    pub rope_sin: flashcore_tensor,
    pub q: flashcore_tensor,
    pub q_out: flashcore_tensor,
    pub kv_scale_block: i64,
    pub rotary_dim: i64,
    pub rope_base: f32,
    pub rope_scale: f32,
    pub interleaved: i32,
    pub v_transposed: i32,
}

/// The data of an append.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_append_arguments {
    pub struct_size: usize,
    pub k_new: *const c_void,
    pub v_new: *const c_void,
    pub k: *mut c_void,
    pub v: *mut c_void,
    pub seqlens_kv: *const i32,
    pub seqlens_new: *const i32,
    pub cu_seqlens_new: *const i32,
    pub page_table: *const i32,
    pub kv_indptr: *const i32,
    pub kv_indices: *const i32,
    pub cache_leftpad: *const i32,
    pub page_status: *mut i32,
    pub k_scale: *const f32,
    pub v_scale: *const f32,
    pub rope_cos: *const f32,
    pub rope_sin: *const f32,
    pub q: *const c_void,
    pub q_out: *mut c_void,
}

// -------------------------------------------------------------------------------------------------
// Quantisation

/// An fp8 tensor and its scales, in the form that attention takes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_quantize_problem {
    pub struct_size: usize,
    pub x: flashcore_tensor,
    pub x_out: flashcore_tensor,
    pub scale: flashcore_tensor,
    pub mean: flashcore_tensor,
    pub cu_seqlens: flashcore_tensor,
    pub seqlens: flashcore_tensor,
    pub scale_block: i64,
    pub max_seqlen: i64,
}

/// The data of a quantisation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_quantize_arguments {
    pub struct_size: usize,
    pub x: *const c_void,
    pub x_out: *mut c_void,
    pub scale: *mut f32,
    pub mean: *mut f32,
    pub cu_seqlens: *const i32,
    pub seqlens: *const i32,
}

/// The verdict of one kernel on a problem. A message that does not apply is "".
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_verdict {
    pub struct_size: usize,
    pub kernel: *const c_char,
    pub refusal: *const c_char,
    pub declines: *const c_char,
    pub note: *const c_char,
    pub automatic: i32,
    pub reserved: i32,
}

/// The struct and its strings live only during the call. The function must not unwind.
pub type flashcore_verdict_visitor =
    Option<unsafe extern "C" fn(user: *mut c_void, verdict: *const flashcore_verdict)>;

/// The strings live only during the call. The function must not unwind.
pub type flashcore_verdict_function = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        kernel: *const c_char,
        refusal: *const c_char,
        automatic: i32,
    ),
>;

// -------------------------------------------------------------------------------------------------
// Build

/// Filled in by the library, up to `struct_size` bytes. The strings are never freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct flashcore_build_info {
    pub struct_size: usize,
    pub version: *const c_char,
    pub compiler: *const c_char,
    pub build_type: *const c_char,
    pub cuda_targets: *const c_char,
    pub cpu_target: *const c_char,
    pub cuda: i32,
    pub reserved: i32,
}

// -------------------------------------------------------------------------------------------------
// Functions, in the header's order. None of them unwinds.

extern "C" {
    pub fn flashcore_last_error() -> *const c_char;
    pub fn flashcore_status_name(status: flashcore_status) -> *const c_char;

    pub fn flashcore_tensor_contiguous(
        tensor: *mut flashcore_tensor,
        dtype: i32,
        rank: i32,
        shape: *const i64,
    ) -> flashcore_status;
    pub fn flashcore_tensor_strided(
        tensor: *mut flashcore_tensor,
        dtype: i32,
        rank: i32,
        shape: *const i64,
        stride: *const i64,
    ) -> flashcore_status;
    pub fn flashcore_dtype_name(dtype: i32) -> *const c_char;
    pub fn flashcore_dtype_size(dtype: i32) -> usize;

    pub fn flashcore_problem_init(
        problem: *mut flashcore_problem,
        struct_size: usize,
    ) -> flashcore_status;

    pub fn flashcore_device_count(count: *mut usize) -> flashcore_status;
    pub fn flashcore_device_get(
        position: usize,
        info: *mut flashcore_device_info,
    ) -> flashcore_status;

    pub fn flashcore_plan_options_init(
        options: *mut flashcore_plan_options,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_plan_create(
        problem: *const flashcore_problem,
        options: *const flashcore_plan_options,
        plan: *mut *mut flashcore_plan,
    ) -> flashcore_status;
    pub fn flashcore_plan_destroy(plan: *mut flashcore_plan);
    pub fn flashcore_plan_kernel(plan: *const flashcore_plan) -> *const c_char;
    pub fn flashcore_plan_reason(plan: *const flashcore_plan) -> *const c_char;
    pub fn flashcore_plan_workspace_bytes(plan: *const flashcore_plan) -> usize;
    pub fn flashcore_arguments_init(
        arguments: *mut flashcore_arguments,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_plan_run(
        plan: *const flashcore_plan,
        arguments: *const flashcore_arguments,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> flashcore_status;

    pub fn flashcore_gradients_init(
        gradients: *mut flashcore_gradients,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_backward_arguments_init(
        arguments: *mut flashcore_backward_arguments,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_backward_plan_create(
        problem: *const flashcore_problem,
        gradients: *const flashcore_gradients,
        options: *const flashcore_plan_options,
        plan: *mut *mut flashcore_plan,
    ) -> flashcore_status;
    pub fn flashcore_plan_run_backward(
        plan: *const flashcore_plan,
        arguments: *const flashcore_backward_arguments,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> flashcore_status;

    pub fn flashcore_merge_problem_init(
        problem: *mut flashcore_merge_problem,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_merge_arguments_init(
        arguments: *mut flashcore_merge_arguments,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_merge(
        problem: *const flashcore_merge_problem,
        arguments: *const flashcore_merge_arguments,
        options: *const flashcore_plan_options,
        stream: *mut c_void,
    ) -> flashcore_status;
    pub fn flashcore_append_problem_init(
        problem: *mut flashcore_append_problem,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_append_arguments_init(
        arguments: *mut flashcore_append_arguments,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_append_and_attend(
        problem: *const flashcore_append_problem,
        rows: *const flashcore_append_arguments,
        plan: *const flashcore_plan,
        arguments: *const flashcore_arguments,
        options: *const flashcore_plan_options,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> flashcore_status;
    pub fn flashcore_append(
        problem: *const flashcore_append_problem,
        arguments: *const flashcore_append_arguments,
        options: *const flashcore_plan_options,
        stream: *mut c_void,
    ) -> flashcore_status;

    pub fn flashcore_quantize_problem_init(
        problem: *mut flashcore_quantize_problem,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_quantize_arguments_init(
        arguments: *mut flashcore_quantize_arguments,
        struct_size: usize,
    ) -> flashcore_status;
    pub fn flashcore_quantize(
        problem: *const flashcore_quantize_problem,
        arguments: *const flashcore_quantize_arguments,
        options: *const flashcore_plan_options,
        stream: *mut c_void,
    ) -> flashcore_status;

    pub fn flashcore_transpose_v(
        v: *const flashcore_tensor,
        v_data: *const c_void,
        v_out: *const flashcore_tensor,
        v_out_data: *mut c_void,
        options: *const flashcore_plan_options,
        stream: *mut c_void,
    ) -> flashcore_status;

    pub fn flashcore_visit_verdicts(
        problem: *const flashcore_problem,
        options: *const flashcore_plan_options,
        visit: flashcore_verdict_visitor,
        user: *mut c_void,
    ) -> flashcore_status;
    pub fn flashcore_visit_backward_verdicts(
        problem: *const flashcore_problem,
        gradients: *const flashcore_gradients,
        options: *const flashcore_plan_options,
        visit: flashcore_verdict_visitor,
        user: *mut c_void,
    ) -> flashcore_status;
    pub fn flashcore_explain(
        problem: *const flashcore_problem,
        options: *const flashcore_plan_options,
        function: flashcore_verdict_function,
        user: *mut c_void,
    ) -> flashcore_status;

    pub fn flashcore_reload_tuning();

    pub fn flashcore_dropout_keeps(
        seed: u64,
        offset: u64,
        dropout_p: f32,
        batch: i64,
        head: i64,
        query: i64,
        key: i64,
        keeps: *mut i32,
    ) -> flashcore_status;

    pub fn flashcore_version() -> *const c_char;
    pub fn flashcore_build_info_get(info: *mut flashcore_build_info) -> flashcore_status;
}

/// The program of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
