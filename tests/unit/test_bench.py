"""What the benchmarks rest on in the source."""

import importlib.util
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


def test_what_features_leaves_out_stands_in_the_source() -> None:
    """`bench/features.py` compares with a copy without some checks: each of them must be found, once."""
    spec = importlib.util.spec_from_file_location("features", HERE / "bench" / "features.py")
    assert spec is not None
    assert spec.loader is not None
    features = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(features)
    for file, old, _ in features.WITHOUT:
        text = (HERE / "src" / "kenari" / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, (file, old)
