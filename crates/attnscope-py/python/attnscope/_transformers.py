"""A live model of transformers, as a checkpoint in memory."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnscope import _core, _torch
from attnscope._errors import Error

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def from_transformers(
    model: PreTrainedModel,
    tokenizer: Any = None,
    *,
    heads: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
) -> _core.Model:
    """Opens a model of transformers that is in memory, as it is now: its weights are copied once, in their own type, and what is
    done to it later does not change the copy. Its config and its generation config are read from the object. Nothing of the weights
    is written to disk.

    ``tokenizer`` is what reads texts: its tokenizer, or for Whisper its processor. Without one, token ids can be given.

    >>> import attnscope as at
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4)
    >>> m = at.from_transformers(GPT2LMHeadModel(config))
    >>> m.family, m.trace(ids=[[1, 2, 3]])["logits"].shape
    ('gpt2', (1, 3, 50))
    """
    _check(model, tokenizer)
    name = type(model).__name__
    tensors: list[_torch.Held] = []
    # Tied weights are one tensor: it is copied once, under all of its names.
    copies: dict[tuple[Any, ...], bytes] = {}
    for weight, tensor in model.state_dict().items():
        if tensor.device.type == "meta":
            raise Error(
                f"{name}: {weight} is a meta tensor, which has no values",
                "load the model with its weights: from_pretrained without device_map offloading",
            )
        dtype = _torch.dtype(tensor)
        if dtype is None:
            raise Error(
                f"{name}: {weight} is of type {tensor.dtype}, which is not read",
                "load the model without quantisation, or in a floating-point type: dtype=torch.bfloat16",
            )
        if hasattr(tensor, "to_local"):
            raise Error(
                f"{name}: {weight} is spread over several devices or processes",
                "gather the model first, or open the checkpoint that it was saved to",
            )
        place = (tensor.data_ptr(), dtype, tuple(tensor.shape), tensor.stride())
        if place not in copies:
            copies[place] = _torch.contents(tensor)
        tensors.append((weight, dtype, list(tensor.shape), copies[place]))
    documents = [("config.json", _document(model.config.to_json_string(use_diff=False)))]
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        documents.append(("generation_config.json", _document(generation.to_json_string(use_diff=False))))
    if tokenizer is not None:
        documents += _tokenizer_files(tokenizer)
    return _core.open_held(name, tensors, documents, heads=heads, threads=threads, memory=memory)


def _check(model: Any, tokenizer: Any) -> None:
    if not hasattr(model, "state_dict") or not hasattr(getattr(model, "config", None), "to_json_string"):
        raise Error(
            f"expected a model of transformers, found {type(model).__name__}, which has no weights and config of its kind",
            "give a PreTrainedModel, as AutoModel.from_pretrained returns it; at.open reads a checkpoint on disk, and at.capture a module "
            "of your own",
        )
    if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
        raise Error(
            f"expected a tokenizer, found {type(tokenizer).__name__}",
            "give the object, as AutoTokenizer.from_pretrained(name) returns it, or leave it out and pass ids",
        )


def _document(text: str) -> bytes:
    """A config's JSON without what Python alone can write: infinities and NaN."""
    return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def _tokenizer_files(tokenizer: Any) -> list[tuple[str, bytes]]:
    """The files of a tokenizer. It alone knows what it consists of, and can only write it to a folder."""
    with tempfile.TemporaryDirectory(prefix="attnscope-") as folder:
        tokenizer.save_pretrained(folder)
        files = sorted(path for path in Path(folder).iterdir() if path.is_file())
        return [(path.name, path.read_bytes()) for path in files if path.name != "config.json"]
