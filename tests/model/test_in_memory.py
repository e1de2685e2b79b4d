"""The model against engines that are only thought: hours of them in seconds."""

from hypothesis import HealthCheck, settings

from tests.model.machine import Supervised

TestSupervised = Supervised.TestCase
TestSupervised.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
