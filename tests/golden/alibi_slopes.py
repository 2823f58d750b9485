"""ALiBi slopes for 1 to 130 heads, each the double nearest to the real number the formula names.

For H heads and c = 2^floor(log2 H): 2^(-8(h+1)/c) where h < c, 2^(-4(2(h-c)+1)/c) from there on.
"""

import decimal
import json
from fractions import Fraction

BIAS_MAX = 8
HEADS = range(1, 131)


def exponents(heads):
    """Exact: slope h is 2 to the power of minus this."""
    c = 1 << (heads.bit_length() - 1)
    first = [Fraction(BIAS_MAX * (h + 1), c) for h in range(c)]
    return first + [Fraction(BIAS_MAX * (2 * h + 1), 2 * c) for h in range(heads - c)]


def nearest_double(exponent):
    """2^-exponent, computed to 60 digits and then rounded once."""
    with decimal.localcontext(prec=60):
        return float(decimal.Decimal(2) ** (-decimal.Decimal(exponent.numerator) / exponent.denominator))


def slopes(heads):
    return [nearest_double(exponent) for exponent in exponents(heads)]


def write(path):
    """One line per number of heads, 1 first; JSON numbers that read back as the same doubles."""
    rows = ",\n".join(json.dumps(slopes(heads)) for heads in HEADS)
    path.write_text(f'{{"bias_max": {BIAS_MAX}.0, "slopes": [\n{rows}\n]}}\n')
