"""The thread pool's compiled half, as LLVM IR: launching a region, and what workers do.

A region is one parallel loop. Its iterations are cut into shares, one a thread, and a thread takes
its own share in chunks, then what is left of the others': so a thread meets the same iterations in
region after region, and none waits for one that came late. A dynamic loop has one share for all.

`state` holds in one word the region's number (upper 32 bits), whether it is open for workers to
join, how many are wanted (15 bits), and how many have joined (lower 16 bits). The launcher closes
the region when no iteration is left, and then waits only for those who have joined: a worker that
slept through it is not missed. Whoever waits spins for a moment, then lets others run between
looks, then sleeps on a condition variable. A pool that is busy makes its caller do the work alone,
so nested and concurrent regions cannot deadlock.

Kernels get a handle, {run, pool, number of workers}: how many threads take part belongs to a call,
as the memory does that its caller provides for each of them.
"""

from __future__ import annotations

import signal

OPEN = 1 << 31
WANTED = 16  # the lowest bit of how many are wanted
SHARES = 512  # at most; further threads begin with the share of another
CHUNKS = 8  # in a share
DYNAMIC_CHUNKS = 64  # for each thread of a dynamic loop
BURST = 32  # pauses between two times that a waiting thread lets others run

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
    # A signal is for a thread of Python, except where it is the worker's own fault.
    kept = [getattr(signal, n, 0) for n in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")]
    numbers = {
        "OPEN": OPEN, "WANTED": WANTED, "DYNAMIC_CHUNKS": DYNAMIC_CHUNKS, "CHUNKS": CHUNKS,
        "SHARES": SHARES, "BURST": BURST, "SETMASK": int(getattr(signal, "SIG_SETMASK", 2)),
    }  # fmt: skip
    text = _CODE.replace("PAUSE", pause).replace(
        "KEEP_FAULTS",
        "\n  ".join(f"call i32 @sigdelset(ptr %all, i32 {int(n)})" for n in kept if n),
    )
    for name, number in numbers.items():
        text = text.replace(name, str(number))
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

; Pauses n times, for whoever wants to know how long that takes.
define void @pauses(i64 %n) {
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %i1, %again ]
  PAUSE
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %again, label %end
end:
  ret void
}

; Starts workers until there are `workers`, or the system gives no more; returns how many there are.
define i32 @grow(ptr %pool, i32 %workers) {
entry:
  %all = alloca [256 x i8], align 16
  %before = alloca [256 x i8], align 16
  %id = alloca ptr
  call i32 @sigfillset(ptr %all)
  KEEP_FAULTS
  call i32 @pthread_sigmask(i32 SETMASK, ptr %all, ptr %before)
  %alive.at = @alive@
  br label %look
look:
  %alive = load atomic i32, ptr %alive.at seq_cst, align 4
  %enough = icmp sge i32 %alive, %workers
  br i1 %enough, label %end, label %start
start:
  %a0 = atomicrmw add ptr %alive.at, i32 1 seq_cst
  %rc = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %pool)
  %failed = icmp ne i32 %rc, 0
  br i1 %failed, label %refused, label %started
started:
  %thread = load ptr, ptr %id
  call i32 @pthread_detach(ptr %thread)
  br label %look
refused:
  %a1 = atomicrmw sub ptr %alive.at, i32 1 seq_cst
  br label %end
end:
  %count = load atomic i32, ptr %alive.at seq_cst, align 4
  call i32 @pthread_sigmask(i32 SETMASK, ptr %before, ptr null)
  ret i32 %count
}

; Takes chunks until there are no more, those of its own share first.
define internal void @take(ptr %pool, i64 %slot) {
entry:
  %body.at = @body@
  %body = load ptr, ptr %body.at
  %closure.at = @closure@
  %closure = load ptr, ptr %closure.at
  %n.at = @n@
  %n = load i64, ptr %n.at
  %chunk.at = @chunk@
  %chunk = load i64, ptr %chunk.at
  %shares.at = @shares@
  %shares = load i64, ptr %shares.at
  %length.at = @length@
  %length = load i64, ptr %length.at
  %own = urem i64 %slot, %shares
  br label %share
share:
  %q = phi i64 [ %own, %entry ], [ %following, %over ]
  %k = phi i64 [ 0, %entry ], [ %k1, %over ]
  %next.at = getelementptr %Pool, ptr %pool, i32 0, i32 24, i64 %q
  %first = mul i64 %q, %length
  %full.end = add i64 %first, %length
  %whole = icmp slt i64 %full.end, %n
  %share.end = select i1 %whole, i64 %full.end, i64 %n
  br label %again
again:
  %seen = load atomic i64, ptr %next.at monotonic, align 8
  %some = icmp slt i64 %seen, %share.end
  br i1 %some, label %try, label %over
try:
  %begin = atomicrmw add ptr %next.at, i64 %chunk monotonic
  %mine = icmp slt i64 %begin, %share.end
  br i1 %mine, label %go, label %over
go:
  %full = add i64 %begin, %chunk
  %short = icmp slt i64 %full, %share.end
  %stop = select i1 %short, i64 %full, i64 %share.end
  call void %body(ptr %closure, i64 %begin, i64 %stop, i64 %slot)
  br label %again
over:
  %q1 = add i64 %q, 1
  %round = icmp eq i64 %q1, %shares
  %following = select i1 %round, i64 0, i64 %q1
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %shares
  br i1 %more, label %share, label %end
end:
  ret void
}

; Waits a moment; %left counts the pauses that are left before a thread should sleep. Those after
; the first, eager ones are spent in bursts, between which other threads may run here.
define internal i64 @wait(ptr %pool, i64 %left) {
entry:
  %patient.at = @patient@
  %patient = load i64, ptr %patient.at
  %eager = icmp sgt i64 %left, %patient
  br i1 %eager, label %once, label %several
once:
  PAUSE
  %left1 = sub i64 %left, 1
  ret i64 %left1
several:
  call void @pauses(i64 BURST)
  call i32 @sched_yield()
  %left2 = sub i64 %left, BURST
  ret i64 %left2
}

; Runs iterations 0 .. n-1 of body; n is positive.
define void @run(ptr %handle, ptr %body, ptr %closure, i64 %n, i1 %dynamic) {
entry:
  %workers.at = getelementptr %Handle, ptr %handle, i32 0, i32 2
  %workers = load i64, ptr %workers.at
  %none = icmp eq i64 %workers, 0
  %one = icmp eq i64 %n, 1
  %serial = or i1 %none, %one
  br i1 %serial, label %alone, label %claim
claim:
  %pool.at = getelementptr %Handle, ptr %handle, i32 0, i32 1
  %pool = load ptr, ptr %pool.at
  %busy.at = @busy@
  %claimed = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %claimed, 1
  br i1 %mine, label %launch, label %alone
alone:
  call void %body(ptr %closure, i64 0, i64 %n, i64 0)
  ret void
launch:
  %body.at = @body@
  store ptr %body, ptr %body.at
  %closure.at = @closure@
  store ptr %closure, ptr %closure.at
  %n.at = @n@
  store i64 %n, ptr %n.at
  %more = add i64 %workers, 1
  %few = icmp slt i64 %n, %more
  %threads = select i1 %few, i64 %n, i64 %more
  %wanted = sub i64 %threads, 1
  br i1 %dynamic, label %one.share, label %split
one.share:
  %pieces = mul i64 %threads, DYNAMIC_CHUNKS
  br label %cut
split:
  %many = icmp sgt i64 %threads, SHARES
  %parts = select i1 %many, i64 SHARES, i64 %threads
  br label %cut
cut:
  %asked = phi i64 [ 1, %one.share ], [ %parts, %split ]
  %chunks = phi i64 [ %pieces, %one.share ], [ CHUNKS, %split ]
  %length = call i64 @ceil(i64 %n, i64 %asked)
  %shares = call i64 @ceil(i64 %n, i64 %length)
  %chunk = call i64 @ceil(i64 %length, i64 %chunks)
  %length.at = @length@
  store i64 %length, ptr %length.at
  %shares.at = @shares@
  store i64 %shares, ptr %shares.at
  %chunk.at = @chunk@
  store i64 %chunk, ptr %chunk.at
  br label %share
share:
  %q = phi i64 [ 0, %cut ], [ %q1, %share ]
  %next.at = getelementptr %Pool, ptr %pool, i32 0, i32 24, i64 %q
  %first = mul i64 %q, %length
  store atomic i64 %first, ptr %next.at monotonic, align 8
  %q1 = add i64 %q, 1
  %another = icmp slt i64 %q1, %shares
  br i1 %another, label %share, label %start
start:
  %state.at = @state@
  %old = load atomic i64, ptr %state.at monotonic, align 8
  %number = lshr i64 %old, 32
  %number1 = add i64 %number, 1
  %high = shl i64 %number1, 32
  %opened = or i64 %high, OPEN
  %crew = shl i64 %wanted, WANTED
  %word = or i64 %opened, %crew
  store atomic i64 %word, ptr %state.at seq_cst, align 8
  %sleepers.at = @sleepers@
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  %mutex = @mutex@
  br i1 %asleep, label %wake, label %work
wake:
  call i32 @pthread_mutex_lock(ptr %mutex)
  %bell = @work@
  call i32 @pthread_cond_broadcast(ptr %bell)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %work
work:
  call void @take(ptr %pool, i64 0)
  %before = atomicrmw sub ptr %state.at, i64 OPEN seq_cst
  %patience = call i64 @patience(ptr %pool)
  br label %spin
spin:
  %left = phi i64 [ %patience, %work ], [ %left1, %pause ]
  %now = load atomic i64, ptr %state.at acquire, align 8
  %joined = and i64 %now, 65535
  %finished = icmp eq i64 %joined, 0
  br i1 %finished, label %end, label %patient
patient:
  %can.wait = icmp sgt i64 %left, 0
  br i1 %can.wait, label %pause, label %sleep
pause:
  %left1 = call i64 @wait(ptr %pool, i64 %left)
  br label %spin
sleep:
  call i32 @pthread_mutex_lock(ptr %mutex)
  %waiting.at = @waiting@
  store atomic i32 1, ptr %waiting.at seq_cst, align 4
  br label %check
check:
  %later = load atomic i64, ptr %state.at seq_cst, align 8
  %running = and i64 %later, 65535
  %over = icmp eq i64 %running, 0
  br i1 %over, label %awake, label %wait
wait:
  %done = @done@
  call i32 @pthread_cond_wait(ptr %done, ptr %mutex)
  br label %check
awake:
  store atomic i32 0, ptr %waiting.at seq_cst, align 4
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %end
end:
  store atomic i32 0, ptr %busy.at release, align 4
  ret void
}

define internal i64 @ceil(i64 %a, i64 %b) alwaysinline {
  %less = sub i64 %a, 1
  %quotient = udiv i64 %less, %b
  %up = add i64 %quotient, 1
  ret i64 %up
}

; The pauses before a thread sleeps.
define internal i64 @patience(ptr %pool) alwaysinline {
  %eager.at = @eager@
  %eager = load i64, ptr %eager.at
  %patient.at = @patient@
  %patient = load i64, ptr %patient.at
  %sum = add i64 %eager, %patient
  ret i64 %sum
}

; The life of a worker, until the pool stops.
define internal ptr @worker(ptr %pool) {
entry:
  %state.at = @state@
  %stop.at = @stop@
  %mutex = @mutex@
  %bell = @work@
  %entered.at = @entered@
  %index32 = atomicrmw add ptr %entered.at, i32 1 seq_cst
  %index = zext i32 %index32 to i64
  %slot = add i64 %index, 1
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %number, %spare ], [ %number, %late ], [ %number, %worked ]
  %patience = call i64 @patience(ptr %pool)
  br label %spin
spin:
  %left = phi i64 [ %patience, %idle ], [ %left1, %pause ]
  %stopped = load atomic i32, ptr %stop.at monotonic, align 4
  %quit = icmp ne i32 %stopped, 0
  br i1 %quit, label %end, label %look
look:
  %now = load atomic i64, ptr %state.at acquire, align 8
  %now.number = lshr i64 %now, 32
  %news = icmp ne i64 %now.number, %seen
  br i1 %news, label %go, label %patient
patient:
  %can.wait = icmp sgt i64 %left, 0
  br i1 %can.wait, label %pause, label %sleep
pause:
  %left1 = call i64 @wait(ptr %pool, i64 %left)
  br label %spin
sleep:
  call i32 @pthread_mutex_lock(ptr %mutex)
  %sleepers.at = @sleepers@
  %s0 = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  br label %check
check:
  %later = load atomic i64, ptr %state.at seq_cst, align 8
  %later.number = lshr i64 %later, 32
  %same = icmp eq i64 %later.number, %seen
  %stopping = load atomic i32, ptr %stop.at seq_cst, align 4
  %stay = icmp eq i32 %stopping, 0
  %wait.more = and i1 %same, %stay
  br i1 %wait.more, label %wait, label %awake
wait:
  call i32 @pthread_cond_wait(ptr %bell, ptr %mutex)
  br label %check
awake:
  %s1 = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br i1 %stay, label %go, label %end
go:
  %word = phi i64 [ %now, %look ], [ %later, %awake ]
  %number = lshr i64 %word, 32
  br label %try
try:
  %seen.word = phi i64 [ %word, %go ], [ %other, %join ]
  %flag = and i64 %seen.word, OPEN
  %is.open = icmp ne i64 %flag, 0
  %its.number = lshr i64 %seen.word, 32
  %still = icmp eq i64 %its.number, %number
  %may = and i1 %is.open, %still
  br i1 %may, label %needed, label %late
late:
  br label %idle
needed:
  %crew.bits = lshr i64 %seen.word, WANTED
  %crew = and i64 %crew.bits, 32767
  %wanted = icmp slt i64 %index, %crew
  br i1 %wanted, label %join, label %spare
spare:
  br label %idle
join:
  %more = add i64 %seen.word, 1
  %swap = cmpxchg ptr %state.at, i64 %seen.word, i64 %more seq_cst acquire
  %other = extractvalue { i64, i1 } %swap, 0
  %in = extractvalue { i64, i1 } %swap, 1
  br i1 %in, label %share, label %try
share:
  call void @take(ptr %pool, i64 %slot)
  %was = atomicrmw sub ptr %state.at, i64 1 seq_cst
  %count = and i64 %was, 65535
  %last = icmp eq i64 %count, 1
  %waiting.at = @waiting@
  %waiting = load atomic i32, ptr %waiting.at seq_cst, align 4
  %awaited = icmp ne i32 %waiting, 0
  %tell = and i1 %last, %awaited
  br i1 %tell, label %signal, label %worked
signal:
  call i32 @pthread_mutex_lock(ptr %mutex)
  %done = @done@
  call i32 @pthread_cond_broadcast(ptr %done)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %worked
worked:
  br label %idle
end:
  ; The last access: whoever has stopped the pool may free it then.
  %alive.at = @alive@
  %a = atomicrmw sub ptr %alive.at, i32 1 seq_cst
  ret ptr null
}

; Makes the workers end.
define void @stop(ptr %pool) {
  %stop.at = @stop@
  store atomic i32 1, ptr %stop.at seq_cst, align 4
  %mutex = @mutex@
  call i32 @pthread_mutex_lock(ptr %mutex)
  %bell = @work@
  call i32 @pthread_cond_broadcast(ptr %bell)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}
"""
