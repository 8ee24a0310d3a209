"""Decides whether Triton interprets kernels, before anything imports triton.

Triton looks at TRITON_INTERPRET when it is imported, and transformers and torch.compile import it.
This sets the variable, unless it is set already: kernels are compiled where there is a CUDA device,
and interpreted on the CPU elsewhere.
"""

import os

import torch

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
