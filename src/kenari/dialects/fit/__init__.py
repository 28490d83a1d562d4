"""The only place that changes a request for the model that will answer it; each loss leaves a `Notice` (idea 4)."""

from kenari.dialects.fit.request import fit
from kenari.dialects.fit.target import Target

__all__ = ["Target", "fit"]
