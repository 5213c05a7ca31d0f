"""The exceptions. Each has the library's message: argument, value, what is wanted.

Every class derives from `Error` and from the built-in exception that a caller would expect.
"""


class Error(Exception):
    """Base class of all errors that this package raises on purpose."""


class ArgumentTypeError(Error, TypeError):
    """An argument of an unsupported type, or of a different framework."""


class InvalidArgumentError(Error, ValueError):
    """A malformed problem: an invalid shape, stride, dtype, device, length or option."""


class UnsupportedError(Error, NotImplementedError):
    """A well-formed problem that no kernel here computes."""


class OutOfMemoryError(Error, MemoryError):
    """The host is out of memory."""


class DeviceError(Error, RuntimeError):
    """The GPU or its driver reported an error."""


class InternalError(Error, RuntimeError):
    """A defect of the library."""


# Exceptions by the status codes of flashcore.h.
BY_STATUS: dict[int, type[Error]] = {
    1: InvalidArgumentError,
    2: UnsupportedError,
    3: OutOfMemoryError,
    4: DeviceError,
    5: InternalError,
}
