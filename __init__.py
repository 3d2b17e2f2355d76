"""Diptych."""
