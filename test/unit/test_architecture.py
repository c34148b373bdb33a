"""The import arrows of the design: they point inwards, ROS stays in ros/, the vehicle path stays free of torch."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdrive_ros.cli import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "flashdrive_ros"

# What stands around the core: these rooms, and the modules that implement a command, in whichever room they live.
SHELL_ROOMS = {"ros", "evaluation", "training", "cli", "demo"}
COMMAND_MODULES = {command.module.removeprefix("flashdrive_ros.") for command in COMMANDS.values()}
ROS_PACKAGE = re.compile(r"^(rclpy|ament_\w+|rosidl\w*|launch|launch_ros|tf2_\w+|\w+_msgs|\w+_interfaces)$")
# The only files that may know torch. model/ holds torch modules except for what the vehicle also needs.
TORCH_ROOMS = {"training", "kernels", "quantization", "world"}
TORCH_FREE_MODEL_FILES = {
    "__init__",
    "action_space",
    "checkpoint_config",
    "checkpoint_drafter",
    "checkpoint_families",
    "checkpoint_fields",
    "checkpoint_files",
    "checkpoint_folder",
    "checkpoint_names",
    "checkpoint_tokens",
    "config",
    "images",
    "prompt",
    "tokens",
}
TORCH_ENGINE_FILES = {"checkpoint_engines", "torch_engines", "export"}
TORCH_PACKAGES = {"torch", "torchvision", "triton", "transformers", "onnx", "onnx_ir", "onnxscript", "safetensors"}
RUN_PACKAGES = {
    "PIL",
    "backports",
    "compression",
    "matplotlib",
    "numpy",
    "onnxruntime",
    "rosbags",
    "tokenizers",
    "yaml",
}
OPTIONAL_PACKAGES = {"av", "pycuda", "tensorrt", "tensorrt_rtx"}


def modules() -> list[str]:
    """Dotted names below the package: "model.vision", "planner", ..."""
    names = (path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".") for path in PACKAGE.rglob("*.py"))
    return sorted(name for name in names if name != "__init__")


def imports(module: str) -> Iterator[str]:
    """Every dotted name that a module imports anywhere in it, imports inside functions included."""
    tree = ast.parse((PACKAGE / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module: str) -> str:
    return module.split(".")[0]


def own_modules_imported(module: str) -> set[str]:
    prefix = "flashdrive_ros."
    return {name.removeprefix(prefix) for name in imports(module) if name.startswith(prefix)}


def is_shell(module: str) -> bool:
    return room(module) in SHELL_ROOMS or module in COMMAND_MODULES


def may_know_torch(module: str) -> bool:
    file = module.split(".")[-1]
    if room(module) == "model":
        return file not in TORCH_FREE_MODEL_FILES
    if room(module) == "engines":
        return file in TORCH_ENGINE_FILES
    return room(module) in TORCH_ROOMS


def test_the_walk_over_the_package_finds_its_modules() -> None:
    assert {"window", "plan", "cli", "engines.export", "ros.planner_node"} <= set(modules())


@pytest.mark.parametrize("module", [name for name in modules() if not is_shell(name)])
def test_core_knows_nothing_of_what_stands_around_it(module: str) -> None:
    assert not {name for name in own_modules_imported(module) if is_shell(name)}


@pytest.mark.parametrize("module", [name for name in modules() if room(name) == "ros"])
def test_node_never_imports_training_or_the_driving_world(module: str) -> None:
    assert not {name for name in own_modules_imported(module) if room(name) in {"training", "world"}}


@pytest.mark.parametrize("module", [name for name in modules() if room(name) != "ros"])
def test_ros_is_imported_in_its_own_folder_only(module: str) -> None:
    ros = {name for name in imports(module) if ROS_PACKAGE.match(room(name)) or name.startswith("flashdrive_ros.msg")}
    assert not ros


@pytest.mark.parametrize("module", [name for name in modules() if not may_know_torch(name)])
def test_torch_stays_in_the_files_that_define_train_and_export_models(module: str) -> None:
    assert not {room(name) for name in imports(module)} & TORCH_PACKAGES


@pytest.mark.parametrize("module", modules())
def test_every_package_imported_is_a_declared_dependency(module: str) -> None:
    known = RUN_PACKAGES | OPTIONAL_PACKAGES | set(sys.stdlib_module_names) | {"flashdrive_ros"}
    if may_know_torch(module):
        known |= TORCH_PACKAGES
    unknown = {room(name) for name in imports(module)} - known
    assert not {name for name in unknown if not (room(module) == "ros" and ROS_PACKAGE.match(name))}


def test_vehicle_path_leaves_torch_out_of_a_fresh_interpreter() -> None:
    intake = [f"flashdrive_ros.{name}" for name in modules() if room(name) == "intake"]
    vehicle = [
        "flashdrive_ros.planner",
        "flashdrive_ros.engines.onnx_engines",
        "flashdrive_ros.ros.planner_node",
        *[name.removesuffix(".__init__") for name in intake],
    ]
    program = (
        "import importlib, json, sys\n"
        f"for name in {vehicle!r}: importlib.import_module(name)\n"
        f"print(json.dumps(sorted({TORCH_PACKAGES!r} & set(sys.modules))))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == []
