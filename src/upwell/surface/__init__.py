"""Decides for each event (a `Cue`) whether to show memories (`Surfacing`) or none (`Skip`)."""
