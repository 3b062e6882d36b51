"""Spark finds this module by its name and registers what it calls `DefaultSource`: the format `holdfast`."""

from holdfast.spark import DefaultSource as DefaultSource
