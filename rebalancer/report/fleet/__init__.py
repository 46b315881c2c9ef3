"""The reports of several clusters as one.

document   its content; its JSON is a public interface
rendering  the same in the formats of a report
"""
