"""``fallocate(FALLOC_FL_COLLAPSE_RANGE)``: bytes taken out of a file's head while others append.

The kernel does it under the inode's lock, which an append takes too: so each write of an engine
falls wholly before it or wholly after it, and none is lost. Python has no wrapper of its own.
"""

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any

_COLLAPSE_RANGE = 0x08
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})


def block_size(fd: int) -> int:
    """What the length of a collapse must be a multiple of."""
    return max(os.fstat(fd).st_blksize, os.fstatvfs(fd).f_bsize)


def can_collapse(fd: int) -> bool:
    """Whether the file system has it: it finds fault with a single byte, not with the request."""
    fallocate = _fallocate()
    if fallocate is None:
        return False
    fallocate(fd, _COLLAPSE_RANGE, ctypes.c_int64(0), ctypes.c_int64(1))
    return ctypes.get_errno() == errno.EINVAL


def collapse_head(fd: int, length: int) -> bool:
    """Remove the first ``length`` bytes. False where the file system cannot, or not at this length.

    ``length`` is a multiple of ``block_size`` and less than the file. Raises ``OSError``.
    """
    fallocate = _fallocate()
    if fallocate is None:
        return False
    if fallocate(fd, _COLLAPSE_RANGE, ctypes.c_int64(0), ctypes.c_int64(length)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number))


@cache
def _fallocate() -> Any:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
