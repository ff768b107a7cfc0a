"""Serve: a run and its collection as a page in the browser and a JSON API, on this machine alone
unless asked."""
