"""The mean of heads in exact rational arithmetic, rounded once: mean pooling must equal it bit for bit.

Uses no floats: a finite IEEE number is an integer multiple of its format's smallest subnormal.
"""

import dataclasses
from fractions import Fraction

import numpy as np


@dataclasses.dataclass(frozen=True)
class Format:
    precision: int  # significant bits with the hidden one
    exponent_bits: int

    @property
    def sign(self):
        return 1 << (self.precision + self.exponent_bits - 1)


FORMATS = {"BF16": Format(8, 8), "F16": Format(11, 5), "F32": Format(24, 8)}


def decode(bits, form):
    """The value of a finite number's bits in units of the smallest subnormal, as an int."""
    magnitude = bits & (form.sign - 1)
    exponent, fraction = divmod(magnitude, 1 << (form.precision - 1))
    if exponent == (1 << form.exponent_bits) - 1:
        raise ValueError("not a finite number")
    if exponent > 0:
        fraction = (fraction | 1 << (form.precision - 1)) << (exponent - 1)
    return -fraction if bits & form.sign else fraction


def encode(value, form):
    """The bits of the number nearest to a Fraction in units of the smallest subnormal, ties to even."""
    size = abs(value)
    shift = max(0, int(size).bit_length() - form.precision)  # the spacing of numbers near `size`, as a power of two
    steps = round(size / (1 << shift))  # Fraction rounds half to even
    bits = (shift << (form.precision - 1)) + steps  # a carry of the fraction increases the exponent
    infinity = ((1 << form.exponent_bits) - 1) << (form.precision - 1)
    return min(bits, infinity) | (form.sign if value < 0 else 0)


def pool(bits, dtype, groups):
    """Pools heads [H, d, ...] to [G, d, ...]. Group g is the mean of heads g·H/G … (g+1)·H/G − 1."""
    form, heads = FORMATS[dtype], bits.shape[0]
    size = heads // groups
    assert groups * size == heads
    flat = bits.reshape(groups, size, -1).tolist()
    pooled = [
        [
            encode(Fraction(sum(decode(member, form) for member in members), size), form)
            for members in zip(*group, strict=True)
        ]
        for group in flat
    ]
    return np.array(pooled, dtype=bits.dtype).reshape(groups, *bits.shape[1:])


def pool_rows(rows, dtype, heads, groups):
    """Pools rows [H·d, ...] to [G·d, ...]."""
    pooled = pool(rows.reshape(heads, -1, *rows.shape[1:]), dtype, groups)
    return pooled.reshape(-1, *rows.shape[1:])
