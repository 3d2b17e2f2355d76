"""The fence around isl: names, quotas, three answers, witnesses."""

from __future__ import annotations

import os
import threading
import time

import pytest
from diptych.algo import isl
from diptych.algo.errors import InternalError
from diptych.algo.isl import Answer


def hard():
    pairs = isl.parse_set(
        "[N, M] -> { [i, j, k, l] : exists e, f : 3i + 5j = 7e and 2k + 9l = 11f and "
        "0 <= i < N and i <= j < M and 0 <= k < j and k <= l <= i + M }"
    )
    return lambda: pairs.lexmin().is_subset(pairs)


def test_three_answers():
    small, large = isl.make_set("i", ["0 <= i < N"], ["N"]), isl.make_set("i", ["0 <= i"])
    assert isl.is_subset(small, large) is Answer.YES
    assert isl.is_subset(large, small) is Answer.NO
    assert isl.ask(hard(), 1000) is Answer.UNKNOWN
    assert isl.ask(hard()) is Answer.YES


def test_a_spent_quota_leaves_nothing_behind():
    with pytest.raises(isl.Exhausted) as err:
        isl.call(hard(), 100)
    assert str(err.value) == "isl could not answer within 100 operations"
    assert isl.ask(hard()) is Answer.YES


def test_a_quota_inside_a_quota_is_the_outer_one():
    with pytest.raises(isl.Exhausted), isl.quota(100):
        isl.call(hard(), 1_000_000)
    with isl.quota(1_000_000):
        assert isl.ask(hard(), 100) is Answer.YES


def test_parsing_is_outside_the_quota():
    with isl.quota(10):
        items = isl.make_set("ij", ["0 <= i < N", "i <= j < 2*i + N", "(i + j) mod 3 = 0"], ["N"])
    assert isl.is_empty(items) is Answer.NO


def test_text_that_is_not_isl_is_our_bug():
    with pytest.raises(InternalError) as err:
        isl.parse_set("{ [i] : i*i < 3 }")
    assert str(err.value) == "isl cannot read: { [i] : i*i < 3 }"


def test_a_failure_that_is_no_exhaustion_is_our_bug():
    a, b = isl.make_set("i"), isl.make_set("ij")
    with pytest.raises(InternalError) as err, isl.quota():
        a.intersect(b)
    assert str(err.value).startswith(
        "isl failed: call to isl_set_intersect failed: spaces don't match"
    )


@pytest.mark.parametrize("word", ["mod", "MAX", "Rat", "exists", "é", "x__a", "_x3f_", "a.b", "i"])
def test_every_name_goes_through_isl_and_back(word):
    inside = isl.ident(word)
    items = isl.make_set([word], [f"{inside} = 7"], ["N" + word])
    assert isl.name(inside) == word
    assert isl.first_point(items)[word] == 7
    assert isl.parse_set(str(items)).is_equal(items)


def test_idents_are_distinct():
    words = ["mod", "x__mod", "x__x__mod", "é", "_xe9_", "x___xe9_", "é_", "max", "MAX"]
    assert len({isl.ident(word) for word in words}) == len(words)


def test_the_first_point_is_the_smallest_size_first():
    items = isl.make_set("ij", ["0 <= i < N", "i < j < N"], ["N"])
    assert isl.first_point(items) == {"N": 2, "i": 0, "j": 1}
    assert isl.first_point(isl.make_set("i", ["0 <= i < N", "N < 0"], ["N"])) is None
    below = isl.first_point(isl.make_set("i", ["i < 3"]))
    assert below is not None and below["i"] < 3


def test_maps_and_names():
    write = isl.make_map(["i", "k"], ["i", "0"], ["0 <= k < 4"], ["N"], ("S", "C"))
    assert str(write) == "[N] -> { S[i, k] -> C[i, 0] : 0 <= k <= 3 }"
    pair = isl.named(isl.make_set(["i", "j"], ["0 <= i < j"]), ["k'", "and"])
    assert isl.dim_names(pair, isl.raw.dim_type.set) == ["k'", "and"]


def test_threads_take_turns():
    answers: list[Answer] = []

    def work() -> None:
        for n in range(20):
            answers.append(isl.ask(hard(), 100 if n % 2 else 1_000_000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(Answer.YES) == answers.count(Answer.UNKNOWN) == 40


def test_exhaustion_is_quick():
    start = time.perf_counter()
    for _ in range(20):
        isl.ask(hard(), 1000)
    assert time.perf_counter() - start < 2


def test_no_child_is_born_while_another_thread_asks():
    """Half of a question would be in isl's own memory for ever."""
    asking, done = threading.Event(), []

    def ask():
        with isl.quota():
            asking.set()
            time.sleep(0.1)
            done.append(isl.make_set("i", ["0 <= i < 3"]).is_empty())

    thread = threading.Thread(target=ask)
    thread.start()
    asking.wait()
    child = os.fork()
    if child == 0:
        whole = done == [False] and isl.is_empty(isl.make_set("i", ["i = 1"])) is Answer.NO
        os._exit(0 if whole else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
