"""The module that scripts for oneCCL's bindings import: registers the backend "ccl", which is tandem's.

`cwd` and `oneccl_bindings_for_pytorch_path` are this folder, whose env/setvars.sh may be sourced."""

import os

import tandem_torch

cwd = os.path.dirname(os.path.abspath(__file__))
oneccl_bindings_for_pytorch_path = cwd
__version__ = tandem_torch.__version__

tandem_torch.register("ccl")
