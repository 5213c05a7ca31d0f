"""The exceptions. Each carries the library's sentence: argument, value, what is wanted.

Every class derives from `Error` and from the built-in exception that a caller would expect.
"""


class Error(Exception):
    """The base of everything that this package raises on purpose."""


class ArgumentTypeError(Error, TypeError):
    """An argument of a type, or of a framework, that the call does not take."""


class InvalidArgumentError(Error, ValueError):
    """A malformed problem: a shape, stride, dtype, device, length or option that makes no sense."""


class UnsupportedError(Error, NotImplementedError):
    """A well-formed problem that no kernel here computes."""


class OutOfMemoryError(Error, MemoryError):
    """The host has no memory left for the call."""


class DeviceError(Error, RuntimeError):
    """The GPU or its driver reported an error."""


class InternalError(Error, RuntimeError):
    """A defect of the library."""


# By the status codes of flashcore.h.
BY_STATUS: dict[int, type[Error]] = {
    1: InvalidArgumentError,
    2: UnsupportedError,
    3: OutOfMemoryError,
    4: DeviceError,
    5: InternalError,
}
