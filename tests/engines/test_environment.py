"""What of our own environment reaches an engine (ARG-5, GPU-4)."""

from supervisor.engines.devices import DEVICE_VARIABLES
from supervisor.engines.environment import DEFAULT_PATH, base_environment

FOREIGN = {
    **dict.fromkeys(DEVICE_VARIABLES, "4,5"),
    **dict.fromkeys(("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC"), "x"),
    **dict.fromkeys(("JOURNAL_STREAM", "INVOCATION_ID", "STATE_DIRECTORY"), "x"),
    **dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD"), "x"),
    **dict.fromkeys(("LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "OMP_NUM_THREADS"), "x"),
    **dict.fromkeys(("VLLM_PORT", "VLLM_API_KEY", "SGLANG_PORT", "TABBY_NETWORK_PORT"), "x"),
    **dict.fromkeys(("LLAMA_ARG_PORT", "LLAMA_API_KEY", "AIP_MODE"), "x"),
    **dict.fromkeys(("PROMETHEUS_MULTIPROC_DIR", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), "x"),
    **dict.fromkeys(("HTTP_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY"), "x"),
    **dict.fromkeys(("ENGINE_SUPERVISOR_SOCKET", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY"), "x"),
}
KEPT = {
    "HOME": "/home/e",
    "USER": "e",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TMPDIR": "/scratch",
    "HF_HOME": "/models/hf",
    "SSL_CERT_FILE": "/etc/ca.pem",
}


def test_it_is_a_defined_base_and_nothing_else() -> None:
    env = base_environment({**FOREIGN, **KEPT, "PATH": "/usr/bin:/bin"})
    assert env == {**KEPT, "PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}


def test_there_is_always_a_path() -> None:
    assert base_environment({}) == {"PATH": DEFAULT_PATH, "PYTHONUNBUFFERED": "1"}


def test_our_own_virtual_environment_is_not_the_engines() -> None:
    inherited = {"PATH": "/opt/us/bin:/usr/bin", "VIRTUAL_ENV": "/opt/us/"}
    assert base_environment(inherited)["PATH"] == "/usr/bin"


def test_the_engines_own_programs_come_first() -> None:
    inherited = {"PATH": "/usr/local/bin:/usr/bin"}
    assert base_environment(inherited, "/opt/vllm/bin/vllm")["PATH"] == (
        "/opt/vllm/bin:/usr/local/bin:/usr/bin"
    )
    assert base_environment(inherited, "/usr/bin/llama-server")["PATH"] == inherited["PATH"]
    assert base_environment(inherited, "llama-server")["PATH"] == inherited["PATH"]


def test_what_it_got_is_left_alone() -> None:
    inherited = {"PATH": "/opt/us/bin", "VIRTUAL_ENV": "/opt/us"}
    base_environment(inherited)
    assert inherited == {"PATH": "/opt/us/bin", "VIRTUAL_ENV": "/opt/us"}
