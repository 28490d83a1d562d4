"""The ids that requests get (D14): of one form, unlike each other, and those of one draw side by side."""

import os
import re

from kenari.core.ids import request_id_bytes, request_ids


def test_D14_ids_are_16_hex_digits_and_unlike() -> None:
    found = [one for _ in range(100) for one in request_ids(os.urandom(request_id_bytes(256)))]
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in found)
    assert len(set(found)) == len(found) == 25_600


def test_those_of_one_draw_lie_side_by_side_and_are_taken_in_rising_order() -> None:
    draws = [request_ids(os.urandom(request_id_bytes(64))) for _ in range(40)]
    taken = [[ids.pop() for _ in range(64)] for ids in draws]
    assert all(one == sorted(one) for one in taken)
    assert all(len({id[:4] for id in one}) == 1 for one in taken)
    assert len({one[0][:4] for one in taken}) > 30


def test_every_random_byte_counts() -> None:
    entropy = bytearray(request_id_bytes(1))
    before = request_ids(bytes(entropy))
    for at in range(len(entropy)):
        entropy[at] ^= 1
        assert request_ids(bytes(entropy)) != before
        entropy[at] ^= 1
