"""A `llama-server` made of the `xllamacpp` wheel, for hosts without a llama.cpp build.

The wheel holds llama.cpp's own HTTP server as a library, and with it llama.cpp's own command-line
parser. This program is the missing `main()`: it runs under the Python of the runtime's own venv,
never inside the supervisor, and so imports nothing of ours. Flags, `LLAMA_ARG_*` variables,
`--help`, error texts and endpoints are the real ones, for they come from the same code.

It differs from the genuine program in three ways: a stop that arrives while the model loads waits
for the load, a stop cuts open streams instead of draining them, and `-m` must be given.
"""

import ctypes
import os
import signal
import sys

import xllamacpp

SERVER = 12  # the `llama_example` value that selects llama-server's set of flags
PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
"""`common_params_parse(int, char **, common_params &, llama_example, void (*)(int, char **))`."""

DEFAULT_PORT = 8080
STOPS = {signal.SIGINT, signal.SIGTERM}


class UnknownLayoutError(Exception):
    """This build of the wheel is not the one that this program was written against."""


def struct_inside(params: xllamacpp.CommonParams) -> ctypes.c_void_p:
    """The address of the C++ struct within its Python wrapper.

    The wrapper holds the struct right behind the object header. Nothing promises that, so it is
    proved first: what is written through the wrapper into the struct's first two members must
    show at the address. Handing the parser a wrong one would corrupt memory.
    """
    address = id(params) + object.__basicsize__
    before = params.n_predict, params.n_ctx
    proof = 0x1234567, 0x7654321
    params.n_predict, params.n_ctx = proof
    seen = tuple((ctypes.c_int32 * 2).from_address(address))
    params.n_predict, params.n_ctx = before
    if seen != proof:
        raise UnknownLayoutError("its parameters are not laid out as expected")
    return ctypes.c_void_p(address)


def parse(params: xllamacpp.CommonParams, arguments: list[str]) -> bool:
    """Let llama.cpp's parser read `arguments` into `params`; on a mistake it prints its own text.

    `--help` and `--version` do not return: the parser prints and exits the process.
    """
    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    try:
        read = library[PARSE]
    except AttributeError:
        raise UnknownLayoutError("it exports no command-line parser") from None
    read.restype = ctypes.c_bool
    words = [b"llama-server", *map(os.fsencode, arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    return bool(read(len(words), argv, struct_inside(params), SERVER, None))


def main() -> int:
    """Serve until SIGINT or SIGTERM; the exit status is llama-server's, 0 or 1."""
    params = xllamacpp.CommonParams()
    params.port = DEFAULT_PORT  # the wheel's own default is 0, which means "any"
    try:
        if not parse(params, sys.argv[1:]):
            return 1
    except UnknownLayoutError as unknown:
        print(f"error: this xllamacpp cannot be used: {unknown}", file=sys.stderr)
        return 1

    # Blocked before the server makes its threads, which inherit this: a stop then has one receiver.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        # Answers /health with 503 meanwhile, and returns once the model is loaded.
        _serving = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    signal.sigwait(STOPS)
    # Not by way of the server's destructor: it keeps the interpreter locked until the last stream
    # ends, and hangs for good when it runs too early.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
