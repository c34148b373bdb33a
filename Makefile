# Everything runs in .venv, made from the pins in constraints.txt. PYTHON=python3.12 make ... chooses the interpreter.
PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
COLCON := $(CURDIR)/.colcon
PIP_INSTALL = -m pip install -qq --disable-pip-version-check --no-input -c constraints.txt
BUILD_INPUTS := constraints.txt pyproject.toml package.xml CMakeLists.txt $(wildcard cmake/* msg/*.msg scripts/*)

# The ROS wheels never set AMENT_PREFIX_PATH. LOCALHOST: nothing of a test or demo leaves this machine.
export AMENT_PREFIX_PATH := $(VENV)
export ROS_AUTOMATIC_DISCOVERY_RANGE := LOCALHOST
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
# Left over from another environment these make ROS load the wrong libraries.
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE LD_LIBRARY_PATH PYTHONPATH CMAKE_PREFIX_PATH

.PHONY: help demo test lint bench colcon clean

help:
	@echo "make demo    drive the shipped recording through the node; writes demo/plan.png"
	@echo "make test    lint, build with colcon, run the tests"
	@echo "make lint    ruff and mypy"
	@echo "make bench   time of a plan, stage by stage"
	@echo "make colcon  build as in a ROS workspace, with the wheels as underlay"
	@echo "make clean   remove all that the above made"

demo: $(VENV)/run.stamp
	@$(BIN)/flashdrive demo

bench: $(VENV)/run.stamp
	@$(BIN)/flashdrive bench pipeline --model nano

test: lint colcon
	@$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/test.stamp
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# A workspace of its own: an environment that holds pip's copy of this package would hide the one that colcon builds.
colcon: $(COLCON)/built.stamp

clean:
	rm -rf .venv .colcon build install log demo .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find flashdrive_ros test launch -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/run.stamp: $(BUILD_INPUTS)
	@scripts/check_machine $(PYTHON)
	@echo "Installing what the node needs into .venv (once, about a minute) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) pip
	@$(BIN)/python $(PIP_INSTALL) --group build
	@$(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable '.[ros-wheels]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp
	@echo "Installing the test tools and torch into .venv (once) ..."
	@$(BIN)/python $(PIP_INSTALL) --group test
	@touch $@

$(COLCON)/venv.stamp: constraints.txt pyproject.toml
	@scripts/check_machine $(PYTHON)
	@echo "Installing ROS 2, colcon and what the node needs into .colcon/venv (once, about half a minute) ..."
	@rm -rf $(COLCON)/build
	@test -x $(COLCON)/venv/bin/python || $(PYTHON) -m venv $(COLCON)/venv
	@$(COLCON)/venv/bin/python $(PIP_INSTALL) pip
	@$(COLCON)/venv/bin/python $(PIP_INSTALL) --group build --group colcon
	@$(COLCON)/venv/bin/python $(PIP_INSTALL) --no-build-isolation --only-deps '.[ros-wheels]'
	@touch $@

$(COLCON)/built.stamp: $(COLCON)/venv.stamp $(BUILD_INPUTS) $(shell find flashdrive_ros config launch resource -type f -not -name '*.pyc')
	@scripts/colcon_build $(COLCON)
	@touch $@
