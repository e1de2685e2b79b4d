"""The engines: what each is asked to run, in its own words. Pure: no file, clock or environment.

An engine is rows of data (``vllm.py``, ``llamacpp.py``, ...); the mechanism is the same for all.
``spelling`` says how an engine writes each knob, ``override`` reads the extra arguments in that
spelling, ``plan`` makes the plan (``container`` its part for images), ``devices`` turns leased
devices into variables and device requests, ``picking`` keeps a launch's own words in its lease.
"""
