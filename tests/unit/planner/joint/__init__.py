"""Tests of joint moves."""
