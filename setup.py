"""Kept for tools that look for it: pip builds with scikit-build-core (pyproject.toml), colcon with CMake."""

from setuptools import setup

setup()
