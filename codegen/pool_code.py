"""The thread pool's compiled half, as LLVM IR: its memory, and the module of all parts.

A region is one parallel loop. `pool_region` launches one, `pool_shares` takes its iterations,
`pool_workers` are those who join, and `pool_waiting` is how all of them wait.

`state` holds in one word the region's number (upper 32 bits), whether it is open for workers to
join, how many are wanted (15 bits), and how many have joined (lower 16 bits).

Kernels get a handle, {run, pool, number of workers}: how many threads take part belongs to a call,
as the memory does that its caller provides for each of them.
"""

from __future__ import annotations

from . import pool_region, pool_shares, pool_waiting, pool_workers
from .pool_shares import SHARES

OPEN = 1 << 31
WANTED = 16  # the lowest bit of how many are wanted

# Each on lines of its own: what a region is; state; busy; what waiting threads look at, which
# hardly changes; counters; mutex, work, done, with room for any system's pthread types; the next
# iteration of each share.
_LAYOUT = (
    "%Pool = type { ptr, ptr, i64, i64, i64, i64, [16 x i8], i64, [56 x i8], i32, [60 x i8], "
    "i32, i32, i64, i64, [40 x i8], i32, i32, i32, i32, [48 x i8], "
    f"[64 x i8], [64 x i8], [64 x i8], [{SHARES} x [8 x i64]] }}"
)
FIELDS = {
    "body": 0, "closure": 1, "n": 2, "chunk": 3, "shares": 4, "length": 5, "state": 7, "busy": 9,
    "stop": 11, "eager": 13, "patient": 14, "sleepers": 16, "waiting": 17, "alive": 18,
    "entered": 19, "mutex": 21, "work": 22, "done": 23, "next": 24,
}  # fmt: skip
OFFSETS = {"eager": 200, "patient": 208, "alive": 264}
BYTES = 512 + 64 * SHARES


def pool_llvm(triple: str) -> str:
    """The module: `setup`, `handle`, `grow`, `stop`, `pauses`."""
    pause = ""
    if triple.startswith(("x86_64", "i686", "i386")):
        pause = 'call void asm sideeffect "pause", ""()'
    elif triple.startswith(("aarch64", "arm64")):
        pause = 'call void asm sideeffect "yield", ""()'
    parts = (pool_waiting, pool_workers, pool_shares, pool_region)
    text = "\n".join((_CODE, *(part.CODE for part in parts)))
    words = {
        "PAUSE": pause, "KEEP_FAULTS": pool_workers.KEEP_FAULTS,
        "SETMASK": pool_workers.SETMASK, "OPEN": OPEN, "WANTED": WANTED,
        "DYNAMIC_CHUNKS": pool_region.DYNAMIC_CHUNKS, "CHUNKS": pool_region.CHUNKS,
        "SHARES": SHARES, "BURST": pool_waiting.BURST,
    }  # fmt: skip
    for word, meant in words.items():
        text = text.replace(word, str(meant))
    for name, number in FIELDS.items():
        text = text.replace(f"@{name}@", f"getelementptr %Pool, ptr %pool, i32 0, i32 {number}")
    return f'target triple = "{triple}"\n{_LAYOUT}\n{text}'


_CODE = """
%Handle = type { ptr, ptr, i64 }
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @sched_yield()

; Prepares zeroed memory.
define void @setup(ptr %pool) {
  %mutex = @mutex@
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %work = @work@
  call i32 @pthread_cond_init(ptr %work, ptr null)
  %done = @done@
  call i32 @pthread_cond_init(ptr %done, ptr null)
  ret void
}

; Makes `handle` one for regions of up to `workers` workers.
define void @handle(ptr %handle, ptr %pool, i64 %workers) {
  store ptr @run, ptr %handle
  %pool.at = getelementptr %Handle, ptr %handle, i32 0, i32 1
  store ptr %pool, ptr %pool.at
  %workers.at = getelementptr %Handle, ptr %handle, i32 0, i32 2
  store i64 %workers, ptr %workers.at
  ret void
}
"""
