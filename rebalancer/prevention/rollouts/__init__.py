"""Rollouts that keep the spread: `matchLabelKeys`, by which old and new pods are counted apart."""
