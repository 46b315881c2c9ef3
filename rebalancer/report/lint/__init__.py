"""Findings in manifests, in the formats that CI systems read.

diagnostic  a finding with its file and line
text, github, sarif, junit, gitlab: one format each
"""
