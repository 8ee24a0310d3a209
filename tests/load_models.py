"""Loads a checkpoint in a process of its own and measures the memory that it takes.

`python -m tests.load_models FOLDER` prints as JSON the bytes that the tensors of the model take,
and by how much the peak of the process's memory grew while they were loaded.
"""

import json
import sys

from nibblespec.optimized import load_model
from nibblespec.optimized.models.backends import operations_of
from transformers.models.llama import modeling_llama  # not while it is measured

from tests.peak_memory import peak_memory


def main() -> None:
    """Load, and print."""
    operations_of("torch")
    before = peak_memory()
    model = load_model(sys.argv[1])
    grown = peak_memory() - before
    assert isinstance(model, modeling_llama.LlamaForCausalLM)
    tensors = [*model.parameters(), *model.buffers()]
    held = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    print(json.dumps({"held": held, "grown": grown}))


if __name__ == "__main__":
    main()
