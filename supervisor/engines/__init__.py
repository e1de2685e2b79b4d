"""The engines: what each is asked to run, in its own words. Pure: no file, clock or environment.

An engine is rows of data (``llamacpp.py``); the mechanism is the same for all. ``spelling`` says
how an engine writes each knob, ``override`` reads the extra arguments in that spelling, ``plan``
makes the plan, ``devices`` turns leased devices into variables.
"""
