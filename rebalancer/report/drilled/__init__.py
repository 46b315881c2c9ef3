"""What failures leave Pending, as something to read.

document   the content: its JSON is a public interface
words      the worst failure in a sentence
table      for a terminal
picture    the worst failures as bars, today and after the plan
"""
