"""Figures of this product, each with its control or its peer measured in the same run.

``python -m bench [NAMES] [--quick | --full]`` measures, prints a table and writes a JSON file. One
figure is one file of ``bench.figures``; what they stand on (a daemon of their own, a compiled
engine, an observer of deaths, peers in a venv of their own) is in ``bench.parts``.
"""
