"""Machine code on disk is executed: what is damaged or others could have written is not used."""

from __future__ import annotations

import os

import pytest

from jaxsoa.kernels import disk_cache, settings

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
CODE = b"machine code" * 100


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(settings.CACHE, str(tmp_path / "kernels"))
    disk_cache.store("key", CODE)
    assert disk_cache.load("key") == CODE
    return tmp_path / "kernels"


def test_what_is_stored_is_private_and_whole(folder):
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == ["key"]  # no temporary file is left
    assert disk_cache.load("another") is None


@pytest.mark.parametrize("where", [0, 20, -1])
def test_a_damaged_file_is_not_used(folder, where):
    content = bytearray((folder / "key").read_bytes())
    content[where] ^= 1
    (folder / "key").write_bytes(content)
    assert disk_cache.load("key") is None
    (folder / "key").write_bytes(content[:30])
    assert disk_cache.load("key") is None
    disk_cache.store("key", CODE)
    assert disk_cache.load("key") == CODE


@pytest.mark.parametrize("mode", [0o702, 0o720])
def test_a_folder_or_file_that_others_may_write_is_not_used(folder, mode):
    (folder / "key").chmod(mode)
    assert disk_cache.load("key") is None
    (folder / "key").chmod(0o600)
    assert disk_cache.load("key") == CODE
    folder.chmod(mode)
    assert disk_cache.load("key") is None
    disk_cache.store("new", CODE)
    folder.chmod(0o700)
    assert disk_cache.load("new") is None and disk_cache.load("key") == CODE


def test_another_users_folder_is_not_used(folder, monkeypatch):
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert disk_cache.load("key") is None


def test_a_link_to_somewhere_else_is_not_used(folder, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv(settings.CACHE, str(tmp_path / "link"))
    assert disk_cache.load("key") is None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(settings.CACHE, str(tmp_path / "file" / "kernels"))
    disk_cache.store("key", CODE)
    assert disk_cache.load("key") is None
    monkeypatch.setenv(settings.CACHE, "0")
    disk_cache.store("key", CODE)
    assert disk_cache.load("key") is None
