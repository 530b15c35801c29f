"""What both trainings read of a run of attnscope, and what they are asked for."""

import argparse
import pathlib
import tomllib

import torch
from tokenizers import Tokenizer


class Run:
    """The recipe as used, the seed and the tokenizer; torch is seeded."""

    def __init__(self, args: argparse.Namespace):
        torch.set_num_threads(args.threads)
        torch.set_default_device(args.device)
        self.folder = args.run
        self.recipe = tomllib.loads((args.run / "recipe.toml").read_text())
        self.seed = self.recipe["seed"] if args.seed is None else args.seed
        torch.manual_seed(self.seed)
        self.tokenizer = Tokenizer.from_file(str(args.run / "checkpoint" / "tokenizer.json"))

    def optimiser(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        own = self.recipe["optimiser"]
        return torch.optim.AdamW(
            model.parameters(), own["learning_rate"], (own["beta1"], own["beta2"]), own["epsilon"], own["weight_decay"]
        )

    def update(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        """Gradients, clipped where the recipe says so, and a step."""
        optimiser.zero_grad()
        loss.backward()
        if clip_norm := self.recipe["optimiser"].get("clip_norm"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimiser.step()


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--time", type=int, metavar="STEPS")
    return parser
