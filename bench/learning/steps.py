"""A training step of attnscope beside torch eager's: each in a process of its own, a step each in turns."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / ".models"
# Shape, rows, length.
SHAPES = {"encoder-decoder": (64, 16), "lstm": (32, 500), "conv": (32, 500)}
SMOOTHING, CLASSES = 0.1, 2


# What runs in torch's process. Imports are inside: they take seconds.


def ids(rows, length, vocabulary):
    """The same as `learning_pace` gives to attnscope."""
    import torch

    n = torch.arange(rows * length).reshape(rows, length)
    return (n * 7919 + 13) % (vocabulary - 4) + 4


def encoder_decoder():
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=4000, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, max_position_embeddings=64,
            activation_function="relu", dropout=0.1, attention_dropout=0.0, pad_token_id=0, eos_token_id=1,
            decoder_start_token_id=2, forced_eos_token_id=1, attn_implementation="eager",
        )
    )


def lstm():
    from torch import nn

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20000, 128)
            self.lstm = nn.LSTM(128, 64, num_layers=2, bidirectional=True, batch_first=True)
            self.out = nn.Linear(128, CLASSES)

        def forward(self, x):
            import torch

            _, (h, _) = self.lstm(self.embed(x))
            return self.out(torch.cat([h[-2], h[-1]], -1))

        def named(self):
            yield from named_embedding(self)
            for layer in (0, 1):
                for direction, suffix in (("forward", ""), ("backward", "_reverse")):
                    path = f"classifier.{layer}.lstm.{direction}"
                    for part, own in (("input", "ih"), ("states", "hh")):
                        for kind in ("weight", "bias"):
                            yield f"{path}.{part}.{kind}", getattr(self.lstm, f"{kind}_{own}_l{layer}{suffix}")

        blocks = [{"kind": "lstm", "hidden": 64, "bidirectional": True}] * 2 + [{"kind": "last-state"}]

    return Lstm()


def conv():
    from torch import nn

    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20000, 128)
            self.first = nn.Conv1d(128, 128, 7, stride=3)
            self.second = nn.Conv1d(128, 128, 7, stride=3)
            self.hidden = nn.Linear(128, 128)
            self.out = nn.Linear(128, CLASSES)

        def forward(self, x):
            x = self.embed(x).permute(0, 2, 1)
            x = self.second(self.first(x).relu()).relu()
            return self.out(self.hidden(x.max(-1).values).relu())

        def named(self):
            yield from named_embedding(self)
            for path, module in (("classifier.0.conv", self.first), ("classifier.2.conv", self.second), ("classifier.5.linear", self.hidden)):
                yield f"{path}.weight", module.weight
                yield f"{path}.bias", module.bias

        relu = {"kind": "activation", "function": "relu"}
        convolution = {"kind": "conv1d", "channels": 128, "kernel": 7, "stride": 3}
        blocks = [convolution, relu, convolution, relu, {"kind": "max-pool"}, {"kind": "linear", "features": 128}, relu]

    return Conv()


def named_embedding(model):
    yield "src.embed.weight", model.embed.weight
    yield "logits.weight", model.out.weight
    yield "logits.bias", model.out.bias


def make(shape):
    """The model, saved for attnscope."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = {"encoder-decoder": encoder_decoder, "lstm": lstm, "conv": conv}[shape]()
    folder = MODELS / shape
    folder.mkdir(parents=True, exist_ok=True)
    if shape == "encoder-decoder":
        model.save_pretrained(folder)
        return model
    save_file({name: weight.detach().contiguous().clone() for name, weight in model.named()}, folder / "model.safetensors")
    classifier = {"blocks": model.blocks, "classes": CLASSES, "length": SHAPES[shape][1]}
    config = {"model_type": "attnscope-classifier", "pad_token_id": 0, "classifier": classifier}
    (folder / "config.json").write_text(json.dumps(config))
    return model


def serve(shape):
    """Answers each line with the milliseconds of a step and the mean loss."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    model = make(shape).train()
    rows, length = SHAPES[shape]
    parameters = list(model.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
    for _ in sys.stdin:
        begin = time.perf_counter()
        optimiser.zero_grad()
        if shape == "encoder-decoder":
            source = ids(rows, length, 4000)
            logits = model(input_ids=source, decoder_input_ids=source).logits.flatten(0, 1)
        else:
            logits = model(ids(rows, length, 20000))
        target = torch.arange(len(logits)) * 31 % logits.shape[-1]
        loss = torch.nn.functional.cross_entropy(logits, target, label_smoothing=SMOOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        print(f"{(time.perf_counter() - begin) * 1e3:.3f} {loss.item()}", flush=True)


# What takes turns.


def start(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def processor_time(process):
    """Milliseconds that the threads of another process have run, by Linux's clock of it."""
    return time.clock_gettime((~process.pid << 3) | 2) * 1e3


def step(process):
    """Milliseconds by the clock on the wall, and of processors: the latter does not count who else uses the machine."""
    before = processor_time(process)
    process.stdin.write("step\n")
    process.stdin.flush()
    milliseconds, _ = process.stdout.readline().split()
    return float(milliseconds), processor_time(process) - before


def main(pace, rounds, threads):
    print(f"{platform.processor() or platform.machine()}, threads: {threads}, median of {rounds} steps in turns (best in brackets)\n")
    print("| model | batch | attnscope | torch eager | ratio | processor time | torch eager's | ratio |\n|---|---|---|---|---|---|---|---|")
    for shape, (rows, length) in SHAPES.items():
        torch = start([sys.executable, __file__, "serve", shape], threads)
        step(torch)  # The model is saved when the first step is done.
        ours = start([pace, str(MODELS / shape), str(rows), str(length)], threads)
        times = {torch: [], ours: []}
        step(ours)  # Its buffers are made.
        for _ in range(rounds):
            for process, own in times.items():
                own.append(step(process))
        cells = [shape, f"{rows} × {length}"]
        for kind in (0, 1):
            mine, theirs = ([t[kind] for t in times[process]] for process in (ours, torch))
            cells += [f"{statistics.median(t):.1f} ms ({min(t):.1f})" for t in (mine, theirs)]
            cells.append(f"{statistics.median(mine) / statistics.median(theirs):.2f}")
        print(f"| {' | '.join(cells)} |", flush=True)
        for process in times:
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
