"""Secrets: find them by the gitleaks rules, and mask them before anything is stored or shown."""
