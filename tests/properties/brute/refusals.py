"""What a primitive may refuse although its nest would be right, and why that is so.

Every line says that a request has no meaning or is not offered, whatever the order of instances.
A refusal for the sake of order or of values is never listed: of those, only the ones that say
"could not prove" may be wrong.
"""

from __future__ import annotations

import re

REASONS = {
    r"is (serial|parallel|unroll|vector|block\S*|thread\S*) already$":
        "a loop is marked once",
    r"(before marking loops|before it is marked)$":
        "loops are brought into shape before they are marked, so that marks stay where they are",
    r"of the same nest is (parallel|a vector loop) already":
        "code generation has one level of threads and one of lanes",
    r"use at most \d+ lanes":
        "more lanes than a loop made by a factor has iterations are a mistake",
    r"is not around loop":
        "a skew names an inner loop and one around it",
    r"are not nested in each other":
        "a reorder names loops of one nest",
    r"there is (already a|no) ":
        "names are unique, and known",
    r"which is no more what it was at compute_at":
        "each element is to be computed once, and loops of another shape repeat it",
    r"is named twice$":
        "a loop has one place",
    r"is computed under loop \S+ already":
        "it is there; compute_at moves what is outside",
    r"also reads .*, outside loop":
        "compute_at computes what the iterations of a loop need, and others need more",
    r"is a recurrence.*, whose elements need each other":
        "what one iteration needs of a recurrence is no region of single elements",
    r"is returned, so (all of it is needed|it is stored)":
        "the whole output is asked for",
    r"exceed the budget of|over the budget of":
        "code size, not meaning",
    r"asks whether \S+ equals a value":
        "floating-point bits, of which tokens know nothing",
    r"is a reduction.*, which has no one expression":
        "an expression holds no loop",
    r"are chosen by data when it is written":
        "which elements an instance writes is not known, so a tile of them neither",
    r"is not touched under loop|nothing under loop \S+ reads":
        "nothing to copy or to move",
    r"under loop \S+ it is held by":
        "which of several copies is meant",
    r"while .* before staging|(rfactor|inline) before (staging|compute_at)":
        "stages of the kernel are rewritten before copies of their values are made",
    r"of the same name do not match|do not match; loops of one name are joined":
        "compute_with joins loops by name",
    r"does not follow that of":
        "compute_with joins nests of one sequence, in their order",
    r"loop \S+ is \S+ and loop \S+ is \S+$":
        "compute_with joins loops of one kind",
    r"is not all that loop \S+ contains":
        "fuse has no place for what lies between the loops",
    r"no loop of a reduction":
        "rfactor factors a reduction",
    r"has no constant extent":
        "unrolled code is finite",
    r"is computed in parts":
        "inline reads one equation's value, though but one part may have elements",
}  # fmt: skip


def is_structural(message: str) -> bool:
    """Does a refusal say that the request has no meaning?"""
    return any(re.search(pattern, message) for pattern in REASONS) or bool(
        INTO_A_COPY.match(message)
    )


INTO_A_COPY = re.compile(r"compute_at\(\S+, \S+\.(pack|load|store)\d*\.\S+\): ")
"""Computing a tensor in the loops of its own copy is refused where an element would be computed
in several iterations: dependences do not know which of them a reader of the copy waits for."""
