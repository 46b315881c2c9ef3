"""Small mistakes made on purpose in the code that decides about evictions: do the closest tests see them?"""
