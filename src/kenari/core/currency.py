"""How many decimals a currency shows (ISO 4217)."""

_DIGITS = {
    0: "BIF CLP DJF GNF IDR ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_BY_CODE = {code: digits for digits, codes in _DIGITS.items() for code in codes.split()}


def currency_digits(currency: str) -> int:
    """The decimals that amounts of a currency show at least; 2 for those without a rule of their own. The rupiah has
    sen on paper only: amounts of it are shown without."""
    return _BY_CODE.get(currency, 2)
