"""Every type on the wire and on disk. No I/O, and nothing imported but msgspec.

Three rules explain the whole product:

1. Engines are pure. ``plan(request)`` is a total function of its argument.
2. The instance record is the lease. A device is held exactly while a record claims it whose
   handle is not known to be gone.
3. Status is derived, never stored. ``state_of`` reads liveness, then health, then the deadline.
"""
