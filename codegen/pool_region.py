"""How a region of the pool is launched: LLVM IR, a part of `pool_code`.

Its iterations are cut into shares, one a thread; a dynamic loop has one share for all. The launcher
works too, closes the region when no iteration is left, and then waits only for those who have
joined: a worker that slept through it is not missed. A pool that is busy makes its caller do the
work alone, so nested and concurrent regions cannot deadlock.
"""

CHUNKS = 8  # in a share
DYNAMIC_CHUNKS = 64  # for each thread of a dynamic loop

CODE = """
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
"""
