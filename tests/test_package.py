"""The hardware profiles travel with the package: from a checkout, an editable install, and a built wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from latency_model.specs.hardware import hardware_names

ROOT = Path(__file__).parent.parent


# Writes where the package came from, then each profile's name; a profile that does not load is a traceback.
LOAD_ALL = """
import latency_model as lm
from latency_model.specs.hardware import hardware_names
names = [lm.load_hardware(name).name for name in hardware_names()]
print(lm.__file__, *names, sep="\\n")
"""


def build(hook: str, folder: Path) -> Path:
    """Unpack into ``folder`` what one of the build backend's hooks makes of this checkout."""
    code = f"import sys; from hatchling.build import {hook}; {hook}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    unpacked = folder / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    return unpacked


@pytest.fixture(params=["checkout", "editable", "wheel"])
def installation(request, tmp_path):
    """The folders on ``sys.path`` and the one the package must come from, for each way to install it."""
    if request.param == "checkout":
        return [ROOT], ROOT
    if request.param == "editable":
        site = build("build_editable", tmp_path)
        (link,) = site.glob("*.pth")
        assert not (site / "latency_model").exists(), "an editable install must not copy what it points at"
        return [site, Path(link.read_text().strip())], ROOT
    site = build("build_wheel", tmp_path)
    return [site], site


def test_every_hardware_profile_loads_from_every_kind_of_installation(installation, tmp_path):
    path, origin = installation
    process = subprocess.run(
        [sys.executable, "-c", LOAD_ALL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    package, *names = process.stdout.splitlines()
    assert Path(package).parent.parent == origin
    assert names == list(hardware_names())
    assert "h100-sxm" in names


def files_under(folder: Path, root: Path | None = None) -> set[str]:
    """Paths of a folder's files, caches left out, relative to ``root``."""
    return {
        path.relative_to(root or folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_its_profiles_its_types_and_its_licence(tmp_path):
    site = build("build_wheel", tmp_path)
    packed = files_under(site)
    profiles = {f"latency_model/{name}" for name in files_under(ROOT / "hardware_profiles", ROOT)}
    assert files_under(ROOT / "latency_model", ROOT) | profiles <= packed
    assert "latency_model/py.typed" in packed
    assert any(name.endswith("licenses/LICENSE") for name in packed)
    assert not any(name.startswith(("tests/", "docs/")) for name in packed)
