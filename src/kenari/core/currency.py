"""How many decimals a currency is shown with (ISO 4217, and practice where it says otherwise)."""

_NONE = "BIF CLP DJF GNF IDR ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split()  # noqa: SIM905 - a list to read
_THREE = "BHD IQD JOD KWD LYD OMR TND".split()  # noqa: SIM905
_FOUR = "CLF UYW".split()  # noqa: SIM905
_DIGITS: dict[str, int] = dict.fromkeys(_NONE, 0) | dict.fromkeys(_THREE, 3) | dict.fromkeys(_FOUR, 4)
"""What is not here has two. The rupiah has two on paper, but nobody has seen a sen for decades."""


def digits_of(currency: str) -> int:
    """The decimals of a currency by its code."""
    return _DIGITS.get(currency, 2)
