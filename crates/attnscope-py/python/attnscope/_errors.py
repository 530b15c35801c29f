"""What goes wrong, and what to do about it."""

from __future__ import annotations


class Error(ValueError):
    """Something that cannot be done: a file, an input or an argument is not what is needed.

    >>> import attnscope as at
    >>> try:
    ...     at.open("demo").trace("A dog.", select="cross_atn")
    ... except at.Error as e:
    ...     print(e.error)
    ...     print(e.remedy)  # doctest: +ELLIPSIS
    select='cross_atn' picks none of the 133 nodes
    the nearest names are decoder.0.cross_attn.q, ...; `*` stands for anything

    """

    def __init__(self, error: str, remedy: str, *, place: str | None = None) -> None:
        super().__init__(f"{error}\nhelp: {remedy}")
        self.error = error
        """What was expected and what was found, with the place."""
        self.remedy = remedy
        """What to do next."""
        self.place = place
        """The file or the model, where the error is about an argument."""

    def __reduce__(self) -> tuple[object, ...]:
        return _made, (type(self), self.error, self.remedy, self.place)


class OutOfMemory(Error, MemoryError):
    """There is not enough memory for it. What would not fit was counted before it was made."""


class Defect(Error, RuntimeError):
    """A mistake of attnscope itself."""


def _made(kind: type[Error], error: str, remedy: str, place: str | None) -> Error:
    return kind(error, remedy, place=place)
