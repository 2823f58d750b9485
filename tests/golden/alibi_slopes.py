"""ALiBi slopes for 1 to 130 heads, each the double nearest to the real number of the formula.

For H heads and c = 2^floor(log2 H), slope h is 2^(-8(h+1)/c) if h < c, otherwise 2^(-4(2(h-c)+1)/c).
"""

import decimal
import json
from fractions import Fraction

BIAS_MAX = 8
HEADS = range(1, 131)


def exponents(heads):
    """The exact negative exponents: slope h is 2^-exponents[h]."""
    c = 1 << (heads.bit_length() - 1)
    first = [Fraction(BIAS_MAX * (h + 1), c) for h in range(c)]
    return first + [Fraction(BIAS_MAX * (2 * h + 1), 2 * c) for h in range(heads - c)]


def nearest_double(exponent):
    """2^-exponent, computed to 60 digits and rounded once."""
    with decimal.localcontext(prec=60):
        return float(decimal.Decimal(2) ** (-decimal.Decimal(exponent.numerator) / exponent.denominator))


def slopes(heads):
    return [nearest_double(exponent) for exponent in exponents(heads)]


def write(path):
    """Writes one line per number of heads, from 1 on. The JSON numbers read back as the same doubles."""
    rows = ",\n".join(json.dumps(slopes(heads)) for heads in HEADS)
    path.write_text(f'{{"bias_max": {BIAS_MAX}.0, "slopes": [\n{rows}\n]}}\n')
