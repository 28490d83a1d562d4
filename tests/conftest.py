"""What all tests share: Hypothesis profiles, and the marks that may be chosen with -m."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", deadline=None, max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("seed", deadline=None, max_examples=20, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
