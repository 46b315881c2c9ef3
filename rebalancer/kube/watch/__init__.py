"""The watch cache: every kind that a plan rests on, kept up to date by list and watch."""
