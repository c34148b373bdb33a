"""flashdrive_ros: a streaming planner for reasoning driving models.

The source folder and the installed package (which also holds the generated `flashdrive_ros.msg`)
are one package: whichever is found first, the other's modules are found too.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
