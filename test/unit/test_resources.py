"""Files beside the code are found from a checkout and from the folder layouts that pip and colcon make."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashdrive_ros import resources
from flashdrive_ros.errors import ModelFileError


def installed_in(prefix: Path, python_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let resources.py believe that it was installed below `prefix`."""
    monkeypatch.setattr(resources, "__file__", str(prefix / python_folder / "flashdrive_ros" / "resources.py"))


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path.resolve()


def test_checkout_uses_its_own_file_even_if_another_is_installed_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "share/flashdrive_ros/config/nano.yaml")
    make(tmp_path / "checkout/package.xml")
    own = make(tmp_path / "checkout/config/nano.yaml")
    installed_in(tmp_path / "checkout", "", monkeypatch)
    assert resources.resource_path("config/nano.yaml") == own


@pytest.mark.parametrize(
    "python_folder",
    ["lib/python3.11/site-packages", "local/lib/python3.12/dist-packages", "lib64/python3.13/site-packages"],
)
def test_installation_uses_the_share_folder_of_its_prefix(
    python_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = make(tmp_path / "prefix/share/flashdrive_ros/resource/models/nano/manifest.json")
    installed_in(tmp_path / "prefix", python_folder, monkeypatch)
    assert resources.resource_path("resource/models/nano/manifest.json") == shared
    assert resources.resource_path("resource/models/nano") == shared.parent


def test_environment_inside_a_checkout_does_not_read_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "checkout/package.xml")
    make(tmp_path / "checkout/config/nano.yaml")
    shared = make(tmp_path / "checkout/.venv/share/flashdrive_ros/config/nano.yaml")
    installed_in(tmp_path / "checkout/.venv", "lib/python3.11/site-packages", monkeypatch)
    assert resources.resource_path("config/nano.yaml") == shared


def test_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_in(tmp_path, "lib/python3.11/site-packages", monkeypatch)
    with pytest.raises(ModelFileError, match=r"resource/models/huge"):
        resources.resource_path("resource/models/huge")
