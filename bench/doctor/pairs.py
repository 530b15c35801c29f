"""Sentence pairs of Multi30k: as they should be, and ill-fitting in every way that users were seen to give them."""

import gzip
import random

SETS = ["train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr"]


def lines(shared, name, language):
    with gzip.open(shared / f"data/multi30k/{name}.{language}.gz", "rt", encoding="utf-8") as file:
        return [line.strip() for line in file]


def backwards(text):
    return " ".join(reversed(text.split()))


class Sample:
    """Some lines of one set."""

    def __init__(self, shared, name, count, seed):
        self.english, self.german, self.french = (lines(shared, name, x) for x in ("en", "de", "fr"))
        self.index = random.Random(seed).sample(range(len(self.english)), 3 * count)
        self.count = count

    def rows(self):
        return [(self.english[i], self.german[i], self.french[i]) for i in self.index[: self.count]]

    def joined(self):
        groups = [self.index[3 * n : 3 * n + 3] for n in range(self.count)]
        text = lambda side, group: " ".join(side[i] for i in group)
        return [(text(self.english, g), text(self.german, g)) for g in groups]

    def shuffled(self):
        rows = self.rows()
        return [(a[0], b[1]) for a, b in zip(rows, rows[7:] + rows[:7])]


# A pair of each kind from (English, German, French); the models translate English to German.
KINDS = {
    "right": lambda s: [(e, d) for e, d, _ in s.rows()],
    "other language": lambda s: [(e, f) for e, _, f in s.rows()],
    "other direction": lambda s: [(d, e) for e, d, _ in s.rows()],
    "other source language": lambda s: [(f, d) for _, d, f in s.rows()],
    "copied": lambda s: [(e, e) for e, _, _ in s.rows()],
    "target copied": lambda s: [(d, d) for _, d, _ in s.rows()],
    "shuffled": lambda s: s.shuffled(),
    "target's words reversed": lambda s: [(e, backwards(d)) for e, d, _ in s.rows()],
    "source's words reversed": lambda s: [(backwards(e), d) for e, d, _ in s.rows()],
    "upper case": lambda s: [(e.upper(), d.upper()) for e, d, _ in s.rows()],
    "upper-case source": lambda s: [(e.upper(), d) for e, d, _ in s.rows()],
    "lower case": lambda s: [(e.lower(), d.lower()) for e, d, _ in s.rows()],
    "three sentences a line": lambda s: s.joined(),
    "one pair repeated": lambda s: [(e, d) for e, d, _ in s.rows()[:1]] * s.count,
}
