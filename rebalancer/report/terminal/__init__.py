"""The report for a terminal.

table     the report
overview  its first part, and a large plan by workload
rows      tables with names as plain text; columns: the same as plain lines
"""
