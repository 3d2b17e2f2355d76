"""The thread pool's compiled half, as LLVM IR: launching a region, and what workers do.

A region is one parallel loop. Its iterations are handed out in chunks by an atomic counter; the
thread that launches it takes part as slot 0. `state` holds, in one word, the region's number
(upper 32 bits), whether it is open for workers to join (bit 16), and how many have joined (lower
16 bits). The launcher closes the region when no iteration is left, and then waits only for those
who have joined: a worker that slept through it is not missed. Idle workers spin for a moment and
then sleep on a condition variable. A pool that is busy makes its caller do the work alone, so
nested and concurrent regions cannot deadlock.
"""

from __future__ import annotations

PAGE = 512  # bytes of a pool's memory; the layout is %Pool below
OPEN = 1 << 16

# run, body, closure, n, chunk, spins | next | state | busy, stop, sleepers, limit, waiting |
# mutex, work, done: each with room for any system's pthread types.
_LAYOUT = (
    "%Pool = type { ptr, ptr, ptr, i64, i64, i64, [16 x i8], i64, [56 x i8], i64, [56 x i8], "
    "i32, i32, i32, i32, i32, [44 x i8], [64 x i8], [64 x i8], [64 x i8] }"
)
FIELDS = {
    "run": 0, "body": 1, "closure": 2, "n": 3, "chunk": 4, "spins": 5, "next": 7, "state": 9,
    "busy": 11, "stop": 12, "sleepers": 13, "limit": 14, "waiting": 15,
    "mutex": 17, "work": 18, "done": 19,
}  # fmt: skip
OFFSETS = {"run": 0, "spins": 40, "state": 128, "busy": 192, "stop": 196, "limit": 204}


def pool_llvm(triple: str) -> str:
    """The module: `run`, `worker`, `setup`, `stop`."""
    pause = ""
    if triple.startswith(("x86_64", "i686", "i386")):
        pause = 'call void asm sideeffect "pause", ""()'
    elif triple.startswith(("aarch64", "arm64")):
        pause = 'call void asm sideeffect "yield", ""()'
    text = _CODE.replace("PAUSE", pause).replace("OPEN", str(OPEN))
    for name, number in FIELDS.items():
        text = text.replace(f"@{name}@", f"getelementptr %Pool, ptr %pool, i32 0, i32 {number}")
    return f'target triple = "{triple}"\n{_LAYOUT}\n{text}'


_CODE = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

; Prepares zeroed memory.
define void @setup(ptr %pool) {
  %run = @run@
  store ptr @run, ptr %run
  %mutex = @mutex@
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %work = @work@
  call i32 @pthread_cond_init(ptr %work, ptr null)
  %done = @done@
  call i32 @pthread_cond_init(ptr %done, ptr null)
  ret void
}

; Takes chunks until there are no more.
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
  %next.at = @next@
  br label %again
again:
  %begin = atomicrmw add ptr %next.at, i64 %chunk monotonic
  %some = icmp slt i64 %begin, %n
  br i1 %some, label %go, label %end
go:
  %full = add i64 %begin, %chunk
  %short = icmp slt i64 %full, %n
  %stop = select i1 %short, i64 %full, i64 %n
  call void %body(ptr %closure, i64 %begin, i64 %stop, i64 %slot)
  br label %again
end:
  ret void
}

; Runs iterations 0 .. n-1 of body; n is positive.
define void @run(ptr %pool, ptr %body, ptr %closure, i64 %n) {
entry:
  %limit.at = @limit@
  %limit = load atomic i32, ptr %limit.at monotonic, align 4
  %none = icmp eq i32 %limit, 0
  %one = icmp eq i64 %n, 1
  %serial = or i1 %none, %one
  br i1 %serial, label %alone, label %claim
claim:
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
  %workers = zext i32 %limit to i64
  %threads = add i64 %workers, 1
  %pieces = shl i64 %threads, 4
  %up = add i64 %n, %pieces
  %up1 = sub i64 %up, 1
  %chunk = udiv i64 %up1, %pieces
  %chunk.at = @chunk@
  store i64 %chunk, ptr %chunk.at
  %next.at = @next@
  store atomic i64 0, ptr %next.at monotonic, align 8
  %state.at = @state@
  %old = load atomic i64, ptr %state.at monotonic, align 8
  %number = lshr i64 %old, 32
  %number1 = add i64 %number, 1
  %high = shl i64 %number1, 32
  %open = or i64 %high, OPEN
  store atomic i64 %open, ptr %state.at seq_cst, align 8
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
  %spins.at = @spins@
  %spins = load i64, ptr %spins.at
  br label %spin
spin:
  %left = phi i64 [ %spins, %work ], [ %left1, %pause ]
  %now = load atomic i64, ptr %state.at acquire, align 8
  %joined = and i64 %now, 65535
  %finished = icmp eq i64 %joined, 0
  br i1 %finished, label %end, label %patience
patience:
  %patient = icmp sgt i64 %left, 0
  br i1 %patient, label %pause, label %sleep
pause:
  PAUSE
  %left1 = sub i64 %left, 1
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

; The life of worker number `index`, until the pool stops.
define void @worker(ptr %pool, i64 %index) {
entry:
  %state.at = @state@
  %stop.at = @stop@
  %mutex = @mutex@
  %bell = @work@
  %slot = add i64 %index, 1
  %spins.at = @spins@
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %number, %spare ], [ %number, %late ], [ %number, %worked ]
  %spins = load i64, ptr %spins.at
  br label %spin
spin:
  %left = phi i64 [ %spins, %idle ], [ %left1, %pause ]
  %stopped = load atomic i32, ptr %stop.at monotonic, align 4
  %quit = icmp ne i32 %stopped, 0
  br i1 %quit, label %end, label %look
look:
  %now = load atomic i64, ptr %state.at acquire, align 8
  %now.number = lshr i64 %now, 32
  %news = icmp ne i64 %now.number, %seen
  br i1 %news, label %go, label %patience
patience:
  %patient = icmp sgt i64 %left, 0
  br i1 %patient, label %pause, label %sleep
pause:
  PAUSE
  %left1 = sub i64 %left, 1
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
  %limit.at = @limit@
  %limit = load atomic i32, ptr %limit.at monotonic, align 4
  %limit64 = zext i32 %limit to i64
  %needed = icmp slt i64 %index, %limit64
  br i1 %needed, label %try, label %spare
spare:
  br label %idle
try:
  %seen.word = phi i64 [ %word, %go ], [ %other, %join ]
  %flag = and i64 %seen.word, OPEN
  %is.open = icmp ne i64 %flag, 0
  %its.number = lshr i64 %seen.word, 32
  %still = icmp eq i64 %its.number, %number
  %may = and i1 %is.open, %still
  br i1 %may, label %join, label %late
late:
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
  ret void
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
