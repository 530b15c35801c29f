"""What a user would save of a run: the output of every module, by the module's path, in the order of the calls."""

from contextlib import contextmanager

import torch


@contextmanager
def recording(model, attention_weights=False):
    """Every module's output while the block runs; with `attention_weights` also the second part of attentions' outputs."""
    kept, handles = {}, []

    def keep(path):
        def hook(_module, _inputs, output):
            parts = output if isinstance(output, tuple) else (output,)
            if isinstance(parts[0], torch.Tensor):
                kept.pop(path, None)  # A module that is called again stands where it was called last.
                kept[path] = parts[0].detach().clone()
            if attention_weights and len(parts) == 2 and isinstance(parts[1], torch.Tensor):
                kept[f"{path}.output.1"] = parts[1].detach().clone()

        return hook

    for path, module in model.named_modules(remove_duplicate=False):
        if path:
            handles.append(module.register_forward_hook(keep(path)))
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()
