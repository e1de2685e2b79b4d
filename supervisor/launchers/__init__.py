"""Launchers execute a plan and answer for a handle. They decide nothing and touch no record."""
