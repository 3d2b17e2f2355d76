"""The lives of the pool's workers, from start to end: LLVM IR, a part of `pool_code`.

A worker waits for a region that is open and wants it, joins it, and takes iterations.
"""

from __future__ import annotations

import signal

FAULTS = [getattr(signal, n, 0) for n in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")]
"""Signals that a worker may get, for they are its own fault; others are for a thread of Python."""
SETMASK = int(getattr(signal, "SIG_SETMASK", 2))
KEEP_FAULTS = "\n  ".join(f"call i32 @sigdelset(ptr %all, i32 {int(n)})" for n in FAULTS if n)

CODE = """
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
