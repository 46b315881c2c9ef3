"""The report as one HTML file that needs nothing else.

page       prepares the report for the template and fills it
report.html.j2, style.css, script.js: the page; it can all be read without the script, which filters and pages
"""

from rebalancer.report.html.page import to_html

__all__ = ["to_html"]
