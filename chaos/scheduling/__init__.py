"""Schedules that several processes fire while they are killed and their clocks are set."""
