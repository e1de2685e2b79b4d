from hypothesis import HealthCheck, settings
from tests.model.machine import Supervised
TestBig = Supervised.TestCase
TestBig.settings = settings(max_examples=400, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
