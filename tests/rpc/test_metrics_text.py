"""``metrics.text`` as Prometheus' own parser reads it."""

from prometheus_client.parser import text_string_to_metric_families

from supervisor.contracts.event import Phase
from supervisor.rpc.exposition import PREFIX
from tests.rpc.fake import Served, view
from tests.rpc.wire import Wire


def test_the_page_parses_and_says_what_there_is(wire: Wire, served: Served) -> None:
    odd = 'a "quoted\\ name\n'
    served.supervisor.views = {"a": view("a"), odd: view(odd, "starting")}
    served.publish(*(Phase(instance="a", phase="loading") for _ in range(3)))
    wire.ask("instance.list")
    text = wire.ask("metrics.text")["result"]["text"]
    samples = {
        (sample.name.removeprefix(PREFIX), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["info", "0.1.0", "s"] == 1
    assert samples["instances", "ready"] == 2  # as the fake's info says
    assert samples["instances", "exited"] == 0
    assert samples["engine_instances", "starting", "vllm"] == 1
    assert samples["instance_up", "a", "vllm"] == 1
    assert samples["instance_up", odd, "vllm"] == 0
    assert samples["device_holders", "D0"] == 2
    assert samples["device_holders", "gone"] == 0
    assert samples["events_total", "phase"] == 3
    assert samples[("exited_total",)] == 0
    assert samples[("event_seq",)] == 3
