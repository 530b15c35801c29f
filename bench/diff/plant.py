"""A place for a bug: modules of a model by the node whose value they give, and ways to replace or bend them."""

from dataclasses import dataclass

import torch
from torch import nn

import names


@dataclass(frozen=True)
class Bug:
    """A mistake. `relations` are the names in diff's JSON that describe it rightly; `precision` is the key of that name.

    `sites(subject)` gives the nodes or sublayers it can be put at, `plant(place)` puts it there.
    """

    kind: str
    relations: tuple
    sites: object
    plant: object


class Place:
    """A site in a model."""

    def __init__(self, model, subject, site):
        self.model, self.subject, self.site = model, subject, site

    def path(self, node):
        return names.module_of(self.subject.scheme, node)

    def module(self, part=None):
        """The module of the site, or of a part of it: `q` of `encoder.0.self_attn`."""
        return self.model.get_submodule(self.path(f"{self.site}.{part}" if part else self.site))

    def replace(self, module, part=None):
        path = self.path(f"{self.site}.{part}" if part else self.site)
        parent, _, name = path.rpartition(".")
        setattr(self.model.get_submodule(parent), name, module)

    def core(self, core):
        """Another attention behind the projections."""
        self.module().planted_core = core

    def edit(self, change, part=None):
        """Another weight, computed from the right one."""
        weight = self.module(part).weight
        with torch.no_grad():
            weight.copy_(change(weight.clone()))

    def after(self, change):
        """The module's output, changed."""
        self.module().register_forward_hook(lambda _m, _i, output: change(output))


class Function(nn.Module):
    """A module that is a function of its input, in place of an activation or a norm."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def attentions(subject, kinds=("encoder.self_attn", "decoder.self_attn", "decoder.cross_attn")):
    """Sublayers of these kinds at the first, middle and last layer."""
    found = []
    for stack, count in zip(("encoder", "decoder"), subject.layers):
        for layer in sorted({0, count // 2, count - 1}):
            found += [f"{stack}.{layer}.{k.split('.')[1]}" for k in kinds if k.startswith(stack)]
    return found


def self_attentions(subject):
    return attentions(subject, ("encoder.self_attn", "decoder.self_attn"))


def causal(subject):
    return attentions(subject, ("decoder.self_attn",))


def cross(subject):
    return attentions(subject, ("decoder.cross_attn",))


def nodes(*parts, stacks=("encoder", "decoder")):
    """`nodes("ffn.act")`: that node at the first, middle and last layer of each stack."""

    def sites(subject):
        counts = dict(zip(("encoder", "decoder"), subject.layers))
        places = [(s, n) for s in stacks for n in sorted({0, counts[s] // 2, counts[s] - 1})]
        all_nodes = [f"{s}.{n}.{part}" for s, n in places for part in parts]
        return [n for n in all_nodes if not n.startswith("encoder") or "cross" not in n]

    return sites


def only(*subjects, sites):
    """These sites, for subjects whose name begins so."""
    return lambda subject: sites(subject) if subject.name.startswith(subjects) else []
