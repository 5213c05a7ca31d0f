//! Bindings to FlashCore's C interface, `flashcore/flashcore.h`, name for name. The build script
//! writes them from the header of this version; `tests/header.rs` compares them with the header as
//! the C compiler reads it. The crate `flashcore` is the safe interface.
//!
//! No function unwinds, and a function that the library calls must not unwind either.
//!
//! ```
//! // SAFETY: the function has no preconditions; its string is zero-terminated and never freed.
//! let version = unsafe { std::ffi::CStr::from_ptr(flashcore_sys::flashcore_version()) };
//! assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
//! ```
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links)] // the header writes shapes as [B, Hq, Sq, Dqk]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// The program of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
