"""Builds libtandem_comm.so from the tree around this folder and puts it into the wheel, with the two
libraries of the system that it needs and other machines may not have."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# The libraries of libtandem_comm.so that a machine with a C++ runtime does not have.
CARRIED = re.compile(r"lib(fmt|crypto)\.so")


def build_library(folder):
    """Leaves libtandem_comm.so in `folder`, made in build/wheel of the tree."""
    build = ROOT / "build" / "wheel"
    configure = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(build),
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DTANDEM_BUILD_TESTS=OFF",
        "-DCMAKE_INSTALL_RPATH=$ORIGIN",
        "-DCMAKE_SHARED_LINKER_FLAGS=-static-libstdc++ -static-libgcc",
    ]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    subprocess.run(configure, check=True)
    subprocess.run(["cmake", "--build", str(build), "-j", str(os.cpu_count()), "--target", "tandem_comm_c"], check=True)
    prefix = build / "installed"
    subprocess.run(["cmake", "--install", str(build), "--component", "comm", "--prefix", str(prefix)], check=True)
    library = next(prefix.rglob("libtandem_comm.so.*")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    shutil.copy(library, folder / "libtandem_comm.so")
    for line in subprocess.run(["ldd", str(library)], check=True, capture_output=True, text=True).stdout.splitlines():
        name, _, path = line.strip().partition(" => ")
        if CARRIED.match(name):
            shutil.copy(path.split()[0], folder / name)


def newest_glibc(folder):
    """The newest version of glibc whose symbols the libraries in `folder` use, as (2, 34)."""
    versions = [(2, 17)]
    for library in folder.iterdir():
        text = subprocess.run(["objdump", "-T", str(library)], check=True, capture_output=True, text=True).stdout
        versions += [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+\.\d+)", text)]
    return max(versions)


class BuildWithLibrary(build_py):
    def run(self):
        build_library(HERE / "src" / "tandem_torch" / "lib")
        super().run()


class WheelOfAnyPython(bdist_wheel):
    """ctypes: one wheel for every Python 3 and every torch."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        major, minor = newest_glibc(HERE / "src" / "tandem_torch" / "lib")
        return "py3", "none", f"manylinux_{major}_{minor}_{platform.machine()}"


class WithBinaries(Distribution):
    def has_ext_modules(self):
        return True


def version():
    """The version of tandem, which CMakeLists.txt has."""
    return re.search(r"^project\(.*VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]


setup(version=version(), cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfAnyPython}, distclass=WithBinaries)
