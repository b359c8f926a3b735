"""The pytest side: what a run collects, how a test is measured and judged, what is told before and after."""

from __future__ import annotations
