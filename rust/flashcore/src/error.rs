use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;

use flashcore_sys as sys;

/// The kind of an error; the message of the [`Error`] has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Malformed: the message names argument, value and what is wanted.
    InvalidArgument,
    /// Well-formed, but no kernel of the device computes it, or the device is not there.
    Unsupported,
    /// The host is out of memory.
    OutOfMemory,
    /// The GPU or its driver reported an error.
    Device,
    /// A defect of the library.
    Internal,
}

/// A kind and one message.
///
/// ```
/// use flashcore::{ErrorKind, Tensor};
/// let error = Tensor::new(&[1.0f32; 5], &[2, 3]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
/// assert_eq!(error.to_string(), "tensor: data has 5 elements, wanted 6 for shape [2, 3]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn new(kind: ErrorKind, message: String) -> Error {
        Error { kind, message }
    }

    pub(crate) fn invalid(message: String) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Returns the error of the calling thread's last library call, which returned `status`.
pub(crate) fn check(status: sys::flashcore_status) -> Result<()> {
    let kind = match status {
        sys::FLASHCORE_OK => return Ok(()),
        sys::FLASHCORE_INVALID_ARGUMENT => ErrorKind::InvalidArgument,
        sys::FLASHCORE_UNSUPPORTED => ErrorKind::Unsupported,
        sys::FLASHCORE_OUT_OF_MEMORY => ErrorKind::OutOfMemory,
        sys::FLASHCORE_DEVICE_ERROR => ErrorKind::Device,
        _ => ErrorKind::Internal,
    };
    // SAFETY: the message is never null and stays unchanged until this thread's next call.
    let message = unsafe { text(sys::flashcore_last_error()) };
    Err(Error::new(kind, message))
}

/// A copy of a C string; "" for null.
///
/// # Safety
/// `string` is null, or zero-terminated and unchanged during the call.
pub(crate) unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}
