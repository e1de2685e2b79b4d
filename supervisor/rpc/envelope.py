"""JSON-RPC 2.0's outer shapes: requests out of lines, replies into lines."""

from typing import Any

import msgspec

from supervisor.contracts import rpc
from supervisor.contracts.rpc import ErrorObject, Notification, Request, Response, RpcId
from supervisor.rpc.faults import Fault


class BadRequest(Exception):
    """A message that is no request; ``id`` is its own where it has a usable one."""

    def __init__(self, fault: Fault, request_id: RpcId = None) -> None:
        super().__init__(fault)
        self.fault = fault
        self.id = request_id


class _Identified(msgspec.Struct):
    id: RpcId = None


_requests = msgspec.json.Decoder(Request)
_batches = msgspec.json.Decoder(list[msgspec.Raw])
_ids = msgspec.json.Decoder(_Identified)
_encoder = msgspec.json.Encoder()


def is_batch(line: bytes) -> bool:
    return line.lstrip()[:1] == b"["


def parse_request(line: bytes | msgspec.Raw) -> Request:
    """One request or notification. Raises ``BadRequest``."""
    try:
        return _requests.decode(line)
    except msgspec.ValidationError as error:
        fault = Fault(rpc.INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {error}")
        raise BadRequest(fault, _id_in(line)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(Fault(rpc.PARSE_ERROR, f"not valid JSON: {error}")) from None


def parse_batch(line: bytes) -> list[msgspec.Raw]:
    """The members of a batch, each still to be parsed. Raises ``BadRequest``."""
    try:
        members = _batches.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(Fault(rpc.PARSE_ERROR, f"not valid JSON: {error}")) from None
    if not members:
        raise BadRequest(Fault(rpc.INVALID_REQUEST, "an empty batch"))
    if len(members) > rpc.MAX_BATCH:
        problem = f"{len(members)} requests in one batch; at most {rpc.MAX_BATCH} are taken"
        raise BadRequest(Fault(rpc.TOO_LARGE, problem))
    return members


def encode_result(request_id: RpcId, result: Any) -> bytes:
    """A reply, without its line end."""
    return _encoder.encode(Response(id=request_id, result=msgspec.Raw(_encoder.encode(result))))


def encode_error(request_id: RpcId, error: ErrorObject) -> bytes:
    """An error reply, without its line end."""
    return _encoder.encode(Response(id=request_id, error=error))


def encode_notice(method: str, params: msgspec.Struct) -> bytes:
    """A whole notification line."""
    raw = msgspec.Raw(_encoder.encode(params))
    return _encoder.encode(Notification(method=method, params=raw)) + b"\n"


def _id_in(line: bytes | msgspec.Raw) -> RpcId:
    try:
        return _ids.decode(line).id
    except (msgspec.DecodeError, RecursionError):
        return None
