"""Tests of traces, metrics, logs, dashboards and alerts, over HTTP."""
