"""Bugs of weights, embeddings, positions and buckets, and of which tensor is read."""

import torch

import names
from plant import Bug, Place, causal, cross, nodes, only, self_attentions


def int8(weight):
    """Rounded to 255 steps a row, as weight-only quantisation does."""
    step = weight.abs().amax(-1, keepdim=True) / 127
    return (weight / step).round() * step


def exchanged(one, two):
    def plant(place):
        first, second = place.module(one).weight, place.module(two).weight
        with torch.no_grad():
            kept = first.clone()
            first.copy_(second)
            second.copy_(kept)

    return plant


def edited(change):
    return lambda place: place.edit(change)


def neighbour(site, count):
    stack, layer, rest = site.split(".", 2)
    return f"{stack}.{(int(layer) + 1) % count}.{rest}"


def other_layer(place):
    count = place.subject.layers[0 if place.site.startswith("encoder") else 1]
    other = Place(place.model, place.subject, neighbour(place.site, count)).module()
    place.edit(lambda _w: other.weight.clone())


def corrupted(weight):
    weight[3] = -weight[3]
    return weight


def positions_off_by_one(place):
    stack = {"src": "encoder", "tgt": "decoder"}[place.site.split(".")[0]]
    if place.subject.name.startswith("Whisper"):
        place.model.decoder.first_position = 1
        return
    table = place.model.get_submodule(f"model.{stack}.embed_positions").weight
    with torch.no_grad():
        table.copy_(table.roll(-1, 0))


def no_embedding_scale(place):
    stack = "encoder" if place.site.startswith("src") else "decoder"
    getattr(place.model.model, stack).embed_scale = 1.0


def earlier_memory(place):
    """The cross-attention reads the encoder's layer before the last, and not its end."""
    scheme, count = place.subject.scheme, place.subject.layers[0]
    layer = place.model.get_submodule(names.module_of(scheme, f"encoder.{count - 2}.out"))
    seen = {}
    layer.register_forward_hook(lambda _m, _i, out: seen.update(memory=out[0] if isinstance(out, tuple) else out))

    def hook(_m, args, kwargs):
        if "key_value_states" in kwargs:
            return args, {**kwargs, "key_value_states": seen["memory"]}
        return (args[0], seen["memory"], *args[2:]), kwargs

    place.module().register_forward_pre_hook(hook, with_kwargs=True)


def bucket(change):
    """Another bucket for a distance. The first layer of a T5 stack computes the bias for all of them."""

    def plant(place):
        right = place.module()
        computed = type(right)._relative_position_bucket
        right._relative_position_bucket = lambda relative, **kwargs: change(computed, relative, kwargs)

    return plant


def first_layers(*stacks):
    return only("T5", sites=lambda _s: [f"{stack}.0.self_attn" for stack in stacks])


def untied_roll(place):
    """Only this table: the other stack and the output projection keep theirs."""
    module = place.module()
    module.weight = torch.nn.Parameter(module.weight.detach().roll(1, 0), requires_grad=False)


def square(subject):
    return nodes("self_attn.q", "cross_attn.v", "self_attn.out")(subject)


LINEARS = nodes("self_attn.q", "self_attn.v", "cross_attn.k", "ffn.hidden", "ffn.out")

BUGS = [
    Bug(
        "K and V swapped in weights",
        ("other_weights",),
        cross,
        exchanged("k", "v"),
    ),
    Bug(
        "Q and K swapped in weights",
        ("other_weights",),
        self_attentions,
        exchanged("q", "k"),
    ),
    Bug("another layer's weight", ("other_layer",), LINEARS, other_layer),
    Bug("square weight transposed", ("transpose",), square, edited(lambda w: w.T)),
    Bug("int8-quantised layer", ("quantised",), LINEARS, edited(int8)),
    Bug(
        "weight rounded to bf16",
        ("rounded_weight",),
        LINEARS,
        edited(lambda w: w.bfloat16().float()),
    ),
    Bug("a weight's row negated", ("corrupted_row",), LINEARS, edited(corrupted)),
    Bug(
        "heads of a weight permuted",
        ("permuted_heads",),
        nodes("self_attn.v", "cross_attn.v"),
        edited(lambda w: w.roll(64, 0)),
    ),
    Bug(
        "embedding rows rolled",
        ("rolled_rows",),
        only("Whisper", sites=lambda _s: ["tgt.embed"]),
        edited(lambda w: w.roll(1, 0)),
    ),
    Bug(
        "embedding rows rolled",
        ("rolled_rows",),
        only("T5", "BART", "marian", sites=lambda _s: ["src.embed", "tgt.embed"]),
        untied_roll,
    ),
    Bug(
        "positions off by one",
        ("off_by_one_position",),
        only("Whisper", sites=lambda _s: ["tgt.embed_pos"]),
        positions_off_by_one,
    ),
    Bug(
        "positions off by one",
        ("off_by_one_position",),
        only("BART", "marian", sites=lambda _s: ["src.positions", "tgt.positions"]),
        positions_off_by_one,
    ),
    Bug(
        "embedding scale missing",
        ("scale",),
        only("marian", sites=lambda _s: ["src.embed", "tgt.embed"]),
        no_embedding_scale,
    ),
    Bug("cross-attention reads an earlier encoder layer", ("other_input",), cross, earlier_memory),
    Bug(
        "relative bucket off by one",
        ("other_bucket",),
        first_layers("encoder", "decoder"),
        bucket(lambda f, r, kw: f(r - 1, **kw)),
    ),
    Bug(
        "bidirectional buckets in the decoder",
        ("other_bucket",),
        first_layers("decoder"),
        bucket(lambda f, r, kw: f(r, **{**kw, "bidirectional": True})),
    ),
    Bug(
        "other max distance",
        ("other_bucket",),
        first_layers("encoder", "decoder"),
        bucket(lambda f, r, kw: f(r, **{**kw, "max_distance": 64})),
    ),
]
