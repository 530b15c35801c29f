"""What attnscope draws from a recipe's seed, again: which examples are held out, and the batches of every epoch.

crates/attnscope-train/src/batches.rs is the original; `python order.py` holds a few numbers against it.
"""

MASK = (1 << 64) - 1
POOL = 2048
WEIGHTS, VALIDATION, ORDER, DROPOUT = 1, 2, 3, 4


class SplitMix:
    def __init__(self, seed: int):
        self.state = seed & MASK

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        return (self.bits() * n) >> 64


def stream(kind: int, number: int, seed: int) -> int:
    mixed = SplitMix(seed).bits() ^ kind
    return SplitMix(SplitMix(mixed).bits() ^ number).bits()


def shuffle(items: list, random: SplitMix) -> None:
    for i in range(len(items) - 1, 0, -1):
        j = random.below(i + 1)
        items[i], items[j] = items[j], items[i]


def held_out(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Training and validation rows, both in the order of the file."""
    order = list(range(count))
    shuffle(order, SplitMix(stream(VALIDATION, 0, seed)))
    held = int(count * share + 0.5)
    return sorted(order[held:]), sorted(order[:held])


def epoch(count: int, seed: int, number: int, batch: int | None = None, tokens: int | None = None, lengths=None):
    """The batches of an epoch: so many examples, or so many positions at most."""
    random = SplitMix(stream(ORDER, number, seed))
    order = list(range(count))
    shuffle(order, random)
    if lengths is None:
        return [order[i : i + batch] for i in range(0, count, batch)]
    batches = []
    for start in range(0, count, POOL):
        pool = sorted(order[start : start + POOL], key=lambda i: lengths[i])
        current, longest = [], 0
        for i in pool:
            longest = max(longest, lengths[i], 1)
            fits = len(current) < batch if batch else (len(current) + 1) * longest <= tokens
            if current and fits:
                current.append(i)
            else:
                if current:
                    batches.append(current)
                current, longest = [i], max(lengths[i], 1)
        batches.append(current)
    shuffle(batches, random)
    return batches


if __name__ == "__main__":
    random = SplitMix(1234567)
    assert [random.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert sorted(sum(epoch(100, 1, 0, batch=7), [])) == list(range(100))
    print("order: fine")
