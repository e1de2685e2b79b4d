"""The durable event log: ``events.jsonl``, one event a line, for log shippers and for cursors.

An event's number is given out once and never again. Where the file cannot prove which numbers were
given out, counting starts anew under another epoch, and cursors of the old one are refused.
"""

from supervisor.journal.promise import Promise
from supervisor.journal.start import Tail, prepare
from supervisor.journal.writer import Deliver, Journal

__all__ = ["Deliver", "Journal", "Promise", "Tail", "prepare"]
