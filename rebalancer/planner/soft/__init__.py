"""Soft constraints (ScheduleAnyway), balanced where the scheduler's scores are predicted to help."""
