"""Names of a checkpoint's tensors and modules, in the model that transformers builds today.

Most are the same. Where an architecture has been reorganised since it was published, transformers
lists what to rename; this follows that list.
"""

from typing import Any

from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key


class Names:
    """Finds what a name of a checkpoint is in a model, which is still without packed modules."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401  # of any architecture
        self.modules: dict[str, nn.Module] = dict(model.named_modules())
        transforms = get_model_conversion_mapping(model, add_legacy=False)
        self._renamings = [one for one in transforms if isinstance(one, WeightRenaming)]
        self._prefix = model.base_model_prefix
        self._state = dict(model.state_dict(keep_vars=True))

    def tensor(self, name: str) -> str:
        """Return the name in the model of a tensor."""
        if name in self._state:
            return name
        renamed, _ = rename_source_key(name, self._renamings, [], self._prefix, self._state)
        return str(renamed)

    def module(self, name: str) -> str:
        """Return the path in the model of a module."""
        if name in self.modules:
            return name
        return self.tensor(f"{name}.weight").removesuffix(".weight")
