"""The four models: their weights as files that attnscope opens, their inputs, and torch modules that run them."""

import copy
import json
import os
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors import safe_open
from transformers.models.bart import modeling_bart
from transformers.models.marian import modeling_marian
from transformers.models.t5 import modeling_t5

import attention
import names
import whisper_port

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
for modeling in (modeling_bart, modeling_marian, modeling_t5):
    attention.redirect(modeling)

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("ATTNSCOPE_SHARED", HERE.parents[2] / "shared"))


class Absent(Exception):
    """A model that this machine does not have."""


@dataclass
class Subject:
    """A model, what it reads, and our trace of it."""

    name: str
    scheme: list
    layers: tuple  # of encoder and decoder
    weights: Path
    load: object  # attn_implementation -> module in f32
    source: list  # arguments of `attnscope trace`
    post_norm: bool = False
    positions: bool = True
    trace: Path = None
    inputs: dict = field(default_factory=dict)
    pristine: dict = field(default_factory=dict)

    def fresh(self, implementation="eager"):
        """A module of its own, to break."""
        if implementation not in self.pristine:
            self.pristine[implementation] = self.load(implementation)
        return copy.deepcopy(self.pristine[implementation])

    def make_trace(self, binary, folder, more=()):
        """Our trace of the input, and the same input for torch."""
        self.trace = folder / f"{self.name}-trace"
        arguments = [binary, "trace", self.weights, *self.source, "--save", self.trace, "-q", *more]
        subprocess.run(list(map(str, arguments)), check=True, stdout=subprocess.DEVNULL)
        self.inputs = read_inputs(self.trace)


def read_inputs(trace):
    tensors = safe_open(trace / "trace.safetensors", "pt")
    tokens = json.loads((trace / "trace.json").read_text())["tokens"]
    read = {"tgt.ids": tensors.get_tensor("tgt.ids")}
    if tokens["source"] is None:
        read["audio.mel"] = tensors.get_tensor("audio.mel")
    else:
        read["src.ids"] = tensors.get_tensor("src.ids")
        read["src.visible"] = torch.tensor([[0 if t["padding"] else 1 for t in row] for row in tokens["source"]])
    return read


def forward(model, inputs):
    """Logits, from the same input as our trace."""
    weight = next(model.parameters())
    inputs = {name: value.to(weight.device) for name, value in inputs.items()}
    target = inputs["tgt.ids"]
    if "audio.mel" in inputs:
        return model(inputs["audio.mel"].to(weight.dtype), target)
    output = model(
        input_ids=inputs["src.ids"],
        attention_mask=inputs["src.visible"],
        decoder_input_ids=target,
        use_cache=False,
    )
    return output.logits


def randomise(model, seed):
    """Weights that keep activations near 1, biases and gains that matter; a stream for each name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            random = np.random.default_rng([seed, zlib.crc32(name.encode())])
            values = random.standard_normal(tuple(parameter.shape))
            if "norm" in name and name.endswith("weight"):
                values = 1 + 0.2 * values
            elif name.endswith("bias"):
                values = 0.1 * values
            elif "relative_attention_bias" not in name and "embed" not in name and "shared" not in name:
                values = values * 1.2 / parameter.shape[-1] ** 0.5
            if name.endswith("Attention.q.weight"):
                values = (
                    values / 8
                )  # T5 has no scale of its own: it lies in the queries, as T5's initialisation has it.
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return model


def ids(seed, lengths, low, high, start=None, end=None):
    """Rows of random ids, as the command line takes them."""
    random = np.random.default_rng(seed)
    listed = lambda x: [] if x is None else [x]
    rows = [listed(start) + random.integers(low, high, n).tolist() + listed(end) for n in lengths]
    return ";".join(",".join(map(str, row)) for row in rows)


def saved(model, folder):
    if not (folder / "model.safetensors").exists():
        model().save_pretrained(folder)
    return folder


def pretrained(kind, folder):
    def load(implementation):
        model = kind.from_pretrained(folder, attn_implementation=implementation, dtype=torch.float32)
        return model.eval()

    return load


def whisper(_work):
    file, audio = SHARED / "models/whisper-tiny.en/tiny.en.pt", SHARED / "data/audio/jfk.wav"
    if not (file.exists() and audio.exists()):
        raise Absent(f"skipped: {file} or {audio} not found")
    load = lambda implementation: whisper_port.load(file, sdpa=implementation == "sdpa")
    return Subject("Whisper tiny.en", names.OPENAI, (4, 4), file, load, ["--audio", audio])


def marian(_work):
    folder = SHARED / "models/marian-base-en-de"
    if not folder.exists():
        raise Absent(f"skipped: {folder} not found")
    load = pretrained(transformers.MarianMTModel, folder)
    text = ["A man in a blue shirt is standing on a ladder cleaning a window.", "Two dogs run."]
    source = [word for line in text for word in ("--src", line)]
    return Subject("marian-base", names.BART, (3, 3), folder, load, source, post_norm=True)


def t5(work):
    config = transformers.T5Config(
        vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0
    )
    make = lambda: randomise(transformers.T5ForConditionalGeneration(config), 1)
    folder = saved(make, work / "t5-small")
    source = ["--src-ids", ids(3, (39, 24), 3, 32000, end=1), "--tgt-ids", ids(4, (25, 25), 3, 32000, start=0)]
    load = pretrained(transformers.T5ForConditionalGeneration, folder)
    return Subject("T5-small shape", names.T5, (6, 6), folder, load, source, positions=False)


def bart(work):
    sizes = {
        f"{stack}_{key}": n
        for stack in ("encoder", "decoder")
        for key, n in (("layers", 2), ("ffn_dim", 3072), ("attention_heads", 12))
    }
    config = transformers.BartConfig(d_model=768, **sizes)
    make = lambda: randomise(transformers.BartForConditionalGeneration(config), 2)
    folder = saved(make, work / "bart-base")
    source = ["--src-ids", ids(6, (39, 24), 4, 50000, end=2), "--tgt-ids", ids(7, (25, 25), 4, 50000, start=2)]
    load = pretrained(transformers.BartForConditionalGeneration, folder)
    return Subject("BART-base width", names.BART, (2, 2), folder, load, source, post_norm=True)


MODELS = {"whisper": whisper, "t5": t5, "bart": bart, "marian": marian}
