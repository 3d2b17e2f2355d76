"""How a thread of the pool waits: LLVM IR, a part of `pool_code`.

It spins for a moment, then lets others run between looks; then its caller lets it sleep.
"""

BURST = 32  # pauses between two times that a waiting thread lets others run

CODE = """
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

; The pauses before a thread sleeps.
define internal i64 @patience(ptr %pool) alwaysinline {
  %eager.at = @eager@
  %eager = load i64, ptr %eager.at
  %patient.at = @patient@
  %patient = load i64, ptr %patient.at
  %sum = add i64 %eager, %patient
  ret i64 %sum
}
"""
