"""The object cache: found again, damaged entries ignored, a limit kept."""

from __future__ import annotations

import errno
import os
import threading
import warnings
from pathlib import Path

import pytest
from diptych.codegen.cache import CacheSizeError, ObjectCache, default_cache, parse_size

FACTS = {"reads": [0, 1], "name": "mm"}


def entry(folder: Path, key: str) -> Path:
    return folder / f"{key}.o"


def test_what_is_put_is_found(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "new" / "folder", 1 << 20)
    assert cache.get("a") is None
    cache.put("a", FACTS, b"code\0\xff")
    assert cache.get("a") == (FACTS, b"code\0\xff")
    assert [p.name for p in cache.folder.iterdir()] == ["a.o"]


@pytest.mark.parametrize("damage", ["short", "flipped", "empty", "foreign"])
def test_damaged_entries_are_ignored_with_one_warning(tmp_path: Path, damage: str) -> None:
    cache = ObjectCache(tmp_path, 1 << 20)
    for key in ("a", "b"):
        cache.put(key, FACTS, b"code" * 10)
        raw = bytearray(entry(tmp_path, key).read_bytes())
        if damage == "flipped":
            raw[-3] ^= 1
        kept = {"short": raw[:-1], "flipped": raw, "empty": b"", "foreign": b"x" * 100}[damage]
        entry(tmp_path, key).write_bytes(kept)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert cache.get("a") is None
        assert cache.get("b") is None
    assert [str(w.message) for w in caught] == [
        f"object cache: {entry(tmp_path, 'a')} is damaged and ignored; it is compiled again"
    ]
    cache.put("a", FACTS, b"again")
    assert cache.get("a") == (FACTS, b"again")


def test_an_entry_under_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 1 << 20)
    cache.put("a", FACTS, b"code")
    entry(tmp_path, "a").rename(entry(tmp_path, "b"))
    with pytest.warns(RuntimeWarning, match=r"b\.o is damaged"):
        assert cache.get("b") is None


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_an_entry_is_ignored(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 1 << 20)
    os.mkfifo(entry(tmp_path, "a"))
    with pytest.warns(RuntimeWarning) as caught:
        assert cache.get("a") is None
    assert [str(w.message) for w in caught] == [
        f"object cache: {entry(tmp_path, 'a')} cannot be read (Neither a file nor a link to one) "
        "and is ignored"
    ]
    cache.put("a", FACTS, b"code")
    assert cache.get("a") == (FACTS, b"code")


def test_a_folder_that_is_relative_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", "kept here")
    cache = default_cache()
    monkeypatch.chdir("/")
    cache.put("a", FACTS, b"code")
    assert entry(tmp_path / "kept here", "a").exists()


def test_without_a_home_nothing_is_kept_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DIPTYCH_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setenv("DIPTYCH_CACHE_SIZE", "1.5M")  # a cache that no other test has met
    with pytest.warns(RuntimeWarning) as caught:
        for _ in range(2):
            default_cache().put("a", FACTS, b"code")
            assert default_cache().get("a") is None
    assert [str(w.message) for w in caught] == [
        "object cache: this user has no home directory, so what is compiled is not kept; "
        "DIPTYCH_CACHE_DIR may name a folder"
    ]


def test_the_least_recently_used_entries_go(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 3500)
    for n, key in enumerate("abc"):
        cache.put(key, {}, bytes(1000))
        os.utime(entry(tmp_path, key), (n, n))
    assert cache.get("a") is not None  # now used last
    cache.put("d", {}, bytes(1000))
    assert sorted(p.stem for p in tmp_path.iterdir()) == ["a", "c", "d"]
    cache.put("e", {}, bytes(4000))  # larger than the whole cache
    assert sorted(p.stem for p in tmp_path.iterdir()) == ["a", "c", "d"]


def test_a_limit_of_zero_keeps_nothing(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "none", 0)
    cache.put("a", FACTS, b"code")
    assert cache.get("a") is None and not cache.folder.exists()


@pytest.mark.parametrize("folder", ["file", "file/cache"])
def test_a_folder_that_cannot_be_made_is_no_error_and_one_warning(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = ObjectCache(tmp_path / folder, 1 << 20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in ("a", "b"):
            cache.put(key, FACTS, b"code")
            assert cache.get(key) is None
    assert [str(w.message) for w in caught] == [
        f"object cache: {cache.folder} cannot be written (Not a directory); what is compiled is "
        "not kept"
    ]


@pytest.mark.parametrize("failing", ["write", "replace"])
def test_a_disk_that_is_full_keeps_nothing_and_leaves_nothing(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ObjectCache(tmp_path, 1 << 20)
    cache.put("kept", FACTS, b"code")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "replace":
        monkeypatch.setattr(os, "replace", full)
    else:
        monkeypatch.setattr(os, "fdopen", full)
    with pytest.warns(RuntimeWarning, match="No space left on device") as caught:
        cache.put("a", FACTS, b"code")
        cache.put("b", FACTS, b"code")
    assert len(caught) == 1
    assert cache.get("kept") == (FACTS, b"code")
    assert [p.name for p in tmp_path.iterdir()] == ["kept.o"]


def test_an_entry_that_is_no_file_is_passed_over(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 1 << 20)
    (entry(tmp_path, "a") / "inside").mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="cannot be read") as caught:
        assert cache.get("a") is None
        cache.put("a", FACTS, b"code")
        assert cache.get("a") is None
    assert len(caught) == 1


def test_what_killed_writers_left_goes_after_a_while(tmp_path: Path) -> None:
    old, young = tmp_path / ".new-old", tmp_path / ".new-young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    ObjectCache(tmp_path, 1 << 20).put("a", FACTS, b"code")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".new-young", "a.o"]


def test_writers_at_once_publish_whole_entries(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 1 << 20)

    def write(n: int) -> None:
        for _ in range(20):
            cache.put("a", {"n": n}, bytes([n]) * 5000)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while any(writer.is_alive() for writer in writers):
            found = cache.get("a")
            assert found is None or found[1] == bytes([found[0]["n"]]) * 5000
    assert [p.name for p in tmp_path.iterdir()] == ["a.o"]


@pytest.mark.parametrize(
    "text, size",
    [("0", 0), ("1000", 1000), ("2K", 2048), ("1.5 MiB", 3 << 19), ("3gb", 3 << 30), ("7B", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_size_that_is_none() -> None:
    with pytest.raises(CacheSizeError) as caught:
        parse_size("lots")
    assert str(caught.value) == (
        "DIPTYCH_CACHE_SIZE is 'lots'; expected bytes, as in 500000000, 512MiB or 2G"
    )


def test_the_environment_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIPTYCH_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("DIPTYCH_CACHE_SIZE", "64K")
    assert (default_cache().folder, default_cache().limit) == (tmp_path / "here", 1 << 16)
    monkeypatch.delenv("DIPTYCH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache().folder == tmp_path / "xdg" / "diptych"
