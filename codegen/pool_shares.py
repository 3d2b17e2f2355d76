"""How a thread of the pool takes iterations of a region: LLVM IR, a part of `pool_code`.

Each thread takes its own share in chunks, then what is left of the others': so a thread meets the
same iterations in region after region, and none waits for one that came late.
"""

SHARES = 512  # at most; further threads begin with the share of another

CODE = """
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
"""
