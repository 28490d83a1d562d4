"""L8: every number of the contract that is built is named by a test. That such tests fail without the rule is shown by
`test_mutations.py`."""

from contract_index import BUILT, naming_tests, numbers_in


def test_every_number_is_named_by_a_test() -> None:
    """L8."""
    named = naming_tests()
    missing = sorted(BUILT - named.keys(), key=lambda number: (number[0], int(number[1:])))
    assert missing == []


def test_numbers_are_read_as_they_are_written() -> None:
    assert numbers_in("S1, D12 and E3: F1") == {"S1", "D12", "E3", "F1"}
    assert numbers_in("(S80-S83, U1-3)") == {"S80", "S81", "S82", "S83", "U1", "U2", "U3"}
    assert numbers_in("XS1 S1a UTF8 sha256 S") == set()
