"""Quantities of CEL against an independent reading in decimals, and the laws of their arithmetic."""

import contextlib
from decimal import ROUND_UP, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.expressions import messages, quantities
from fairlead.expressions.quantities import Quantity, parse

DECIMAL = {
    "n": "1e-9",
    "u": "1e-6",
    "m": "1e-3",
    "": "1",
    "k": "1e3",
    "M": "1e6",
    "G": "1e9",
    "T": "1e12",
    "P": "1e15",
    "E": "1e18",
}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
EXACT = Context(prec=400)

numbers = st.from_regex(r"[0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12}", fullmatch=True)
suffixes = st.sampled_from([*DECIMAL, *BINARY]) | st.from_regex(r"[eE][+-]?[0-9]{1,2}", fullmatch=True)
texts = st.tuples(st.sampled_from(["", "+", "-"]), numbers, suffixes).map("".join)


def judged(text):
    """The value by Python's decimals."""
    sign, rest = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    digits = rest
    scale = Decimal(1)
    for suffix in sorted([*DECIMAL, *BINARY], key=len, reverse=True):
        if suffix and rest.endswith(suffix):
            digits = rest[: -len(suffix)]
            scale = Decimal(1 << BINARY[suffix]) if suffix in BINARY else Decimal(DECIMAL[suffix])
            break
    else:
        suffix = ""
    value = EXACT.multiply(EXACT.create_decimal(digits), scale)
    value = value.quantize(Decimal("1e-9"), rounding=ROUND_UP, context=EXACT)
    if suffix in BINARY:
        value = min(value, Decimal((1 << 63) - 1))
    return -value if sign == "-" else value


@given(texts)
def test_every_quantity_has_the_value_that_decimals_give(text):
    value = parse(text).value
    assert EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)) == judged(text)


@given(st.text(alphabet="0123456789.+-eEinumkKMGTPx ", max_size=8))
def test_any_text_is_a_quantity_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert isinstance(parse(text), Quantity)


@pytest.mark.parametrize("text", ["", "1 Gi", "12XB", "1e", "--1", "1Kii", "1e5000", "0x1", "1,5", "٣"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "integer"), [("1.5Gi", 3 << 29), ("500m", None), ("9Ei", (1 << 63) - 1), ("1e19", None), ("-1k", -1000)]
)
def test_what_is_an_integer_of_64_bits(text, integer):
    assert quantities.parse(text).integer == integer


@given(texts, texts)
def test_the_texts_of_messages_sort_as_quantities_do(left, right):
    values = parse(left), parse(right)
    written = [messages.quantity_text(each) for each in values]
    assert (written[0] < written[1], written[0] == written[1]) == (values[0] < values[1], values[0] == values[1])
    assert [messages.value_of(messages.of_quantity(each)) for each in values] == list(values)
