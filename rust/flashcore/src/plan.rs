use std::ffi::CString;
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::{null_mut, NonNull};

use flashcore_sys as sys;

use crate::arguments::Arguments;
use crate::cuda::DeviceArguments;
use crate::device::Device;
use crate::error::{check, text, Error, Result};
use crate::problem::Problem;
use crate::serving::Step;
use crate::setters::values;
use crate::workspace::Workspace;

/// The options of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    device: Device,
    kernel: String,
    threads: usize,
    batch_invariant: bool,
    early_start: bool,
    deterministic: bool,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            device: Device::Cpu,
            kernel: String::new(),
            threads: 0,
            batch_invariant: false,
            early_start: false,
            deterministic: true,
        }
    }
}

impl PlanOptions {
    /// The defaults: the CPU, the best kernel and all hardware threads.
    pub fn new() -> PlanOptions {
        PlanOptions::default()
    }

    values! {
        /// The device that the plan runs on. Default: the CPU.
        device: Device,

        /// CPU: number of threads; 0, the default, for all hardware threads.
        threads: usize,

        /// A row's bits do not depend on the rest of the batch.
        batch_invariant: bool,

        /// CUDA: a run may start before earlier work in its stream has ended; it waits for that
        /// work before it touches memory.
        early_start: bool,

        /// Backward: true, the default, gives the same bits in every run; false allows sums in any
        /// order, which may be faster.
        deterministic: bool,
    }

    pub(crate) fn device_of(&self) -> Device {
        self.device
    }

    /// The name of a kernel. "", the default: the kernel in the environment variable
    /// `FLASHCORE_KERNEL`, or the best that computes the problem.
    #[must_use]
    pub fn kernel(mut self, name: &str) -> PlanOptions {
        self.kernel = name.into();
        self
    }

    /// Calls `body` with the C struct of these options.
    pub(crate) fn with_c<R>(
        &self,
        body: impl FnOnce(&sys::flashcore_plan_options) -> Result<R>,
    ) -> Result<R> {
        let kernel = CString::new(self.kernel.as_str()).map_err(|_| {
            Error::invalid(format!("kernel: is {:?}, wanted a name without zeros", self.kernel))
        })?;
        let mut c = sys::flashcore_plan_options::default();
        // SAFETY: the size is the struct's.
        check(unsafe { sys::flashcore_plan_options_init(&mut c, c.struct_size) })?;
        (c.device_kind, c.device_index) = self.device.to_c();
        c.kernel = kernel.as_ptr();
        c.threads = i32::try_from(self.threads).map_err(|_| {
            Error::invalid(format!("threads: is {}, wanted at most {}", self.threads, i32::MAX))
        })?;
        c.batch_invariant = i32::from(self.batch_invariant);
        c.early_start = i32::from(self.early_start);
        c.deterministic = i32::from(self.deterministic);
        body(&c)
    }
}

/// Owns a plan of the library.
#[derive(Debug)]
pub(crate) struct Handle {
    plan: NonNull<sys::flashcore_plan>,
    pub(crate) device: Device,
    pub(crate) kernel: String,
    pub(crate) reason: String,
}

// SAFETY: the library guarantees that any thread may call every function, and that one plan may run
// on several threads at once, each with its own outputs and workspace: a run borrows these mutably.
// The pointer is not shared outside of this value, whose other members are plain data.
unsafe impl Send for Handle {}
// SAFETY: same as above; a plan is immutable between creation and destruction.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it is a plan, see `make`, and nothing uses it after this.
        unsafe { sys::flashcore_plan_destroy(self.plan.as_ptr()) }
    }
}

impl Handle {
    /// `create` calls the library function that makes a plan, with these options.
    pub(crate) fn make(
        options: &PlanOptions,
        create: impl FnOnce(
            &sys::flashcore_plan_options,
            &mut *mut sys::flashcore_plan,
        ) -> sys::flashcore_status,
    ) -> Result<Handle> {
        let mut plan = null_mut();
        options.with_c(|options| check(create(options, &mut plan)))?;
        let plan = NonNull::new(plan).expect("a plan without an error");
        // SAFETY: it is a plan, and its strings live as long as it does.
        let (kernel, reason) = unsafe {
            (
                text(sys::flashcore_plan_kernel(plan.as_ptr())),
                text(sys::flashcore_plan_reason(plan.as_ptr())),
            )
        };
        Ok(Handle { plan, device: options.device, kernel, reason })
    }

    /// The pointer for calls of the library; valid as long as the handle lives.
    pub(crate) fn as_ptr(&self) -> *const sys::flashcore_plan {
        self.plan.as_ptr()
    }

    pub(crate) fn workspace_bytes(&self) -> usize {
        // SAFETY: it is a plan.
        unsafe { sys::flashcore_plan_workspace_bytes(self.as_ptr()) }
    }

    /// Returns a CPU run's part of the workspace. Fails for a plan of another device.
    pub(crate) fn host_memory(&self, workspace: &mut Workspace) -> Result<(*mut c_void, usize)> {
        if self.device != Device::Cpu {
            return Err(Error::invalid(format!(
                "device: is {:?}, wanted Cpu; run_on_device is for memory of a GPU",
                self.device
            )));
        }
        let bytes = self.workspace_bytes();
        workspace.reserve(bytes)?;
        Ok((if bytes == 0 { null_mut() } else { workspace.as_mut_ptr() }, bytes))
    }
}

/// Getters that plans of both passes share.
macro_rules! plan_facts {
    () => {
        /// The kernel's name in the table of kernels.
        pub fn kernel(&self) -> &str {
            &self.handle.kernel
        }

        /// One sentence: why this kernel was chosen.
        pub fn reason(&self) -> &str {
            &self.handle.reason
        }

        /// The problem that it computes.
        pub fn problem(&self) -> &Problem {
            &self.problem
        }

        /// The device that it runs on.
        pub fn device(&self) -> Device {
            self.handle.device
        }

        /// Bytes of workspace that a run needs, on the plan's device.
        pub fn workspace_bytes(&self) -> usize {
            self.handle.workspace_bytes()
        }
    };
}

pub(crate) use plan_facts;

/// A problem bound to a kernel. Made once, it can run any number of times, on any number of
/// threads at once.
#[derive(Debug)]
pub struct Plan {
    handle: Handle,
    problem: Problem,
}

impl Plan {
    /// Checks the problem and chooses the kernel.
    pub fn new(problem: &Problem, options: &PlanOptions) -> Result<Plan> {
        let c = problem.to_c()?;
        let handle = Handle::make(options, |options, plan| {
            // SAFETY: both structs have the size that they state, and live during the call.
            unsafe { sys::flashcore_plan_create(&c, options, plan) }
        })?;
        Ok(Plan { handle, problem: problem.clone() })
    }

    plan_facts!();

    /// Computes O (and LSE) on the CPU.
    ///
    /// The tensors must have the types, shapes and strides of the problem. On an error nothing is
    /// written. The workspace grows if it is too small.
    ///
    /// ```
    /// use flashcore::{Arguments, Plan, PlanOptions, Problem, Tensor, TensorMut, Workspace};
    /// # fn main() -> flashcore::Result<()> {
    /// let (data, mut result) = (vec![1.0f32; 2 * 16 * 32], vec![0.0f32; 2 * 16 * 32]);
    /// let q = Tensor::new(&data, &[1, 2, 16, 32])?;
    /// let o = TensorMut::new(&mut result, &[1, 2, 16, 32])?;
    /// let plan = Plan::new(&Problem::new(q, q, q, &o), &PlanOptions::new())?;
    /// plan.run(Arguments::new(q, q, q, o), &mut Workspace::new())?;
    /// assert_eq!(result, data); // averages of ones
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An output stays borrowed until the run is done, so it cannot be an input at the same time:
    ///
    /// ```compile_fail,E0502
    /// # use flashcore::{Arguments, Plan, Tensor, TensorMut, Workspace};
    /// fn in_place(plan: &Plan, data: &mut [f32]) -> flashcore::Result<()> {
    ///     let q = Tensor::new(data, &[1, 2, 16, 32])?;
    ///     let o = TensorMut::new(data, &[1, 2, 16, 32])?;
    ///     plan.run(Arguments::new(q, q, q, o), &mut Workspace::new())
    /// }
    /// ```
    pub fn run(&self, mut arguments: Arguments<'_>, workspace: &mut Workspace) -> Result<()> {
        let (memory, bytes) = self.handle.host_memory(workspace)?;
        let c = arguments.pointers(&self.problem)?;
        // SAFETY: `c` has a pointer for each tensor of the problem, and `pointers` has checked that
        // the memory behind it is borrowed with the plan's type, shape and strides, outputs
        // mutably; the library itself checks the lengths that are stored in such memory. The
        // workspace has the required size and alignment, and is borrowed mutably. A CPU run keeps
        // no pointer after the call.
        check(unsafe {
            sys::flashcore_plan_run(self.handle.as_ptr(), &c, memory, bytes, null_mut())
        })
    }

    /// Appends to a cache, and computes O (and LSE) over it, in one call on the CPU: see [`Step`].
    /// On an error nothing is written. `options` are as in [`Append::run`](crate::Append::run).
    pub fn run_step(
        &self,
        mut step: Step<'_>,
        options: &PlanOptions,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let (memory, bytes) = self.handle.host_memory(workspace)?;
        let (problem, rows, c) = step.pointers(&self.problem)?;
        options.with_c(|options| {
            // SAFETY: same as in `run` and in `Append::run`; the cache is borrowed mutably, and the
            // library reads it as the plan's K and V after it has written it. Queries that append
            // rotates are mutably borrowed by it, too.
            check(unsafe {
                sys::flashcore_append_and_attend(
                    &problem,
                    &rows,
                    self.handle.as_ptr(),
                    &c,
                    options,
                    memory,
                    bytes,
                    null_mut(),
                )
            })
        })
    }

    /// Computes O (and LSE) from raw pointers, on any device: on a GPU, queues the work in `stream`
    /// and returns. The call allocates nothing and does not synchronise, so it can be captured in a
    /// CUDA graph. On an error nothing is launched and nothing is written.
    ///
    /// `stream` is a `cudaStream_t` (or a `CUstream`), or null for the default stream. The thread's
    /// current GPU stays the same, unless that GPU has no context yet: then the call creates none,
    /// and the plan's GPU becomes the current one. The crate's README has an example with `cudarc`.
    ///
    /// # Safety
    /// - For each tensor of the problem, its pointer is to element `[0, 0, ...]` of memory on the
    ///   plan's device that holds the tensor with the type, shape and strides of the problem. On the
    ///   CPU that is host memory.
    /// - `workspace` is memory on that device, aligned to 256 bytes, of `workspace_bytes` bytes; it
    ///   may be null if [`Plan::workspace_bytes`] is 0.
    /// - `stream` is null or a stream of the plan's GPU.
    /// - Until the work is done, as after synchronising the stream, all this memory stays
    ///   allocated; nothing else reads or writes outputs and workspace, or writes inputs. For a
    ///   launch that is captured in a graph, this holds at each launch of the graph. The plan
    ///   itself may be dropped before.
    /// - No element of an output shares memory with an element of another tensor.
    /// - On a GPU the library cannot read lengths before the launch, so they must be valid:
    ///   `cu_seqlens` rises from 0 to the total in steps of at most [`Problem::max_seqlens`], and
    ///   `seqlens` are from 0 to Sq or Skv.
    pub unsafe fn run_on_device(
        &self,
        arguments: &DeviceArguments,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: *mut c_void,
    ) -> Result<()> {
        let c = arguments.to_c();
        // SAFETY: the caller's promise; `c` lives during the call, and the library copies it.
        check(unsafe {
            sys::flashcore_plan_run(self.handle.as_ptr(), &c, workspace, workspace_bytes, stream)
        })
    }
}

/// The verdict of one kernel on a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The kernel's name in the table of kernels.
    pub kernel: String,
    /// Why it cannot compute the problem.
    pub refusal: Option<String>,
    /// Why it leaves a problem that it could compute to another kernel, unless it is asked
    /// for by name.
    pub declines: Option<String>,
    /// Remarks for callers about the kernel.
    pub note: Option<String>,
    /// False: runs only when asked for by name.
    pub automatic: bool,
}

/// Returns the verdict of every kernel of the device, best first. A plan gets the first automatic
/// one that neither refuses nor declines, otherwise the first that only declines.
pub fn explain(problem: &Problem, options: &PlanOptions) -> Result<Vec<Verdict>> {
    let c = problem.to_c()?;
    let mut verdicts = Vec::new();
    each_verdict(
        options,
        |verdict| verdicts.push(verdict),
        |options, visit, user| {
            // SAFETY: both structs have the size that they state; each_verdict passes a matching
            // pair; the library uses all of it only during the call.
            unsafe { sys::flashcore_visit_verdicts(&c, options, visit, user) }
        },
    )?;
    Ok(verdicts)
}

/// `call` passes the function and the pointer to a library function that visits verdicts.
pub(crate) fn each_verdict<F: FnMut(Verdict)>(
    options: &PlanOptions,
    visit: F,
    call: impl FnOnce(
        &sys::flashcore_plan_options,
        sys::flashcore_verdict_visitor,
        *mut c_void,
    ) -> sys::flashcore_status,
) -> Result<()> {
    let mut visitor = Visitor { visit, panic: None };
    let user: *mut Visitor<F> = &mut visitor;
    let result = options.with_c(|options| check(call(options, Some(visit_one::<F>), user.cast())));
    if let Some(panic) = visitor.panic {
        resume_unwind(panic);
    }
    result
}

struct Visitor<F> {
    visit: F,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

/// Catches a panic of the closure, since it must not pass through C++; it resumes when the library
/// has returned. Later verdicts are not visited.
///
/// # Safety
/// `user` is a `Visitor<F>` that nothing else uses, and `verdict` comes from the library.
unsafe extern "C" fn visit_one<F: FnMut(Verdict)>(
    user: *mut c_void,
    verdict: *const sys::flashcore_verdict,
) {
    // SAFETY: the caller's promise.
    let (visitor, verdict) = unsafe { (&mut *user.cast::<Visitor<F>>(), &*verdict) };
    if visitor.panic.is_some() {
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let sentence = |string| {
            // SAFETY: the strings of a verdict are zero-terminated and live during the call.
            Some(unsafe { text(string) }).filter(|text| !text.is_empty())
        };
        (visitor.visit)(Verdict {
            kernel: sentence(verdict.kernel).unwrap_or_default(),
            refusal: sentence(verdict.refusal),
            declines: sentence(verdict.declines),
            note: sentence(verdict.note),
            automatic: verdict.automatic != 0,
        })
    }));
    visitor.panic = outcome.err();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, TensorDesc};

    fn problem() -> Problem {
        let desc = TensorDesc::contiguous(DType::F32, &[1, 2, 16, 32]).unwrap();
        Problem::new(desc, desc, desc, desc)
    }

    #[test]
    fn a_panic_passes_around_the_library() {
        let mut visited = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let c = problem().to_c().unwrap();
            let visit = |_| {
                visited += 1;
                panic!("of the closure")
            };
            each_verdict(&PlanOptions::new(), visit, |options, visit, user| {
                // SAFETY: same as in `explain`.
                unsafe { sys::flashcore_visit_verdicts(&c, options, visit, user) }
            })
        }));
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"of the closure"));
        assert_eq!(visited, 1);
        assert!(explain(&problem(), &PlanOptions::new()).unwrap().len() > 1); // it still works
    }

    /// Host memory is never passed to a GPU.
    #[test]
    fn safe_runs_are_on_the_cpu() {
        let (data, mut result) = ([1.0f32; 2 * 16 * 32], [0.0f32; 2 * 16 * 32]);
        let q = crate::Tensor::new(&data, &[1, 2, 16, 32]).unwrap();
        let o = crate::TensorMut::new(&mut result, &[1, 2, 16, 32]).unwrap();
        let mut plan = Plan::new(&problem(), &PlanOptions::new()).unwrap();
        plan.handle.device = Device::Cuda(0); // as if it were a GPU's
        let error = plan.run(Arguments::new(q, q, q, o), &mut Workspace::new()).unwrap_err();
        let message = "device: is Cuda(0), wanted Cpu; run_on_device is for memory of a GPU";
        assert_eq!(error.to_string(), message);
        assert_eq!(result, [0.0; 2 * 16 * 32]);
    }

    #[test]
    fn plans_and_views_go_to_other_threads() {
        fn check<T: Send + Sync>() {}
        check::<Plan>();
        check::<Problem>();
        check::<Workspace>();
        check::<Arguments>();
        check::<Error>();
    }

    #[test]
    fn options_that_c_cannot_have_are_refused() {
        let refusal = |options| Plan::new(&problem(), &options).unwrap_err().to_string();
        let message = "kernel: is \"a\\0b\", wanted a name without zeros";
        assert_eq!(refusal(PlanOptions::new().kernel("a\0b")), message);
        let message = refusal(PlanOptions::new().threads(usize::MAX));
        assert!(message.starts_with("threads: is 18446744073709551615, wanted at most 2147"));
        let device = Device::Cuda(u32::MAX);
        assert!(Plan::new(&problem(), &PlanOptions::new().device(device)).is_err());
    }

    #[test]
    fn null_handles_are_not_plans() {
        // SAFETY: the library allows null.
        assert_eq!(unsafe { sys::flashcore_plan_workspace_bytes(std::ptr::null()) }, 0);
    }
}
