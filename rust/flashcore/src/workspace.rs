use std::alloc::{alloc, dealloc, Layout};
use std::os::raw::c_void;
use std::ptr::{null_mut, NonNull};

use crate::error::{Error, ErrorKind, Result};

/// The required alignment of a workspace.
const ALIGNMENT: usize = 256;

/// Working memory of runs on the CPU. It can be used for one run after the other, of any plans, and
/// grows to the size that the largest of them needs. Concurrent threads need one each.
#[derive(Debug, Default)]
pub struct Workspace {
    memory: Option<Memory>,
}

#[derive(Debug)]
struct Memory {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: only this value owns the memory, and a shared reference gives no access to it.
unsafe impl Send for Memory {}
// SAFETY: same as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `reserve` allocated it with this layout, and nothing else frees it.
        unsafe { dealloc(self.address.as_ptr(), self.layout) }
    }
}

impl Workspace {
    /// Starts without memory: the first run allocates it.
    pub fn new() -> Workspace {
        Workspace::default()
    }

    /// Starts with memory for a plan that needs this many bytes,
    /// see [`Plan::workspace_bytes`](crate::Plan::workspace_bytes).
    pub fn with_bytes(bytes: usize) -> Result<Workspace> {
        let mut workspace = Workspace::new();
        workspace.reserve(bytes)?;
        Ok(workspace)
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.layout.size())
    }

    /// Grows to at least this many bytes. The contents are not kept.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes() {
            return Ok(());
        }
        let none = || {
            let message = format!("workspace: the host has no {} bytes left for it", bytes);
            Error::new(ErrorKind::OutOfMemory, message)
        };
        self.memory = None;
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| none())?;
        // SAFETY: the size is above 0.
        let address = NonNull::new(unsafe { alloc(layout) }).ok_or_else(none)?;
        self.memory = Some(Memory { address, layout });
        Ok(())
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.memory.as_ref().map_or(null_mut(), |memory| memory.address.as_ptr().cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_is_aligned() {
        let mut workspace = Workspace::new();
        assert_eq!((workspace.bytes(), workspace.as_mut_ptr()), (0, null_mut()));
        for bytes in [1, 256, 100, 100_000] {
            workspace.reserve(bytes).unwrap();
            assert!(workspace.bytes() >= bytes);
            assert_eq!(workspace.as_mut_ptr() as usize % ALIGNMENT, 0);
            // SAFETY: the memory is allocated, and nothing else uses it.
            unsafe { workspace.as_mut_ptr().cast::<u8>().write_bytes(0xff, bytes) };
        }
        assert_eq!(workspace.bytes(), 100_000);
    }

    #[test]
    fn too_much_is_an_error() {
        for bytes in [usize::MAX, isize::MAX as usize - ALIGNMENT] {
            let error = Workspace::with_bytes(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        }
    }
}
